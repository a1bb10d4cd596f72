"""One connection, of a client or to a proxy: bytes for whoever handles them, or straight into another connection.

All connections read into one buffer, because what was read is sent before the next one reads: nothing is copied between
the two sides of a tunnel, and a tunnel that stands still holds no memory. Only when the other side does not take all at
once does it keep that buffer, and the next one reads into a new one; that happens once, since then nothing is read for
it any more (back-pressure).
"""

from __future__ import annotations

import asyncio

READ_MAX = 262_144
"""Bytes that are read at once."""


class _Shared:
    """The buffer that all read into."""

    view = memoryview(bytearray(READ_MAX))


class Wire(asyncio.BufferedProtocol):
    """See the module. `into`: the other side of a tunnel; `moved`: bytes that went there."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.into: Wire | None = None
        self.moved = 0
        self.closed = self.is_paused = False
        self.at_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no subclasses of asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to read to."""
        return _Shared.view

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        into = self.into
        if into is None:
            self.came(_Shared.view[:nbytes].tobytes())
            return
        self.moved += nbytes
        if into.closed:
            return
        into.transport.write(_Shared.view[:nbytes])
        if into.transport.get_write_buffer_size():
            _Shared.view = memoryview(bytearray(READ_MAX))

    def eof_received(self) -> bool:
        """Nothing more comes. Return whether the other direction goes on."""
        self.at_end = True
        into = self.into
        if into is None:
            return self.ended()
        if into.closed:
            return False
        if into.at_end or not into.transport.can_write_eof():
            into.transport.close()
            return False
        into.end_writing()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.closed = True
        if self.into is not None:
            self.into.transport.close()
        self.lost("lost" if exc else "closed")

    def pause_writing(self) -> None:
        """It takes no more for now."""
        if self.into is not None:
            self.into.pause()
        else:
            self.writable(yes=False)

    def resume_writing(self) -> None:
        """It does again."""
        if self.into is not None:
            self.into.resume()
        else:
            self.writable(yes=True)

    def send(self, data: bytes) -> None:
        """Write; who is gone gets nothing."""
        if not self.closed:
            self.transport.write(data)

    def end_writing(self) -> None:
        """Tell the other end that no more comes, behind what is written."""
        try:
            self.transport.write_eof()
        except OSError:  # it went just now
            self.transport.abort()

    def pause(self) -> None:
        """Read nothing for now."""
        if not self.is_paused and not self.closed and not self.transport.is_closing():
            self.is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused and not self.closed and not self.transport.is_closing():
            self.is_paused = False
            self.transport.resume_reading()

    def join(self, other: Wire) -> None:
        """Be the two sides of a tunnel from now on; both are read."""
        for one, two in ((self, other), (other, self)):
            one.into = two
            # What does not go at once is not kept beside it. Over TLS nothing at all would be "too much" already.
            one.transport.set_write_buffer_limits(1 if one.transport.get_extra_info("sslcontext") else 0, 0)
        for each in (self, other):
            each.resume()

    def came(self, data: bytes) -> None:
        """Bytes came, and there is no tunnel."""

    def ended(self) -> bool:
        """No more bytes come, and there is no tunnel. Return whether we still write."""
        return False

    def lost(self, why: str) -> None:
        """The connection is over: `why` is a participle."""

    def writable(self, *, yes: bool) -> None:
        """Whether it takes more bytes now, and there is no tunnel."""
