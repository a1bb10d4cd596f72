"""Handshakes that request a connection through a proxy, without I/O: CONNECT (RFC 9110 §9.3.6), SOCKS 4 and 4a, SOCKS 5
(RFC 1928, 1929).

    handshake = handshake_for(proxy, destination)
    send(handshake.opening)
    while not handshake.done:
        send(handshake.receive(await read()))
    handshake.rest                     # bytes after the last reply: the first bytes from the destination

`receive` raises `ProxyFailed`; its message is always the same for the same cause, and contains no secrets.
"""

from __future__ import annotations

from base64 import b64encode
from ipaddress import IPv4Address, ip_address

from lycosa.core.errors import PROXY_LOGIN_REFUSED, BadMessage, ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.http.core.http1.head import head_end, read_response
from lycosa.proxies.core.gateway import socks
from lycosa.proxies.core.proxy import Proxy

SOCKS4_VERSION, SOCKS4_GRANTED = 4, 0x5A
SOCKS4_REPLY_SIZE = 8
SOCKS4_LOGIN_REFUSED = (0x5C, 0x5D)
SOCKS4A_ADDRESS = b"\0\0\0\1"
"""The invalid address after which a SOCKS 4a proxy expects a name."""

ADDRESS_SCHEMES = frozenset({"socks4", "socks5"})
"""Schemes whose clients resolve names themselves, and send the proxy an address."""


class Handshake:
    """A handshake with a proxy. `opening` is sent first."""

    def __init__(self, opening: bytes) -> None:
        self.opening = opening
        self.done, self.rest = False, b""
        self._received = b""

    def receive(self, data: bytes) -> bytes:
        """Return the bytes to send next. Raises `ProxyFailed`."""
        raise NotImplementedError

    def _finish(self, size: int) -> None:
        """End the handshake. The last reply has `size` bytes, the bytes after it become `rest`."""
        self.done, self.rest = True, self._received[size:]


def proxy_authorization(proxy: Proxy) -> bytes:
    """Return the value of Proxy-Authorization (RFC 7617); b"" without a login."""
    if not (proxy.username or proxy.password):
        return b""
    return b"Basic " + b64encode(f"{proxy.username}:{proxy.password}".encode())


def handshake_for(proxy: Proxy, to: Destination) -> Handshake:
    """Return the handshake with a proxy. Raises `ProxyFailed` if its protocol cannot express the destination."""
    if proxy.scheme in ("http", "https"):
        return ConnectHandshake(to, proxy_authorization(proxy))
    if proxy.scheme in ("socks4", "socks4a"):
        return Socks4Handshake(to, proxy.username)
    return Socks5Handshake(to, proxy.username, proxy.password)


class ConnectHandshake(Handshake):
    """CONNECT. The login is sent at once, without waiting for a challenge."""

    def __init__(self, to: Destination, login: bytes) -> None:
        authority = to.authority.encode()
        login_line = b"Proxy-Authorization: " + login + b"\r\n" if login else b""
        super().__init__(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, login_line))

    def receive(self, data: bytes) -> bytes:
        searched = len(self._received)
        self._received += data
        try:
            while not self.done and (end := head_end(self._received, searched)):
                status = read_response(self._received[:end]).status
                if status == 407:
                    raise ProxyFailed(f"{PROXY_LOGIN_REFUSED} (407)")
                if status >= 300:
                    raise ProxyFailed(f"proxy answered {status}", behind=True)
                if status >= 200:
                    self._finish(end)
                self._received, searched = self._received[end:], 0  # skips an interim response (1xx)
        except BadMessage:
            raise ProxyFailed("proxy sent an invalid HTTP response") from None
        return b""


