"""Pauses a crawl (nothing more is leased) before a device that it writes to is full.

The crawl pauses when the free space falls below a floor that leaves room for running visits to finish and commit. A
check costs two system calls per path. It runs once per commit, and every SHORTAGE_CHECK_S during a shortage.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lycosa.core.units import format_size

log = logging.getLogger(__name__)

FLOOR_BYTES = 512 << 20
FLOOR_SHARE = 0.01
"""The default floor is this share of the device, at most FLOOR_BYTES."""

FLOOR_MIN = 1 << 20
"""A default floor smaller than this (bytes) is not used, because it could not hold one commit."""

RESUME_FACTOR = 1.1
"""A shortage ends when this multiple of the floor is free, so the crawl does not keep pausing and resuming."""

SHORTAGE_CHECK_S = 3.0


class DiskSpace(NamedTuple):
    """The bytes of a device that this process may still use, and the total."""

    free_bytes: int
    total_bytes: int


class Shortage(NamedTuple):
    """Too little space on the device of `path`. The crawl resumes when `needed_bytes` are free."""

    path: str
    free_bytes: int
    needed_bytes: int

    def __str__(self) -> str:
        return f"{format_size(self.free_bytes)} free at {self.path}, {format_size(self.needed_bytes)} needed"


def disk_space(path: Path) -> DiskSpace:
    """Return the space on the device of a path, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    device = os.statvfs(path)
    return DiskSpace(device.f_bavail * device.f_frsize, device.f_blocks * device.f_frsize)


@dataclass(eq=False, repr=False)
class FreeSpace:
    """Watches the devices of `paths`. `floor_bytes`: None for the default floor, 0 for no floor.

    `other_shortage` describes another shortage (a server's memory, for example), or returns "".
    """

    paths: Sequence[Path]
    floor_bytes: int | None = None
    space_at: Callable[[Path], DiskSpace] = disk_space
    other_shortage: Callable[[], str] = lambda: ""
    shortage: Shortage | str | None = field(init=False, default=None)

    def recheck(self) -> None:
        if self.shortage or self.other_shortage():
            self.check()

    async def wait_for_space(self, *, running: bool) -> None:
        """Return at once if the crawl is not `running`: only a running engine checks the space."""
        self.recheck()
        while running and self.shortage:  # noqa: ASYNC110  the engine checks at the same interval
            await asyncio.sleep(SHORTAGE_CHECK_S)

    def check(self) -> None:
        before, self.shortage = self.shortage, self._find()
        if self.shortage and not before:
            log.warning("paused: %s; the crawl resumes automatically when there is space", self.shortage)
        elif before and not self.shortage:
            log.warning("enough space again: the crawl resumes")

    def _find(self) -> Shortage | str | None:
        here = next((found for path in self.paths if (found := self._shortage_at(path))), None)
        return here or self.other_shortage() or None

    def _shortage_at(self, path: Path) -> Shortage | None:
        try:
            free_bytes, total_bytes = self.space_at(path)
        except OSError:
            return None  # the next write there reports the error
        floor = self._floor(total_bytes)
        needed = round(floor * RESUME_FACTOR)
        enough = free_bytes >= (needed if isinstance(self.shortage, Shortage) else floor)
        return None if enough else Shortage(str(path), free_bytes, needed)

    def _floor(self, total_bytes: int) -> int:
        if self.floor_bytes is not None:
            return self.floor_bytes
        usual = min(FLOOR_BYTES, int(total_bytes * FLOOR_SHARE))
        return usual if usual >= FLOOR_MIN else 0
