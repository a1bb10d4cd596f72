"""A pool of proxies in a folder. It outlives its processes, and the processes of one machine share it.

The first process that opens the folder owns it (`folder`) and has the pool in memory. The others lease through its
socket (`remote`). When the owner ends or is killed, another process takes over with its next call. Calls in progress
are repeated, even if the previous owner has executed them: the first lease of a repeated acquire expires unused, and a
repeated release is refused like a late release.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import NoProxy, StateError, StateLocked
from lycosa.infra import clock
from lycosa.proxies.core import pool_image
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool import journal
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder.folder import IMAGE, JOURNAL, SOCKET, PoolFolder, damaged, owner_of
from lycosa.proxies.folder.remote import OwnerGone, PoolMethods, RemotePool, connect
from lycosa.proxies.folder.server import pool_server
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 30.0
"""Seconds to wait for an owner that is still reading its files and does not listen yet."""

RETRY_S, RETRY_MAX_S = 0.01, 0.25
REPORT_AFTER_S = 2.0
"""After this time a message names the process that is waited for."""

SET_BACK_MIN_S = 1.0
"""A warning is logged if the clock was set back by more."""


class PoolStore:
    """The pool of a folder, in memory. A change is written to the folder, and raises an error if that fails."""

    def __init__(self, path: Path, policy_of: Callable[[str], TargetPolicy], now: Callable[[], float]) -> None:
        self.folder = PoolFolder(path)
        self._latest = 0.0
        self._clock = now
        try:
            self.pool = self._read(policy_of)
            self._ahead_s = self._measure_set_back()
            is_changed = self._apply_policies(policy_of, self.now())
            if is_changed or not self.folder.resume():
                self.folder.replace_image(self._image())
        except BaseException:
            self.folder.close()
            raise
        self.pool.journal = self._write

    def now(self) -> float:
        """Return unix seconds, never before the last stored change, even if the clock was set back between two runs."""
        return self._clock() + self._ahead_s

    def close(self) -> None:
        """Write an image, which makes the next opening fast, and release the folder."""
        self.pool.journal = _refuse
        try:
            if not self.folder.is_unchanged:
                self.folder.replace_image(self._image())
        except StateError as error:
            if not self.folder.is_complete:
                raise
            log.warning("%s", error)  # the journal still has all changes
        finally:
            self.folder.close()

    def _read(self, policy_of: Callable[[str], TargetPolicy]) -> GlobalPool:
        data, records = self.folder.read()
        if not data:
            return GlobalPool(policy_of)
        try:
            image = pool_image.decode(data)
            pool = pool_image.pool_of(image, policy_of)
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            raise damaged(self.folder.path / IMAGE, error) from error
        try:
            self._latest = image.at
            for record in map(journal.decode, records):
                pool.replay(record)
                self._latest = max(self._latest, getattr(record, "now", 0.0))
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            raise damaged(self.folder.path / f"{JOURNAL}{self.folder.generation}", repr(error)) from error
        return pool

    def _apply_policies(self, policy_of: Callable[[str], TargetPolicy], now: float) -> bool:
        """Set the policies of this process. Return whether any has changed."""
        current = [(target, policy_of(name)) for name, target in self.pool.targets.items()]
        changed = [(target, policy) for target, policy in current if target.policy != policy]
        for target, policy in changed:
            target.set_policy(policy, now)
        return bool(changed)

    def _measure_set_back(self) -> float:
        """Return by how many seconds the clock was set back since the last change.

        Without this correction, leases and cool-downs would last too long.
        """
        back_s = self._latest - self._clock()
        if back_s > SET_BACK_MIN_S:
            log.warning("the clock was set back by %.0f s: the pool ignores the change", back_s)
        return max(0.0, back_s)

    def _image(self) -> bytes:
        return pool_image.encode(pool_image.image_of(self.pool, self.now()))

    def _write(self, record: bytes) -> None:
        if self.folder.is_complete:
            self.folder.append(record)
        if not self.folder.is_complete:
            self.folder.replace_image(self._image())  # the image contains the change
        elif self.folder.is_long:
            try:
                self.folder.replace_image(self._image())
            except StateError as error:
                self.folder.postpone_image()
                log.warning("the journal of the pool cannot be replaced yet, and grows: %s", error)


class PoolOwner:
    """The pool of a folder in the process that owns it. Other processes lease through `server`."""

    def __init__(self, store: PoolStore, pool: LocalPool) -> None:
        self.pool = pool
        self.server = pool_server(store.folder.socket, pool)
        self._store = store

    async def close(self) -> None:
        await self.server.close()
        await self.pool.close()
        self._store.close()


@dataclass(eq=False, repr=False)
class EmbeddedPool(PoolMethods):
    """A `ProxyPool` in a folder. Create it with `embedded_pool`."""

    path: Path
    policy_of: Callable[[str], TargetPolicy]
    now: Callable[[], float]
    draw: Callable[[], float]
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self._owner: PoolOwner | None = None
        self._remote: RemotePool | None = None
        self._join_lock = asyncio.Lock()
        self._is_closed = False

    @property
    def owns(self) -> bool:
        return self._owner is not None

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        return await self._add(list(proxies), unchecked=unchecked)  # a list, because the call may be repeated

    async def remove(self, keys: Iterable[str]) -> int:
        return await self._remove(list(keys))

    async def close(self) -> None:
        self._is_closed = True
        async with self._join_lock:
            owner, self._owner = self._owner, None
            remote_pool, self._remote = self._remote, None
        if owner is not None:
            await owner.close()
        if remote_pool is not None:
            await remote_pool.close()

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the pool. If the owner ends meanwhile, repeat the call with the next owner."""
        if self._owner is not None:
            return await getattr(self._owner.pool, name)(*args, **kwargs)
        deadline = time.monotonic() + kwargs.get("wait_s", 0.0)
        while True:
            pool = await self.join()
            if "wait_s" in kwargs:
                kwargs["wait_s"] = max(0.0, deadline - time.monotonic())
            try:
                return await getattr(pool, name)(*args, **kwargs)
            except OwnerGone:
                if self._remote is pool:  # else another call has already joined the next owner
                    self._remote = None

    async def join(self) -> ProxyPool:
        """Return the pool in this process if it owns the folder, else a connection to its owner.

        Raises `StateError`, and `NoProxy` once the pool is closed.
        """
        async with self._join_lock:
            if self._is_closed:
                raise NoProxy(CLOSED)
            if self._owner is None and self._remote is None:
                await self._join()
            pool = self._remote if self._owner is None else self._owner.pool
            assert pool is not None
            return pool

    async def _join(self) -> None:
        """Own the folder, or connect to its owner. Repeat, because both fail while an owner starts or ends."""
        started, pause_s, is_reported = time.monotonic(), RETRY_S, False
        while True:
            try:
                self._owner = await self._own()
                return
            except StateLocked:
                if time.monotonic() - started > JOIN_TIMEOUT_S:
                    raise
            with suppress(OSError, OwnerGone):
                self._remote = await connect(self.path / SOCKET)
                return
            if not is_reported and time.monotonic() - started > REPORT_AFTER_S:
                is_reported = True
                owner = f"process {owner_of(self.path)}, which has this folder open, to answer"
                self.report(f"{self.path}: waiting for {owner}, {JOIN_TIMEOUT_S:g} s at most")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _own(self) -> PoolOwner:
        # In a thread, because a large journal takes seconds to read. Shielded, because a thread cannot be cancelled.
        opening = asyncio.ensure_future(asyncio.to_thread(PoolStore, self.path, self.policy_of, self.now))
        try:
            store = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)  # the thread continues, and would keep the folder locked
            raise
        owner = PoolOwner(store, LocalPool(self.policy_of, store.now, self.draw, store.pool))
        try:
            await owner.server.start()
        except BaseException:
            await owner.close()
            raise
        return owner


def _close_opened(opening: asyncio.Future[PoolStore]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _refuse(_: bytes) -> None:
    raise NoProxy(CLOSED)


async def embedded_pool(
    path: Path,
    report: Callable[[str], None],
    policy_of: Callable[[str], TargetPolicy] = lambda _: TargetPolicy(),
    *,
    now: Callable[[], float] | None = None,
    draw: Callable[[], float] = clock.chance,
) -> EmbeddedPool:
    """Open or create the pool in a folder. `report` gets a message if this waits for another process.

    Raises `ForeignState`, `NewerState`, `StorageFull` or `StorageError` if the folder cannot be used, and `StateLocked`
    if its owner does not answer.
    """
    pool = EmbeddedPool(path, policy_of, now or clock.Clock().now, draw, report)
    await pool.join()
    return pool
