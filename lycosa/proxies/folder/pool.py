"""A pool of proxies in a folder: it survives its processes, and the processes of one machine share it.

One process owns the folder (`folder`) and has the pool in memory; the others borrow through its socket (`remote`).
Whoever opens the folder first is the owner; when that process ends, however it does, one of the others takes over with
the next thing it does, and what was under way is asked again. A call whose answer was lost with its owner is made
again, too: a lease that nobody knows of comes back with its time, and a return that was heard already is refused like a
late one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from lycosa.core.errors import NoProxy, StateError, StateLocked
from lycosa.infra import clock
from lycosa.proxies.core import pool_image
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool import journal
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder.folder import IMAGE, JOURNAL, Folder, damaged, owner_of
from lycosa.proxies.folder.remote import OwnerGone, RemotePool, connected
from lycosa.proxies.folder.server import Served
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyPool, ProxyView, TargetView

log = logging.getLogger(__name__)

JOIN_MAX_S = 30.0
"""An owner that has the folder, but does not answer yet, is waited for so long: it reads what is kept."""

AGAIN_S, AGAIN_MAX_S = 0.01, 0.25
SILENT_MAX_S = 2.0
"""After so long the user is told who is waited for."""

SET_BACK_MIN_S = 1.0
"""A clock that was set back by less is not worth a word."""

Answer = TypeVar("Answer")


class Keeper:
    """The pool of a folder, in the hands of this process. Raises what `Folder` does, from any change of it."""

    def __init__(self, path: Path, policy_of: Callable[[str], TargetPolicy], now: Callable[[], float]) -> None:
        self.folder = Folder(path)
        self._latest = 0.0
        self._clock = now
        try:
            self.pool = self._read(policy_of)
            self._ahead_s = self._set_back()
            is_other = self._use(policy_of, self.now())
            if is_other or not self.folder.resume():
                self.folder.keep(self._image())
        except BaseException:
            self.folder.close()
            raise
        self.pool.journal = self._write

    def now(self) -> float:
        """Return the time of the pool (unix seconds), which goes on when the clock was set back meanwhile."""
        return self._clock() + self._ahead_s

    def close(self) -> None:
        """Keep all as it is now, for a quick start, and give the folder free."""
        self.pool.journal = _refuse
        try:
            if not self.folder.is_unchanged:
                self.folder.keep(self._image())
        except StateError as error:
            if not self.folder.is_whole:
                raise
            log.warning("%s", error)  # the journal has it all
        finally:
            self.folder.close()

    def _read(self, policy_of: Callable[[str], TargetPolicy]) -> GlobalPool:
        whole, records = self.folder.read()
        if not whole:
            return GlobalPool(policy_of)
        try:
            kept = pool_image.decode(whole)
            pool = pool_image.pool_of(kept, policy_of)
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            raise damaged(self.folder.path / IMAGE, error) from error
        try:
            self._latest = kept.at
            for record in map(journal.decode, records):
                pool.replay(record)
                self._latest = max(self._latest, getattr(record, "now", 0.0))
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            raise damaged(self.folder.path / f"{JOURNAL}{self.folder.generation}", repr(error)) from error
        return pool

    def _use(self, policy_of: Callable[[str], TargetPolicy], now: float) -> bool:
        """Use the targets as is said now. Return whether that is another way than before."""
        others = [(each, policy_of(name)) for name, each in self.pool.targets.items()]
        for target, policy in (changed := [(each, policy) for each, policy in others if each.policy != policy]):
            target.set_policy(policy, now)
        return bool(changed)

    def _set_back(self) -> float:
        """Return by how much the clock was set back since the last use: leases and rests would last longer."""
        back_s = self._latest - self._clock()
        if back_s > SET_BACK_MIN_S:
            log.warning("the clock was set back by %.0f s: the pool goes on as if it had not been", back_s)
        return max(0.0, back_s)

    def _image(self) -> bytes:
        return pool_image.encode(pool_image.image_of(self.pool, self.now()))

    def _write(self, record: bytes) -> None:
        if self.folder.is_whole:
            self.folder.append(record)
        if not self.folder.is_whole:
            self.folder.keep(self._image())  # the change is in it
        elif self.folder.is_long:
            try:
                self.folder.keep(self._image())
            except StateError as error:
                self.folder.put_off()
                log.warning("the journal of the pool grows: %s", error)


class Owner:
    """The pool of a folder as this process lends from it, for itself and others."""

    def __init__(self, keeper: Keeper, pool: LocalPool) -> None:
        self.pool = pool
        self._keeper = keeper
        self._served = Served(keeper.folder.socket, pool)

    async def start(self) -> None:
        """Let other processes in."""
        await self._served.start()

    async def close(self) -> None:
        """Leave the folder to the next one."""
        await self._served.close()
        await self.pool.close()
        self._keeper.close()


class EmbeddedPool:
    """See `proxies.ports.ProxyPool`. Make it with `embedded_pool`."""

    def __init__(
        self,
        path: Path,
        policy_of: Callable[[str], TargetPolicy],
        now: Callable[[], float],
        draw: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._policy_of = policy_of
        self._now = now
        self._draw = draw
        self._say = say
        self._owner: Owner | None = None
        self._remote: RemotePool | None = None
        self._joining = asyncio.Lock()
        self._is_closed = False

    @property
    def owns(self) -> bool:
        """Whether the folder is owned by this process."""
        return self._owner is not None

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """See `ProxyPool`."""
        known = list(proxies)
        return await self._do(lambda pool: pool.add(known, unchecked=unchecked))

    async def remove(self, keys: Iterable[str]) -> int:
        """See `ProxyPool`."""
        known = list(keys)
        return await self._do(lambda pool: pool.remove(known))

    async def count(self) -> int:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.count())

    async def forget_dead(self, kept_s: float) -> list[str]:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.forget_dead(kept_s))

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        """See `ProxyPool`."""
        if self._owner is not None:
            return await self._owner.pool.acquire(target, count, request, lease_s=lease_s, wait_s=wait_s)
        until = time.monotonic() + wait_s

        def ask(pool: ProxyPool) -> Awaitable[list[ProxyLease]]:
            left_s = max(0.0, until - time.monotonic())
            return pool.acquire(target, count, request, lease_s=lease_s, wait_s=left_s)

        return await self._do(ask)

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.renew(lease, lease_s))

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.release(lease, outcomes))

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.ban(target, key, until, reason))

    async def unban(self, target: str, key: str) -> bool:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.unban(target, key))

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.report_check(key, outcome, exit_ip))

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.proxies(target))

    async def targets(self) -> list[TargetView]:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.targets())

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """See `ProxyPool`."""
        return await self._do(lambda pool: pool.explain(target, request))

    async def close(self) -> None:
        """See `ProxyPool`."""
        self._is_closed = True
        async with self._joining:
            owner, self._owner = self._owner, None
            remote, self._remote = self._remote, None
        if owner is not None:
            await owner.close()
        if remote is not None:
            await remote.close()

    async def join(self) -> ProxyPool:
        """Return the pool that this process owns, or that of who does. Raises `StateError`."""
        async with self._joining:
            if self._is_closed:
                raise NoProxy(CLOSED)
            if self._owner is None and self._remote is None:
                await self._join()
            pool = self._remote if self._owner is None else self._owner.pool
            assert pool is not None
            return pool

    async def _do(self, act: Callable[[ProxyPool], Awaitable[Answer]]) -> Answer:
        """Do it, and again with the next owner when this one ends meanwhile."""
        if self._owner is not None:
            return await act(self._owner.pool)
        while True:
            pool = await self.join()
            try:
                return await act(pool)
            except OwnerGone:
                if self._remote is pool:
                    self._remote = None
                    await pool.close()

    async def _join(self) -> None:
        """Own the folder, or reach who does; between an owner's end and the next one's beginning it is neither."""
        started, pause_s, is_told = time.monotonic(), AGAIN_S, False
        while True:
            try:
                self._owner = await self._owned()
                return
            except StateLocked:
                if time.monotonic() - started > JOIN_MAX_S:
                    raise
            with suppress(OSError, EOFError):
                self._remote = await connected(self._path / "socket")
                return
            if not is_told and time.monotonic() - started > SILENT_MAX_S:
                is_told = True
                who = f"process {owner_of(self._path)}, which has it open, to answer"
                self._say(f"{self._path}: waiting for {who}, {JOIN_MAX_S:g} s at most")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)

    async def _owned(self) -> Owner:
        reading = asyncio.ensure_future(asyncio.to_thread(Keeper, self._path, self._policy_of, self._now))
        try:
            keeper = await asyncio.shield(reading)
        except asyncio.CancelledError:
            reading.add_done_callback(_dropped)
            raise
        owner = Owner(keeper, LocalPool(self._policy_of, keeper.now, self._draw, keeper.pool))
        try:
            await owner.start()
        except BaseException:
            await owner.close()
            raise
        return owner


def _dropped(reading: asyncio.Future[Keeper]) -> None:
    """Nobody waits for it any more."""
    if not reading.cancelled() and reading.exception() is None:
        reading.result().close()


def _refuse(_: bytes) -> None:
    raise NoProxy(CLOSED)


async def embedded_pool(
    path: Path,
    say: Callable[[str], None],
    policy_of: Callable[[str], TargetPolicy] = lambda _: TargetPolicy(),
    *,
    now: Callable[[], float] | None = None,
    draw: Callable[[], float] = clock.chance,
) -> EmbeddedPool:
    """Return the pool in a folder, a new one if there is none.

    Raises `ForeignState`, `NewerState` or `StorageError` for what cannot be used, `StateLocked` when its owner does not
    answer.
    """
    pool = EmbeddedPool(path, policy_of, now or clock.Clock().now, draw, say)
    await pool.join()
    return pool
