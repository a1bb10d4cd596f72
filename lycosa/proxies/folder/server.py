"""The owner's end of the socket of a pool in a folder: other processes borrow from the pool, too (`messages`).

Clients are bounded in number, and so are the calls of each and what it has not read. A fault of a client ends its
connection and nothing else: what it was lent comes back with its time, as if it had crashed, but for what it never
heard of, which comes back at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import LycosaError, UsageError
from lycosa.infra.unix_socket import LENGTH, listen, read_frame
from lycosa.proxies.folder.messages import (
    METHODS,
    PART,
    VERSION,
    Answer,
    Asked,
    Call,
    Hello,
    Refusal,
    decode_asked,
    encode,
)
from lycosa.proxies.ports import ProxyLease, ProxyPool

log = logging.getLogger(__name__)

CLIENTS_MAX = 1_000
CALLS_MAX = 10_000
"""Calls of one client under way: most of them wait for a proxy."""

UNREAD_MAX = 64 << 20
"""Bytes of answers that a client has not read; one that has more is dropped."""


class Served:
    """Answers at the socket `path` from `start` to `close`."""

    def __init__(self, path: Path, pool: ProxyPool) -> None:
        self._path = path
        self._pool = pool
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def start(self) -> None:
        """Listen. Where there can be no socket (the file system has none) that is logged: no other process comes in."""
        try:
            listening = listen(self._path, CLIENTS_MAX)
        except OSError as error:
            log.warning("%s: no socket for other processes: %s", self._path, error.strerror or error)
            return
        self._server = await asyncio.start_unix_server(self._attend, sock=listening, start_serving=False)
        await self._server.start_serving()  # may be cancelled, and then `close` has to know the server

    async def close(self) -> None:
        """Drop all clients; they look for the next owner."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._path.unlink()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_closed:  # it was accepted just before, and nobody would drop it
            writer.transport.abort()
            return
        self._clients.add(task)
        client = Client(self._pool, writer)
        try:
            if len(self._clients) > CLIENTS_MAX:
                client.say(encode(Refusal(0, "StateLocked", f"{CLIENTS_MAX:,} processes use this pool already")))
                await writer.drain()
                return
            client.say(encode(Hello(VERSION, os.getpid())))
            while True:
                client.heard(await read_frame(reader))
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            log.debug("a client of the socket was dropped: %r", error)
        except asyncio.CancelledError:
            pass  # the pool is closed
        finally:
            self._clients.discard(task)
            await client.close()


class Client:
    """One of them, and its calls under way."""

    def __init__(self, pool: ProxyPool, writer: asyncio.StreamWriter) -> None:
        self._pool = pool
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}

    def say(self, body: bytes) -> None:
        """Send a frame; drop a client that reads too little."""
        if self._writer.transport.is_closing():
            return
        self._writer.write(LENGTH.pack(len(body)) + body)
        if self._writer.transport.get_write_buffer_size() > UNREAD_MAX:
            self._writer.transport.abort()

    def heard(self, body: bytes) -> None:
        """Begin what it wants. Raises `MsgspecError` or ValueError for what is not of the form."""
        said = decode_asked(body)
        if not isinstance(said, Call):
            if said.number in self._calls:
                self._calls[said.number].cancel()
        elif said.number in self._calls:
            raise ValueError(f"two calls {said.number}")
        elif len(self._calls) >= CALLS_MAX:
            message = f"{CALLS_MAX:,} calls of one process at a time: wait for some of them"
            self.say(encode(Refusal(said.number, "UsageError", message)))
        else:
            task = self._calls[said.number] = asyncio.create_task(self._served(said))
            task.add_done_callback(lambda _: self._calls.pop(said.number))

    async def close(self) -> None:
        """Drop it, and what it waits for."""
        self._writer.transport.abort()
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _served(self, call: Call) -> None:
        try:
            value = await self._done(call)
        except asyncio.CancelledError:
            self.say(encode(Refusal(call.number, "NoProxy", "nobody waits for it")))
            raise
        except LycosaError as error:
            self.say(encode(Refusal(call.number, type(error).__name__, str(error))))
            return
        except Exception:
            log.exception("a call over the socket of the pool failed")
            self.say(encode(Refusal(call.number, "StateError", "the call failed: the log of the owner says why")))
            return
        if call.method == "acquire" and self._writer.transport.is_closing():
            await self._give_back(value)
            return
        for part, more in _parts(value):
            self.say(encode(Answer(call.number, msgspec.Raw(encode(part)), more)))

    async def _done(self, call: Call) -> Any:
        if call.method not in METHODS:
            raise UsageError(f"this Lycosa has no {call.method!r}: both processes should be of one version")
        try:
            arguments = msgspec.msgpack.decode(call.arguments, type=METHODS[call.method][0])
        except msgspec.MsgspecError as error:
            raise UsageError(f"{call.method}: {error}") from None
        if call.method == "acquire":
            target, count, wanted, lease_s, wait_s = arguments
            return await self._pool.acquire(target, count, wanted.request, lease_s=lease_s, wait_s=wait_s)
        if call.method == "add":
            return await self._pool.add(arguments[0], unchecked=arguments[1])
        arguments = tuple(each.request if isinstance(each, Asked) else each for each in arguments)
        return await getattr(self._pool, call.method)(*arguments)

    async def _give_back(self, lease: list[ProxyLease]) -> None:
        for each in lease:
            await self._pool.release(each)


def _parts(value: Any) -> list[tuple[Any, bool]]:
    """Return a value in parts that fit into frames, and of each whether it is not the last."""
    if not isinstance(value, list) or len(value) <= PART:
        return [(value, False)]
    return [(value[start : start + PART], start + PART < len(value)) for start in range(0, len(value), PART)]
