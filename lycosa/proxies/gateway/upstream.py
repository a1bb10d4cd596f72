"""Connections to proxies, or through them to a host. Idle connections are kept for later requests."""

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
from lycosa.proxies.gateway.connection import BufferedConnection

UpstreamKey = tuple[str, str]
"""The key of a proxy, and the host and port of its tunnel; "" without a tunnel."""

FLUSH_TIMEOUT_S = 10.0
"""Time for a proxy to read the last bytes of a tunnel."""

NOT_REACHED = "proxy not reached"


class UpstreamListener(Protocol):
    """Receives the bytes from a proxy."""

    def on_data(self, data: bytes) -> None: ...

    def on_close(self, how: str) -> None:
        """Called at the end of the connection. `how` is "closed" or "lost"."""

    def on_writable(self, *, is_writable: bool) -> None: ...


class Upstream(BufferedConnection):
    """One connection to a proxy. `latency_s`: the seconds to connect by TCP and TLS; None for a reused connection."""

    def __init__(self) -> None:
        super().__init__()
        self.key: UpstreamKey = ("", "")
        self.latency_s: float | None = None
        self.is_reused = False
        self.idle_since = 0.0
        self._listener: UpstreamListener | None = None
        self._on_idle_end: Callable[[Upstream], None] | None = None

    def on_data(self, data: bytes) -> None:
        if self._listener is not None:
            self._listener.on_data(data)
        else:  # bytes on an idle connection would become part of the next response
            self.abort()

    def eof_received(self) -> bool:
        if self.forward_to is None:
            self._end("closed")
        return super().eof_received()

    def on_close(self, how: str) -> None:
        self._end(how)

    def on_writable(self, *, is_writable: bool) -> None:
        if self._listener is not None:
            self._listener.on_writable(is_writable=is_writable)

    def listen(self, listener: UpstreamListener | None) -> None:
        self._listener = listener

    def set_idle(self, now: float, on_end: Callable[[Upstream], None]) -> None:
        """`on_end` is called if the connection ends before `set_busy`."""
        self._listener = None
        self.idle_since = now
        self.latency_s, self.is_reused = None, True
        self._on_idle_end = on_end

    def set_busy(self) -> None:
        self._on_idle_end = None

    def abort(self) -> None:
        """Close at once, without calling the listener."""
        self._listener = None
        self._end("closed")
        self.transport.abort()

    def finish(self) -> None:
        """Close when the buffered bytes are written, or after FLUSH_TIMEOUT_S."""
        self._listener = None
        if not self.closed:
            self.transport.close()
            asyncio.get_running_loop().call_later(FLUSH_TIMEOUT_S, self.transport.abort)

    def _end(self, how: str) -> None:
        self.closed = True
        if self._on_idle_end is not None:
            self._on_idle_end(self)
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.on_close(how)


class _HandshakeListener:
    def __init__(self, upstream: Upstream, handshake: Handshake, done: asyncio.Future[None]) -> None:
        self._upstream = upstream
        self._handshake = handshake
        self._done = done

    def on_data(self, data: bytes) -> None:
        try:
            out = self._handshake.receive(data)
        except ProxyFailed as error:
            self._fail(error)
            return
        if out:
            self._upstream.send(out)
        if self._handshake.done and not self._done.done():
            self._upstream.pause()  # until the connection has a listener again
            self._upstream.listen(None)
            self._done.set_result(None)

    def on_close(self, how: str) -> None:
        self._fail(ProxyFailed(f"proxy {how} the connection during the handshake"))

    def on_writable(self, *, is_writable: bool) -> None:
        """Does nothing: the messages of a handshake are small."""

    def _fail(self, error: ProxyFailed) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Dialer:
    """Opens connections to proxies. `tls` is used for proxies with the scheme https."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls

    async def connect(self, proxy: Proxy) -> Upstream:
        """Raises `ProxyFailed`."""
        start = perf_counter()  # uvloop's time does not advance within one iteration of the loop
        tls = None
        if proxy.scheme == "https":
            tls = self._tls = self._tls or ssl.create_default_context()
        host = proxy.host.strip("[]")
        try:
            async with asyncio.timeout(self._limits.connect_s):
                _, upstream = await asyncio.get_running_loop().create_connection(
                    Upstream, host, proxy.port, ssl=tls, server_hostname=host if tls else None
                )
        except TimeoutError:
            raise ProxyFailed(f"{NOT_REACHED} within {self._limits.connect_s:g} s") from None
        except ssl.SSLError as error:
            raise ProxyFailed(f"{NOT_REACHED}: TLS failed ({(error.reason or 'handshake').lower()})") from None
        except OSError as error:
            raise ProxyFailed(f"{NOT_REACHED}: {(error.strerror or 'no connection').lower()}") from None
        upstream.latency_s = perf_counter() - start
        return upstream

    async def connect_through(self, proxy: Proxy, to: Destination) -> tuple[Upstream, bytes]:
        """Return the paused connection to a host, and its first bytes. Raises `ProxyFailed`."""
        handshake = handshake_for(proxy, to)
        upstream = await self.connect(proxy)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        upstream.listen(_HandshakeListener(upstream, handshake, done))
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


class IdleConnections:
    """Idle connections, kept for the next request. The most recently used connection is reused first."""

    def __init__(self) -> None:
        self._idle: OrderedDict[Upstream, None] = OrderedDict()
        self._by_key: dict[UpstreamKey, list[Upstream]] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: UpstreamKey) -> Upstream | None:
        waiting = self._by_key.get(key)
        if not waiting:
            return None
        upstream = waiting[-1]
        self._remove(upstream)
        return upstream

    def add(self, upstream: Upstream, now: float) -> None:
        """Keep a connection, or close it if IDLE_PER_PROXY_MAX are kept for its key.

        Beyond IDLE_CONNECTIONS_MAX in total, the one that has been idle for the longest is closed.
        """
        if upstream.closed or len(self._by_key.get(upstream.key, ())) >= IDLE_PER_PROXY_MAX:
            upstream.abort()
            return
        upstream.set_idle(now, self._remove)
        self._by_key.setdefault(upstream.key, []).append(upstream)
        self._idle[upstream] = None
        if len(self._idle) > IDLE_CONNECTIONS_MAX:
            next(iter(self._idle)).abort()

    def close_expired(self, now: float) -> None:
        while self._idle and (oldest := next(iter(self._idle))).idle_since < now - IDLE_CONNECTION_S:
            oldest.abort()

    def close(self) -> None:
        for upstream in list(self._idle):
            upstream.abort()

    def _remove(self, upstream: Upstream) -> None:
        upstream.set_busy()
        self._idle.pop(upstream, None)
        waiting = self._by_key.get(upstream.key, [])
        if upstream in waiting:
            waiting.remove(upstream)
        if not waiting:
            self._by_key.pop(upstream.key, None)
