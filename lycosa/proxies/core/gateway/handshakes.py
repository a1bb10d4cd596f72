"""How a connection through a proxy is asked for: CONNECT (RFC 9110 §9.3.6), SOCKS 4 and 4a, SOCKS 5 (RFC 1928, 1929).

    handshake = connect_through(proxy, to)
    send(handshake.begin())
    while not handshake.done:
        send(handshake.receive(what came))
    handshake.rest                              # what came behind it: the first bytes of the other side

Raises `ProxyFailed`, with words that are the same for the same cause and hold no secret.
"""

from __future__ import annotations

from base64 import b64encode
from ipaddress import IPv4Address, ip_address
from typing import Protocol

from lycosa.core.errors import PROXY_LOGIN_REFUSED, BadMessage, ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.http.core.http1.head import head_end, read_response
from lycosa.proxies.core.gateway import socks
from lycosa.proxies.core.proxy import Proxy

SOCKS4, GRANTED = 4, 0x5A
SOCKS4_REPLY = 8
SOCKS4_LOGIN = (0x5C, 0x5D)
NAME_LATER = b"\0\0\0\1"
"""The address of SOCKS 4a that says: the name follows."""

ADDRESSED = frozenset({"socks4", "socks5"})
"""Kinds of proxies that want an address, found by whoever asks."""


class Handshake(Protocol):
    """One of them, see the module."""

    done: bool
    rest: bytes

    def begin(self) -> bytes:
        """Return what is sent first."""
        ...

    def receive(self, data: bytes) -> bytes:
        """Take what came. Return what is to be sent. Raises `ProxyFailed`."""
        ...


def login_of(proxy: Proxy) -> bytes:
    """Return the value of Proxy-Authorization for an HTTP proxy (RFC 7617), b"" without a login."""
    if not (proxy.username or proxy.password):
        return b""
    return b"Basic " + b64encode(f"{proxy.username}:{proxy.password}".encode())


def connect_through(proxy: Proxy, to: Destination) -> Handshake:
    """Return the handshake that asks this proxy for a connection. Raises `ProxyFailed` for what it cannot be asked."""
    if proxy.scheme in ("http", "https"):
        return HttpConnect(to, login_of(proxy))
    if proxy.scheme in ("socks4", "socks4a"):
        return Socks4(to, proxy.username)
    return Socks5(to, proxy.username, proxy.password)


class HttpConnect:
    """CONNECT, with a login at once."""

    def __init__(self, to: Destination, login: bytes) -> None:
        self.done, self.rest = False, b""
        self._came = b""
        authority = to.authority.encode()
        login_line = b"Proxy-Authorization: " + login + b"\r\n" if login else b""
        self._asks = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, login_line)

    def begin(self) -> bytes:
        """See `Handshake`."""
        return self._asks

    def receive(self, data: bytes) -> bytes:
        """See `Handshake`."""
        since = len(self._came)
        self._came += data
        try:
            while end := head_end(self._came, since):
                status = read_response(self._came[:end]).status
                self._came, since = self._came[end:], 0
                if status >= 200:
                    self._answered(status)
                    break
        except BadMessage:
            raise ProxyFailed("proxy answered what is not HTTP") from None
        return b""

    def _answered(self, status: int) -> None:
        if status == 407:
            raise ProxyFailed(f"{PROXY_LOGIN_REFUSED} (407)")
        if status >= 300:
            raise ProxyFailed(f"proxy answered {status}", behind=True)
        self.done, self.rest = True, self._came


class Socks4:
    """SOCKS 4, and 4a for names. Its user name is no login: servers may ask another server who that is."""

    def __init__(self, to: Destination, user: str) -> None:
        self.done, self.rest = False, b""
        self._came = b""
        address, name = NAME_LATER, b""
        if not to.is_address:
            name = to.host.encode() + b"\0"
        elif isinstance(ip := ip_address(to.host), IPv4Address):
            address = ip.packed
        else:
            raise ProxyFailed("proxy of SOCKS 4 takes no IPv6 addresses", behind=True)
        plain_user = user.encode().replace(b"\0", b"")
        self._asks = bytes((SOCKS4, socks.CONNECT)) + to.port.to_bytes(2) + address + plain_user + b"\0" + name

    def begin(self) -> bytes:
        """See `Handshake`."""
        return self._asks

    def receive(self, data: bytes) -> bytes:
        """See `Handshake`."""
        self._came += data
        if self._came[:1] not in (b"", b"\0"):
            raise ProxyFailed("proxy answered what is not SOCKS 4")
        if len(self._came) >= SOCKS4_REPLY:
            code = self._came[1]
            if code in SOCKS4_LOGIN:
                raise ProxyFailed(PROXY_LOGIN_REFUSED)
            if code != GRANTED:
                raise ProxyFailed("proxy could not connect", behind=True)
            self.done, self.rest = True, self._came[SOCKS4_REPLY:]
        return b""


class Socks5:
    """SOCKS 5: greeting, login if it is wanted, request."""

    def __init__(self, to: Destination, user: str, password: str) -> None:
        self.done, self.rest = False, b""
        self._came = b""
        self._to = to
        self._login = (user.encode()[:255], password.encode()[:255]) if user or password else None
        self._step = self._method

    def begin(self) -> bytes:
        """See `Handshake`."""
        methods = (socks.NO_LOGIN, socks.LOGIN) if self._login else (socks.NO_LOGIN,)
        return bytes((socks.VERSION, len(methods), *methods))

    def receive(self, data: bytes) -> bytes:
        """See `Handshake`."""
        self._came += data
        out = b""
        while not self.done:
            before = self._came
            out += self._step()
            if self._came == before:
                break
        return out

    def _method(self) -> bytes:
        if len(self._came) < 2:
            return b""
        version, method = self._came[:2]
        self._came = self._came[2:]
        if version != socks.VERSION:
            raise ProxyFailed("proxy answered what is not SOCKS 5")
        if method == socks.LOGIN and self._login:
            self._step = self._logged_in
            user, password = self._login
            return bytes((socks.LOGIN_VERSION, len(user))) + user + bytes((len(password),)) + password
        if method != socks.NO_LOGIN:
            raise ProxyFailed(PROXY_LOGIN_REFUSED)
        return self._request()

    def _logged_in(self) -> bytes:
        if len(self._came) < 2:
            return b""
        status = self._came[1]
        self._came = self._came[2:]
        if status:
            raise ProxyFailed(PROXY_LOGIN_REFUSED)
        return self._request()

    def _request(self) -> bytes:
        self._step = self._reply
        begin = bytes((socks.VERSION, socks.CONNECT, 0))
        port = self._to.port.to_bytes(2)
        if not self._to.is_address:
            name = self._to.host.encode()
            return begin + bytes((socks.NAME, len(name))) + name + port
        ip = ip_address(self._to.host)
        return begin + bytes((socks.IPV4 if isinstance(ip, IPv4Address) else socks.IPV6,)) + ip.packed + port

    def _reply(self) -> bytes:
        if len(self._came) < 5:
            return b""
        version, code, _, kind, first = self._came[:5]
        if version != socks.VERSION:
            raise ProxyFailed("proxy answered what is not SOCKS 5")
        if code != socks.DONE:
            raise ProxyFailed(f"proxy says: {socks.REASONS.get(code, 'failure')}", behind=True)
        length = {socks.IPV4: 10, socks.IPV6: 22, socks.NAME: 7 + first}.get(kind)
        if length is None:
            raise ProxyFailed("proxy answered what is not SOCKS 5")
        if len(self._came) >= length:
            self.done, self.rest = True, self._came[length:]
            self._came = b""
        return b""
