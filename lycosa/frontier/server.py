"""The owner's end of the socket STATE/socket: answers `lycosa frontier` while the crawl runs (see `messages`).

It runs on the crawl's loop and may not hold it up: a call touches at most SLICE_ROWS rows, then its client waits as
long as the call took; what needs the whole state at once is refused. Clients are bounded in number, a client that does
not read is dropped, and no fault of a client reaches the crawl.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import LycosaError, StorageError, UsageError
from lycosa.frontier import messages
from lycosa.frontier.messages import METHODS, SLICE_ROWS, WHOLE, Answer, Call, Hello, Refusal, encode
from lycosa.frontier.ports import FrontierOperations
from lycosa.infra.unix_socket import FRAME_MAX, listen, read_frame, write_frame

log = logging.getLogger(__name__)

CLIENTS_MAX = 16
"""Connections at a time. One more takes the place of the one that was silent the longest."""

WRITE_MAX_S = 10.0
"""A client that has not read an answer after so long is dropped."""

SLICED = {"hosts": 50, "rows": SLICE_ROWS, "requeue": 100}
"""What is asked for with a limit, the last argument, and the most there is in one answer."""


@asynccontextmanager
async def served(path: Path, operations: FrontierOperations) -> AsyncIterator[None]:
    """Answer at the socket `path` while the block runs. The caller owns the state.

    Where there can be no socket (the file system has none) that is logged, and the crawl goes on without it.
    """
    try:
        listening = listen(path, CLIENTS_MAX)
    except OSError as error:
        log.warning("%s: no socket for `lycosa frontier`: %s", path, error.strerror or error)
        yield
        return
    clients = Clients(operations)
    server = await asyncio.start_unix_server(clients.attend, sock=listening)
    try:
        yield
    finally:
        server.close()
        with suppress(OSError):
            path.unlink()  # noqa: ASYNC240  at the end, once
        await clients.close()


class Clients:
    """Who is connected; one call of each is served at a time."""

    def __init__(self, operations: FrontierOperations) -> None:
        self._operations = operations
        self._silent: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}  # the longest silent one first
        self._busy: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._is_closed = False

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it leaves or is dropped."""
        task = asyncio.current_task()
        assert task is not None
        if self._is_closed:  # it was accepted just before, and the state is no longer ours
            writer.transport.abort()
            return
        try:
            if not self._make_room():
                await _say(
                    writer, encode(Refusal("StateLocked", f"{CLIENTS_MAX} others ask the crawl: try again later"))
                )
                return
            self._silent[task] = writer
            await self._attend(task, reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, msgspec.MsgspecError) as error:
            log.debug("a client of the socket was dropped: %r", error)
        except Exception:
            log.exception("a request over the socket failed; the crawl goes on")
        finally:
            self._silent.pop(task, None)
            self._busy.pop(task, None)
            writer.transport.abort()

    async def close(self) -> None:
        """Drop all clients, and wait for what is being done for them."""
        self._is_closed = True
        clients = {**self._silent, **self._busy}
        for writer in clients.values():
            writer.transport.abort()
        await asyncio.gather(*clients, return_exceptions=True)

    def _make_room(self) -> bool:
        if len(self._silent) + len(self._busy) < CLIENTS_MAX:
            return True
        if not self._silent:
            return False
        task, writer = next(iter(self._silent.items()))
        del self._silent[task]
        writer.transport.abort()
        return True

    async def _attend(
        self, task: asyncio.Task[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await _say(writer, encode(Hello(messages.VERSION, os.getpid())))
        loop = asyncio.get_running_loop()
        while True:
            body = await read_frame(reader)
            self._busy[task] = self._silent.pop(task, writer)
            started = loop.time()
            answer = await self._answer(messages.decode_call(body))
            took_s = loop.time() - started
            await _say(writer, answer)
            await asyncio.sleep(took_s)  # the crawl gets at least half of the time
            self._silent[task] = self._busy.pop(task)

    async def _answer(self, call: Call) -> bytes:
        try:
            if call.method not in METHODS:
                raise UsageError(f"this Lycosa has no {call.method!r}: both should be of one version")
            arguments = msgspec.msgpack.decode(call.arguments, type=METHODS[call.method][0])
            return await self._done(call.method, arguments)
        except LycosaError as error:
            return encode(Refusal(type(error).__name__, str(error)))

    async def _done(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        if method == "verify":
            arguments = (log.info,)
        if method in WHOLE:
            log.warning("lycosa frontier %s: the crawl stands still for it", method)
        if method == "push" and len(arguments[0]) > SLICE_ROWS:
            raise UsageError(f"{len(arguments[0]):,} URLs at a time: push at most {SLICE_ROWS:,}")
        limit = max(1, min(arguments[-1], SLICED[method])) if method in SLICED else 1
        while True:
            if method in SLICED:
                arguments = (*arguments[:-1], limit)
            value = await getattr(self._operations, method)(*arguments)
            body = encode(Answer(msgspec.Raw(encode(value))))
            if len(body) <= FRAME_MAX:
                return body
            if limit == 1:
                raise StorageError(f"one answer has {len(body):,} bytes, more than fit into a frame ({FRAME_MAX:,})")
            limit //= 2  # only what reads has long answers


async def _say(writer: asyncio.StreamWriter, body: bytes) -> None:
    async with asyncio.timeout(WRITE_MAX_S):
        await write_frame(writer, body)
