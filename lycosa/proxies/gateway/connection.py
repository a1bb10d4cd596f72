"""A TCP connection from a client or to a proxy. Received bytes go to a handler, or to another connection (a tunnel).

All connections can share one read buffer, because received bytes are passed on before the next connection reads.
A tunnel therefore copies no bytes, and an idle tunnel needs no buffer. If a side cannot write all bytes at once, it
keeps this buffer, and all connections share a new one. The other side of its tunnel then stops reading for a while,
so each side keeps at most one buffer.
"""

from __future__ import annotations

import asyncio

READ_MAX = 262_144


class _SharedBuffer:
    view = memoryview(bytearray(READ_MAX))


class BufferedConnection(asyncio.BufferedProtocol):
    """A TCP connection. `forward_to`: the other side of its tunnel; `forwarded`: the number of bytes for that side."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.forward_to: BufferedConnection | None = None
        self.forwarded = 0
        self.closed = self.is_paused = False
        self.at_eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's transports do not subclass asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SharedBuffer.view

    def buffer_updated(self, nbytes: int) -> None:
        other = self.forward_to
        if other is None:
            self.on_data(_SharedBuffer.view[:nbytes].tobytes())
            return
        self.forwarded += nbytes
        if other.closed:
            return
        other.transport.write(_SharedBuffer.view[:nbytes])
        if other.transport.get_write_buffer_size():  # the transport still refers to these bytes
            _SharedBuffer.view = memoryview(bytearray(READ_MAX))

    def eof_received(self) -> bool:
        """Return whether the connection stays open for writing."""
        self.at_eof = True
        other = self.forward_to
        if other is None or other.closed:
            return False
        if other.at_eof or not other.transport.can_write_eof():
            other.transport.close()
            return False
        other.send_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.forward_to is not None:
            self.forward_to.transport.close()
        self.on_close("lost" if exc else "closed")

    def pause_writing(self) -> None:
        if self.forward_to is not None:
            self.forward_to.pause()
        else:
            self.on_writable(is_writable=False)

    def resume_writing(self) -> None:
        if self.forward_to is not None:
            self.forward_to.resume()
        else:
            self.on_writable(is_writable=True)

    def send(self, data: bytes) -> None:
        if not self.closed:
            self.transport.write(data)

    def send_eof(self) -> None:
        """Close the writing side after all data is written."""
        try:
            self.transport.write_eof()
        except OSError:  # the connection has just been lost
            self.transport.abort()

    def pause(self) -> None:
        if not self.is_paused and not self.closed and not self.transport.is_closing():
            self.is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.is_paused and not self.closed and not self.transport.is_closing():
            self.is_paused = False
            self.transport.resume_reading()

    def join(self, other: BufferedConnection) -> None:
        """Make the two connections the two sides of a tunnel."""
        for source, sink in ((self, other), (other, self)):
            source.forward_to = sink
            # With a limit of 0, any unsent byte pauses reading from the other side, so no data piles up. With TLS, 0
            # would pause reading forever, so the limit is 1.
            source.transport.set_write_buffer_limits(1 if source.transport.get_extra_info("sslcontext") else 0, 0)
        self.resume()
        other.resume()

    def on_data(self, data: bytes) -> None:
        """Called with received bytes, except in a tunnel."""

    def on_close(self, how: str) -> None:
        """Called at the end of the connection. `how` is "lost" or "closed"."""

    def on_writable(self, *, is_writable: bool) -> None:
        """Called when the write buffer is full and when it has drained, except in a tunnel."""
