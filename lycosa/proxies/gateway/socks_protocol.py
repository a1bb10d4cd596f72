"""SOCKS 5 as clients of the gateway speak it (RFC 1928): CONNECT, with user name and password or without."""

from __future__ import annotations

from collections.abc import Callable

from lycosa.core.errors import BadMessage, FetchError, Forbidden, LycosaError
from lycosa.proxies.core.gateway import socks
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.client_protocol import SpeakerConnection
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import Parts


class SocksSpeaker:
    """See the module."""

    def __init__(self, line: SpeakerConnection, parts: Parts) -> None:
        self._line = line
        self._parts = parts
        self._came = b""
        self._asked = GatewayUser()
        self._step: Callable[[], int] = self._greeting
        line.wait(parts.limits.head_s)

    def came(self, data: bytes) -> None:
        """See `Speaker`."""
        self._came += data
        try:
            while used := self._step():
                self._came = self._came[used:]
        except BadMessage:
            self._refuse(b"", "bad")
        except Forbidden:
            self._refuse(bytes((socks.LOGIN_VERSION, socks.FAILED)), "login")

    def ended(self) -> bool:
        """See `Speaker`."""
        return False

    def writable(self, *, yes: bool) -> None:
        """What is said before a tunnel is small."""

    def next(self) -> None:
        """A tunnel could not be opened."""
        self._line.close()

    def is_stuck(self, now: float) -> bool:
        """A tunnel that is being opened has limits of its own."""
        return False

    def too_slow(self) -> None:
        """See `Speaker`."""
        self._line.close()

    def _greeting(self) -> int:
        """Choose how to log in: with a name if the client has one, since it may ask for something."""
        read = socks.read_methods(self._came)
        if read is None:
            return 0
        methods, used = read
        if socks.LOGIN in methods:
            method, self._step = socks.LOGIN, self._login
        elif socks.NO_LOGIN in methods and not self._parts.accounts:
            method, self._step = socks.NO_LOGIN, self._request
        else:
            self._refuse(bytes((socks.VERSION, socks.NO_METHOD)), "login")
            return 0
        self._line.send(bytes((socks.VERSION, method)))
        return used

    def _login(self) -> int:
        read = socks.read_login(self._came)
        if read is None:
            return 0
        login, used = read
        self._asked = self._parts.accounts.log_in(login.user, login.password)
        self._line.send(bytes((socks.LOGIN_VERSION, socks.SUCCEEDED)))
        self._step = self._request
        return used

    def _request(self) -> int:
        read = socks.read_request(self._came)
        if read is None:
            return 0
        (command, to), used = read
        self._step = self._nothing
        if command != socks.CONNECT:
            self._refuse(socks.encode_reply(socks.NOT_SUPPORTED), "command")
            return 0
        early, self._came = self._came[used:], b""
        self._line.open(self._asked, to, early, self._opened, self._failed)
        return 0

    def _nothing(self) -> int:
        return 0

    def _opened(self, hold: GatewayLease) -> bytes:
        self._parts.counts.tunnels["socks"] += 1
        return socks.encode_reply(socks.SUCCEEDED)

    def _failed(self, error: LycosaError) -> None:
        """A tunnel could not be opened."""
        code = socks.FAILED
        if isinstance(error, Forbidden):
            code = socks.NOT_ALLOWED
        elif isinstance(error, FetchError) and error.reached:
            code = socks.UNREACHABLE
        self._parts.counts.refused[f"socks {code}"] += 1
        self._line.send(socks.encode_reply(code))

    def _refuse(self, reply: bytes, why: str) -> None:
        self._parts.counts.refused[f"socks {why}"] += 1
        self._step = self._nothing
        if reply:
            self._line.send(reply)
        self._line.close()
