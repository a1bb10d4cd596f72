"""The free-space floor: before a device it writes to is full, a crawl lends nothing more until there is room again.

What is under way is finished and committed below the floor: it is there for that. Looking costs a system call for each
path, so it is done at every commit, and every few seconds while there is a shortage.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lycosa.core.units import format_size

log = logging.getLogger(__name__)

FLOOR_BYTES = 512 << 20
FLOOR_SHARE = 0.01
"""The usual floor is this share of the device, and at most FLOOR_BYTES."""

FLOOR_MIN = 1 << 20
"""A usual floor below this is none: on so small a device it could not hold a single commit."""

ROOM_SHARE = 1.1
"""A shortage is over when so many times the floor are free, so that the crawl does not stop and go all the time."""

SHORTAGE_CHECK_S = 3.0
"""How often to look whether a shortage is over."""


class DiskSpace(NamedTuple):
    """Bytes of a device: those that we may still fill, and all."""

    free_bytes: int
    total_bytes: int


class Shortage(NamedTuple):
    """On the device of this path is too little room; with `needed_bytes` the crawl goes on."""

    path: str
    free_bytes: int
    needed_bytes: int

    def __str__(self) -> str:
        return f"{format_size(self.free_bytes)} free at {self.path}, {format_size(self.needed_bytes)} needed"


def disk_space(path: Path) -> DiskSpace:
    """Return the room on the device of a path; what does not exist yet will be made below its parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    device = os.statvfs(path)
    return DiskSpace(device.f_bavail * device.f_frsize, device.f_blocks * device.f_frsize)


class FreeSpace:
    """Watches the devices of `paths`. `floor_bytes` None means the usual floor, 0 none.

    `elsewhere` tells what else is full.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        floor_bytes: int | None = None,
        room: Callable[[Path], DiskSpace] = disk_space,
        elsewhere: Callable[[], str] = lambda: "",
    ) -> None:
        self._paths = paths
        self._floor_bytes = floor_bytes
        self._room = room
        self._elsewhere = elsewhere
        self.shortage: Shortage | str | None = None

    def look(self) -> None:
        """Check if there is a shortage, or if it costs nothing to know of one."""
        if self.shortage or self._elsewhere():
            self.check()

    async def wait_for_space(self, *, runs: bool) -> None:
        """Return when there is room; in a crawl that does not run yet, and so does not look, at once."""
        self.look()
        while runs and self.shortage:  # noqa: ASYNC110  whoever lends looks as often
            await asyncio.sleep(SHORTAGE_CHECK_S)

    def check(self) -> None:
        """Look at the devices, and say so when a shortage begins or ends."""
        before, self.shortage = self.shortage, self._find()
        if self.shortage and not before:
            log.warning("paused: %s; the crawl goes on by itself when there is room", self.shortage)
        elif before and not self.shortage:
            log.warning("there is room again: the crawl goes on")

    def _find(self) -> Shortage | str | None:
        here = next((found for path in self._paths if (found := self._shortage_at(path))), None)
        return here or self._elsewhere() or None

    def _shortage_at(self, path: Path) -> Shortage | None:
        try:
            free_bytes, total_bytes = self._room(path)
        except OSError:
            return None  # whoever writes there will say what is wrong
        floor = self._floor(total_bytes)
        needed = round(floor * ROOM_SHARE)
        enough = free_bytes >= (needed if isinstance(self.shortage, Shortage) else floor)
        return None if enough else Shortage(str(path), free_bytes, needed)

    def _floor(self, total_bytes: int) -> int:
        if self._floor_bytes is not None:
            return self._floor_bytes
        usual = min(FLOOR_BYTES, int(total_bytes * FLOOR_SHARE))
        return usual if usual >= FLOOR_MIN else 0