class Socks4Handshake(Handshake):
    """SOCKS 4, and 4a for host names. There is no password: proxies may verify the user name with an ident server."""

    def __init__(self, to: Destination, user: str) -> None:
        address, name = SOCKS4A_ADDRESS, b""
        if not to.is_address:
            name = to.host.encode() + b"\0"
        elif isinstance(ip := ip_address(to.host), IPv4Address):
            address = ip.packed
        else:
            raise ProxyFailed("SOCKS 4 proxies do not support IPv6 addresses", behind=True)
        user_field = user.encode().replace(b"\0", b"") + b"\0"
        command = bytes((SOCKS4_VERSION, socks.CONNECT))
        super().__init__(command + to.port.to_bytes(2) + address + user_field + name)

    def receive(self, data: bytes) -> bytes:
        self._received += data
        if self._received[:1] not in (b"", b"\0"):
            raise ProxyFailed("proxy sent an invalid SOCKS 4 reply")
        if len(self._received) >= SOCKS4_REPLY_SIZE:
            code = self._received[1]
            if code in SOCKS4_LOGIN_REFUSED:
                raise ProxyFailed(PROXY_LOGIN_REFUSED)
            if code != SOCKS4_GRANTED:
                raise ProxyFailed("proxy could not connect", behind=True)
            self._finish(SOCKS4_REPLY_SIZE)
        return b""


class Socks5Handshake(Handshake):
    """SOCKS 5: method selection, login if the proxy requests it, connection request."""

    def __init__(self, to: Destination, user: str, password: str) -> None:
        self._to = to
        self._login = (user.encode()[:255], password.encode()[:255]) if user or password else None
        # The proxy chooses the method. It may accept our IP address without a login.
        methods = (socks.NO_LOGIN, socks.LOGIN) if self._login else (socks.NO_LOGIN,)
        super().__init__(bytes((socks.VERSION, len(methods), *methods)))
        self._step = self._read_method

    def receive(self, data: bytes) -> bytes:
        self._received += data
        out = b""
        while not self.done:  # one read may bring several messages
            before = self._received
            out += self._step()
            if self._received == before:
                break
        return out

    def _read_method(self) -> bytes:
        if len(self._received) < 2:
            return b""
        version, method = self._received[:2]
        self._received = self._received[2:]
        if version != socks.VERSION:
            raise _invalid_reply()
        if method == socks.LOGIN and self._login:
            self._step = self._read_login_status
            user, password = self._login
            return bytes((socks.LOGIN_VERSION, len(user))) + user + bytes((len(password),)) + password
        if method != socks.NO_LOGIN:
            raise ProxyFailed(PROXY_LOGIN_REFUSED)
        return self._request()

    def _read_login_status(self) -> bytes:
        if len(self._received) < 2:
            return b""
        status = self._received[1]
        self._received = self._received[2:]
        if status:
            raise ProxyFailed(PROXY_LOGIN_REFUSED)
        return self._request()

    def _request(self) -> bytes:
        self._step = self._read_reply
        command = bytes((socks.VERSION, socks.CONNECT, 0))
        port = self._to.port.to_bytes(2)
        if not self._to.is_address:
            name = self._to.host.encode()
            return command + bytes((socks.NAME, len(name))) + name + port
        ip = ip_address(self._to.host)
        return command + bytes((socks.IPV4 if isinstance(ip, IPv4Address) else socks.IPV6,)) + ip.packed + port

    def _read_reply(self) -> bytes:
        if len(self._received) < 5:
            return b""
        version, code, _, kind, first = self._received[:5]
        if version != socks.VERSION:
            raise _invalid_reply()
        if code != socks.SUCCEEDED:
            raise ProxyFailed(f"proxy reported: {socks.REASONS.get(code, 'failure')}", behind=True)
        # The rest is the address from which the proxy connects. The first byte of a name is its length.
        size = {socks.IPV4: 10, socks.IPV6: 22, socks.NAME: 7 + first}.get(kind)
        if size is None:
            raise _invalid_reply()
        if len(self._received) >= size:
            self._finish(size)
        return b""


def _invalid_reply() -> ProxyFailed:
    return ProxyFailed("proxy sent an invalid SOCKS 5 reply")
