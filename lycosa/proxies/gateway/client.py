"""One client's connection: what it speaks is told by its first byte, HTTP/1.1 or SOCKS 5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lycosa.core.errors import LycosaError
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.limits import BUFFER_MAX, LINGER_S
from lycosa.proxies.core.gateway.socks import VERSION
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.client_protocol import Speaker
from lycosa.proxies.gateway.connection import Wire
from lycosa.proxies.gateway.http_protocol import HttpSpeaker
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import Parts
from lycosa.proxies.gateway.socks_protocol import SocksSpeaker
from lycosa.proxies.gateway.tunnel import Tunnel

NOT_SERVED = {4: "SOCKS 4", 0x16: "TLS"}
"""First bytes of what is not spoken here."""


class Owner(Protocol):
    """Who knows all clients."""

    parts: Parts
    ending: bool

    def joined(self, client: Client) -> bool:
        """Take a client in. False when there are too many."""
        ...

    def left(self, client: Client) -> None:
        """A client is gone."""
        ...


class Client(Wire):
    """See the module. `deadline`, in the loop's time, is for a client that has nothing under way."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.address = ""
        self.deadline = 0.0
        self._owner = owner
        self._parts = owner.parts
        self._loop = asyncio.get_running_loop()
        self._speaker: Speaker | None = None
        self._task: asyncio.Task[None] | None = None
        self._tunnel: Tunnel | None = None
        self._moved_at = 0.0
        self._kept = b""
        self._done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self.wait(self._parts.limits.idle_s)
        if not self._owner.joined(self):
            self._done = True
            self.transport.abort()

    def came(self, data: bytes) -> None:
        """Bytes came."""
        if self._done:
            return
        if self._tunnel is not None:
            self._keep(data)
            return
        if self._speaker is None:
            if data[0] in NOT_SERVED:
                self._parts.counts.refused[NOT_SERVED[data[0]]] += 1
                self.transport.close()
                return
            self._speaker = (SocksSpeaker if data[0] == VERSION else HttpSpeaker)(self, self._parts)
        self._speaker.came(data)

    def ended(self) -> bool:
        """It sends no more: what is under way is answered."""
        return not self._done and self._speaker is not None and self._task is not None and self._speaker.ended()

    def lost(self, why: str) -> None:
        """It is gone."""
        self._done = True
        self._owner.left(self)
        if self._tunnel is not None and self._tunnel.is_open:
            self._tunnel.over()
        elif self._task is not None:
            self._task.cancel()

    def writable(self, *, yes: bool) -> None:
        """It takes no more, or does again."""
        if self._speaker is not None:
            self._speaker.writable(yes=yes)

    def sweep(self, now: float) -> None:
        """End what takes too long."""
        if self._tunnel is not None:
            if self._tunnel.is_open and self._tunnel.moved():
                self._moved_at = now
            elif self._tunnel.is_open and now >= self._moved_at + self._tunnel.idle_s:
                self._tunnel.end()
        elif self._task is not None:
            if self._speaker is not None and self._speaker.is_stuck(now):
                self.transport.abort()
        elif now >= self.deadline:
            if self._done or self._speaker is None:
                self.transport.abort()
            else:
                self._speaker.too_slow()

    # ------------------------------------------------------------------------------------------------ what speakers use

    @property
    def is_ending(self) -> bool:
        """Whether the gateway takes no more requests."""
        return self._owner.ending

    def wait(self, seconds: float) -> None:
        """Nothing is under way; something has to come within this time."""
        self.deadline = self._loop.time() + seconds

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this, which must not raise, one thing at a time."""
        assert self._task is None
        task = self._task = self._loop.create_task(work)
        task.add_done_callback(self._worked)

    def close(self) -> None:
        """Write no more. What still comes is thrown away for a while: closing at once would take the answer back."""
        if self._done:
            return
        self._done = True
        self.wait(LINGER_S)
        if self.at_end or self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.end_writing()
            self.resume()

    def cut(self) -> None:
        """End it at once."""
        self.transport.abort()

    def stop(self) -> None:
        """The gateway ends: go when nothing is under way."""
        if self._task is None:
            self.transport.close()

    def open(
        self,
        asked: GatewayUser,
        to: Destination,
        early: bytes,
        opened: Callable[[GatewayLease], bytes],
        failed: Callable[[LycosaError], None],
    ) -> None:
        """Open a tunnel; `early` is what came behind the request for it."""
        self._kept = early
        tunnel = self._tunnel = Tunnel(self._parts, self, asked, to, lambda hold: (opened(hold), self._early()))
        self.start(self._tunnelled(tunnel, failed))

    async def _tunnelled(self, tunnel: Tunnel, failed: Callable[[LycosaError], None]) -> None:
        try:
            await tunnel.run()
        except LycosaError as error:
            if tunnel.is_open:
                self.transport.abort()
            else:
                self._tunnel = None
                failed(error)
                if self._kept:  # it was for the other side
                    self.close()

    def _early(self) -> bytes:
        self._moved_at = self._loop.time()
        early, self._kept = self._kept, b""
        return early

    def _keep(self, data: bytes) -> None:
        """Keep what a client sends into a tunnel that is not open yet."""
        self._kept += data
        if len(self._kept) > BUFFER_MAX:
            self.pause()

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.transport.abort()
            self._loop.call_exception_handler({"message": "a request was given up", "exception": error})
        elif self._owner.ending and not self._done:
            self.close()
        elif self._speaker is not None and not self._done and self._tunnel is None:
            self._speaker.next()
