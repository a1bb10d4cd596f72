"""A pool in a folder that another process owns: `proxies.ports.ProxyPool` through the socket of the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import NewerState, NoProxy, StateError, StateLocked
from lycosa.infra.unix_socket import LENGTH, connect, error_named, read_frame
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder import messages as frames
from lycosa.proxies.folder.folder import owner_of
from lycosa.proxies.folder.messages import METHODS, PART, Answer, Call, Cancel, Hello, Refusal, asked, encode
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView

ANSWER_MAX_S = 30.0
"""An owner that has not answered after so long, beside what a call waits for, hangs or was stopped."""

HELLO_MAX_S = 5.0


class OwnerGone(StateError):
    """The process that owned the pool has ended."""


class RemotePool:
    """See `proxies.ports.ProxyPool`; every method here is documented there, and may raise `OwnerGone`. Made by
    `connected`."""

    def __init__(self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, list[Any]] = {}
        self._left: set[int] = set()
        self._hearing: asyncio.Task[None] | None = None
        self._is_closed = False
        self.pid = 0

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """See `ProxyPool`."""
        added, waiting = 0, iter(proxies)
        while some := list(islice(waiting, PART)):
            added += await self._ask("add", some, unchecked)
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        """See `ProxyPool`."""
        removed, waiting = 0, iter(keys)
        while some := list(islice(waiting, PART)):
            removed += await self._ask("remove", some)
        return removed

    async def count(self) -> int:
        """See `ProxyPool`."""
        number: int = await self._ask("count")
        return number

    async def forget_dead(self, kept_s: float) -> list[str]:
        """See `ProxyPool`."""
        gone: list[str] = await self._ask("forget_dead", kept_s)
        return gone

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
        lease: list[ProxyLease] = await self._ask(
            "acquire", target, count, asked(request), lease_s, wait_s, wait_s=wait_s
        )
        return lease

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """See `ProxyPool`."""
        until: float | None = await self._ask("renew", lease, lease_s)
        return until

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        done: bool = await self._ask("release", lease, list(outcomes))
        return done

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """See `ProxyPool`."""
        done: bool = await self._ask("ban", target, key, until, reason)
        return done

    async def unban(self, target: str, key: str) -> bool:
        """See `ProxyPool`."""
        done: bool = await self._ask("unban", target, key)
        return done

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """See `ProxyPool`."""
        done: bool = await self._ask("report_check", key, outcome, exit_ip)
        return done

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """See `ProxyPool`."""
        found: list[ProxyView] = await self._ask("proxies", target)
        return found

    async def targets(self) -> list[TargetView]:
        """See `ProxyPool`."""
        found: list[TargetView] = await self._ask("targets")
        return found

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """See `ProxyPool`."""
        found: list[ProxyExplanation] = await self._ask("explain", target, asked(request))
        return found

    async def close(self) -> None:
        """See `ProxyPool`."""
        self._is_closed = True
        self._fail(NoProxy(CLOSED))
        self._writer.transport.abort()
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)

    async def greet(self) -> None:
        """Hear who is there. Raises `NewerState` for another version, `OSError` or EOFError when nobody is."""
        try:
            async with asyncio.timeout(HELLO_MAX_S):
                said = frames.decode_said(await read_frame(self._reader))
        except TimeoutError:
            who = f"process {owner_of(self._path.parent)}, which owns the pool, does not answer"
            raise StateLocked(f"{self._path}: {who}: it hangs or was stopped") from None
        except (ValueError, msgspec.MsgspecError):
            raise self._stranger() from None
        if isinstance(said, Refusal):
            raise error_named(said.kind, said.message)
        if not isinstance(said, Hello):
            raise self._stranger()
        if said.version != frames.VERSION:
            raise NewerState(f"{self._path}: process {said.pid} runs another version of Lycosa: use that one here too")
        self.pid = said.pid
        self._hearing = asyncio.create_task(self._hear())

    async def _ask(self, method: str, *arguments: object, wait_s: float = 0.0) -> Any:
        if self._is_closed:
            raise NoProxy(CLOSED)
        if self._hearing is None or self._hearing.done():
            raise self._gone()
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._say(encode(Call(number, method, msgspec.Raw(encode(arguments)))))
        try:
            async with asyncio.timeout(wait_s + ANSWER_MAX_S):
                value = await waiting
        except TimeoutError:
            self._leave(number, method)
            who = f"process {self.pid}, which owns the pool, has not answered for {ANSWER_MAX_S:g} s"
            raise StateLocked(f"{self._path}: {who}: it hangs or was stopped") from None
        except asyncio.CancelledError:
            self._leave(number, method)
            raise
        finally:
            self._waiting.pop(number, None)
        return self._read(method, value)

    def _leave(self, number: int, method: str) -> None:
        """Wait no more; what is lent all the same goes back when it comes."""
        waiting = self._waiting[number]
        if method != "acquire":
            return
        if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
            self._give_back(waiting.result())
        else:
            self._left.add(number)
            self._say(encode(Cancel(number)))

    def _give_back(self, value: list[msgspec.Raw]) -> None:
        """Send back what nobody waits for any more; the answer is of no interest."""
        for lease in self._read("acquire", value):
            self._number += 1
            self._say(encode(Call(self._number, "release", msgspec.Raw(encode((lease, ()))))))

    def _say(self, body: bytes) -> None:
        if self._writer.transport.is_closing():
            return
        self._writer.write(LENGTH.pack(len(body)) + body)

    async def _hear(self) -> None:
        """Hand answers to who waits for them, until the owner goes."""
        try:
            while True:
                said = frames.decode_said(await read_frame(self._reader))
                if not isinstance(said, Hello):
                    self._take(said)
        except (OSError, EOFError):
            self._fail(self._gone())
        except (ValueError, msgspec.MsgspecError):
            self._fail(self._stranger())
        finally:
            self._writer.transport.abort()

    def _take(self, said: Answer | Refusal) -> None:
        if isinstance(said, Answer):
            self._parts.setdefault(said.number, []).append(said.value)
            if said.more:
                return
        value = self._parts.pop(said.number, [])
        waiting = self._waiting.get(said.number)
        if said.number in self._left:
            self._left.discard(said.number)
            self._give_back(value)
        elif waiting is not None and not waiting.done():
            if isinstance(said, Refusal):
                waiting.set_exception(error_named(said.kind, said.message))
            else:
                waiting.set_result(value)

    def _read(self, method: str, parts: list[msgspec.Raw]) -> Any:
        try:
            values = [msgspec.msgpack.decode(part, type=METHODS[method][1]) for part in parts]
        except msgspec.MsgspecError:
            raise self._stranger() from None
        return values[0] if len(values) == 1 else [each for value in values for each in value]

    def _fail(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _gone(self) -> OwnerGone:
        return OwnerGone(f"{self._path}: process {self.pid}, which owned the pool, has ended")

    def _stranger(self) -> StateLocked:
        return StateLocked(f"{self._path}: who listens there does not speak like a pool of proxies: stop it")


async def connected(path: Path) -> RemotePool:
    """Return the pool of the owner behind a socket. Raises OSError or EOFError when nobody is there, `StateError`."""
    reader, writer = await connect(path)
    remote = RemotePool(path, reader, writer)
    try:
        await remote.greet()
    except BaseException:
        writer.transport.abort()
        raise
    return remote
