"""One end of the socket between two processes: messages out, gathered for one write; messages in, one after the other.

What is not of the form of `messages` ends the connection. A reader that is far behind does, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from lycosa.crawl.workers.messages import LENGTH, MESSAGE_MAX, Message, encoded

log = logging.getLogger(__name__)

UNREAD_MAX = 2 * MESSAGE_MAX
"""Bytes that wait for the other side: with more it is taken to hang."""


class Link(asyncio.Protocol):
    """Calls `hear` with each message, and `gone` once when the other side is not there any more."""

    def __init__(self, decode: Callable[[Any], Any], hear: Callable[[Any], None], gone: Callable[[], None]) -> None:
        self._decode = decode
        self._hear = hear
        self._gone = gone
        self._received = bytearray()
        self._waiting: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so."""
        self._transport = None
        self._gone()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._received += data
        start = 0
        try:
            while (body := self._next(start)) is not None:
                start += LENGTH.size + len(body)
                message = self._decode(body)
                body.release()
                self._hear(message)
        except (ValueError, msgspec.MsgspecError) as error:
            log.error("another process of this crawl does not speak our language: %s", error)  # noqa: TRY400
            self.close()
            return
        if start:
            del self._received[:start]

    def send(self, message: Message) -> None:
        """Say something, together with what else is said in this turn of the loop. Raises ValueError for too much."""
        self.send_bytes(encoded(message))

    def send_bytes(self, data: bytes) -> None:
        """Do what `send` does with an encoded message."""
        self._waiting.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what waits, now."""
        self._flushing = False
        if self._transport is None or not self._waiting:
            return
        self._transport.write(b"".join(self._waiting))
        self._waiting.clear()
        if self._transport.get_write_buffer_size() > UNREAD_MAX:
            log.error("another process of this crawl does not read what it is told: it is given up")
            self.close()

    def finish(self) -> None:
        """Send what waits, and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self, start: int) -> memoryview | None:
        if len(self._received) - start < LENGTH.size:
            return None
        (size,) = LENGTH.unpack_from(self._received, start)
        if size > MESSAGE_MAX:
            raise ValueError(f"a message of {size:,} bytes")
        begin = start + LENGTH.size
        if len(self._received) < begin + size:
            return None
        return memoryview(self._received)[begin : begin + size]
