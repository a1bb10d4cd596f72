"""Connections to proxies: opened, asked for a connection to a host where they have to be, kept for the next request."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from lycosa.core.errors import ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.handshakes import Handshake, handshake_for
from lycosa.proxies.core.gateway.limits import IDLE_CONNECTION_S, IDLE_CONNECTIONS_MAX, IDLE_PER_PROXY_MAX, Limits
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway.connection import Wire

Key = tuple[str, str]
"""A proxy, and the host behind it; "" when it takes requests for all hosts."""

FLUSH_S = 10.0
"""A proxy has so long to take the last bytes of a tunnel."""

NOT_REACHED = "proxy not reached"


class Listener(Protocol):
    """Who gets what comes from a proxy."""

    def came(self, data: bytes) -> None:
        """Bytes came."""
        ...

    def lost(self, why: str) -> None:
        """Nothing more comes: the connection was closed, or lost."""
        ...

    def writable(self, *, yes: bool) -> None:
        """Whether it takes more bytes now."""
        ...


class Upstream(Wire):
    """One connection. `latency_s` is what TCP and TLS took, None when it was used before."""

    def __init__(self) -> None:
        super().__init__()
        self.key: Key = ("", "")
        self.latency_s: float | None = None
        self.is_reused = False
        self.idle_since = 0.0
        self._listener: Listener | None = None
        self._on_idle_end: Callable[[Upstream], None] | None = None

    def came(self, data: bytes) -> None:
        """Give it to who listens; while nobody does, nothing may come."""
        if self._listener is not None:
            self._listener.came(data)
        else:
            self.abort()

    def ended(self) -> bool:
        """The transport closes itself now."""
        self._end("closed")
        return False

    def lost(self, why: str) -> None:
        """It is over."""
        self._end(why)

    def writable(self, *, yes: bool) -> None:
        """It takes no more, or does again."""
        if self._listener is not None:
            self._listener.writable(yes=yes)

    def listen(self, listener: Listener | None) -> None:
        """All that comes is for this one."""
        self._listener = listener

    def rest(self, now: float, on_end: Callable[[Upstream], None]) -> None:
        """Nobody uses it; `on_end` is told when it ends."""
        self._listener = None
        self.idle_since = now
        self.latency_s, self.is_reused = None, True
        self._on_idle_end = on_end

    def wake(self) -> None:
        """Somebody uses it again."""
        self._on_idle_end = None

    def abort(self) -> None:
        """End it, whatever is under way."""
        self._listener = None
        if self._on_idle_end is not None:
            self._on_idle_end(self)
        self.closed = True
        self.transport.abort()

    def finish(self) -> None:
        """End it when it has taken what was written, or soon."""
        self._listener = None
        if not self.closed:
            self.transport.close()
            asyncio.get_running_loop().call_later(FLUSH_S, self.transport.abort)

    def _end(self, why: str) -> None:
        self.closed = True
        if self._on_idle_end is not None:
            self._on_idle_end(self)
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.lost(why)


class _Shaking:
    """Who listens during a handshake."""

    def __init__(self, upstream: Upstream, handshake: Handshake, done: asyncio.Future[None]) -> None:
        self._upstream = upstream
        self._handshake = handshake
        self._done = done

    def came(self, data: bytes) -> None:
        try:
            out = self._handshake.receive(data)
        except ProxyFailed as error:
            self._fail(error)
            return
        if out:
            self._upstream.send(out)
        if self._handshake.done and not self._done.done():
            self._upstream.pause()
            self._upstream.listen(None)
            self._done.set_result(None)

    def lost(self, why: str) -> None:
        self._fail(ProxyFailed(f"proxy {why} the connection when it was asked for one"))

    def writable(self, *, yes: bool) -> None:
        """A handshake is small."""

    def _fail(self, error: ProxyFailed) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Dialer:
    """Opens connections. `tls` is for proxies that are spoken to over TLS."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls

    async def open(self, proxy: Proxy) -> Upstream:
        """Return a connection to a proxy. Raises `ProxyFailed`."""
        loop = asyncio.get_running_loop()
        began = perf_counter()  # the loop's time stands still within a turn of it
        context = self._context() if proxy.scheme == "https" else None
        host = proxy.host.strip("[]")
        try:
            async with asyncio.timeout(self._limits.connect_s):
                _, upstream = await loop.create_connection(
                    Upstream, host, proxy.port, ssl=context, server_hostname=host if context else None
                )
        except TimeoutError:
            raise ProxyFailed(f"{NOT_REACHED} within {self._limits.connect_s:g} s") from None
        except ssl.SSLError as error:
            raise ProxyFailed(f"{NOT_REACHED}: TLS failed ({(error.reason or 'handshake').lower()})") from None
        except OSError as error:
            raise ProxyFailed(f"{NOT_REACHED}: {(error.strerror or 'no connection').lower()}") from None
        upstream.latency_s = perf_counter() - began
        return upstream

    async def through(self, proxy: Proxy, to: Destination) -> tuple[Upstream, bytes]:
        """Return a connection to a host through a proxy, paused, and what came over it. Raises `ProxyFailed`."""
        handshake = handshake_for(proxy, to)
        upstream = await self.open(proxy)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        upstream.listen(_Shaking(upstream, handshake, done))
        upstream.send(handshake.opening)
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                await done
        except TimeoutError:
            upstream.abort()
            raise ProxyFailed(f"proxy did not connect within {self._limits.handshake_s:g} s") from None
        except BaseException:
            upstream.abort()
            raise
        return upstream, handshake.rest

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class Kept:
    """Connections that wait for the next request, the one that was used last first."""

    def __init__(self) -> None:
        self._idle: OrderedDict[Upstream, None] = OrderedDict()
        self._by_key: dict[Key, list[Upstream]] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: Key) -> Upstream | None:
        """Return one, None if there is none."""
        waiting = self._by_key.get(key)
        if not waiting:
            return None
        upstream = waiting[-1]
        self._out(upstream)
        return upstream

    def keep(self, upstream: Upstream, now: float) -> None:
        """Take one back, or end it when there are enough."""
        if upstream.closed or len(self._by_key.get(upstream.key, ())) >= IDLE_PER_PROXY_MAX:
            upstream.abort()
            return
        upstream.rest(now, self._out)
        self._by_key.setdefault(upstream.key, []).append(upstream)
        self._idle[upstream] = None
        if len(self._idle) > IDLE_CONNECTIONS_MAX:
            next(iter(self._idle)).abort()

    def sweep(self, now: float) -> None:
        """End those that waited for too long."""
        while self._idle and (oldest := next(iter(self._idle))).idle_since < now - IDLE_CONNECTION_S:
            oldest.abort()

    def close(self) -> None:
        """End all."""
        for upstream in list(self._idle):
            upstream.abort()

    def _out(self, upstream: Upstream) -> None:
        upstream.wake()
        self._idle.pop(upstream, None)
        waiting = self._by_key.get(upstream.key, [])
        if upstream in waiting:
            waiting.remove(upstream)
        if not waiting:
            self._by_key.pop(upstream.key, None)
