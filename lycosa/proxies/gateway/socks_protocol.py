"""Speaks SOCKS 5 (RFC 1928) with a client: CONNECT, with or without user name and password."""

from __future__ import annotations

from collections.abc import Callable

from lycosa.core.errors import BadMessage, FetchError, Forbidden, LycosaError
from lycosa.proxies.core.gateway import socks
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.client_protocol import ClientTransport
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import GatewayContext


class SocksProtocol:
    """The `ClientProtocol` for SOCKS 5."""

    def __init__(self, client: ClientTransport, context: GatewayContext) -> None:
        self._client = client
        self._context = context
        self._received = b""
        self._user = GatewayUser()
        self._step: Callable[[], int] = self._read_greeting
        client.set_deadline(context.limits.head_s)

    def on_data(self, data: bytes) -> None:
        self._received += data
        try:
            while size := self._step():
                self._received = self._received[size:]
        except BadMessage:
            self._refuse(b"", "bad")
        except Forbidden:
            self._refuse(bytes((socks.LOGIN_VERSION, socks.FAILED)), "login")

    def on_writable(self, *, is_writable: bool) -> None:
        """Does nothing: the replies before the tunnel are small."""

    def on_task_done(self) -> None:
        self._client.close()

    def is_stalled(self, now: float) -> bool:
        return False  # opening a tunnel has its own time limits

    def on_timeout(self) -> None:
        self._client.close()

    # Each step reads one message and returns its size, or 0 if it is incomplete or nothing more is read.

    def _read_greeting(self) -> int:
        read = socks.read_methods(self._received)
        if read is None:
            return 0
        methods, size = read
        if socks.LOGIN in methods:  # even without accounts: the user name may contain options such as a session
            method, self._step = socks.LOGIN, self._read_login
        elif socks.NO_LOGIN in methods and not self._context.accounts:
            method, self._step = socks.NO_LOGIN, self._read_request
        else:
            self._refuse(bytes((socks.VERSION, socks.NO_METHOD)), "login")
            return 0
        self._client.send(bytes((socks.VERSION, method)))
        return size

    def _read_login(self) -> int:
        read = socks.read_login(self._received)
        if read is None:
            return 0
        login, size = read
        self._user = self._context.accounts.log_in(login.user, login.password)
        self._client.send(bytes((socks.LOGIN_VERSION, socks.SUCCEEDED)))
        self._step = self._read_request
        return size

    def _read_request(self) -> int:
        read = socks.read_request(self._received)
        if read is None:
            return 0
        (command, to), size = read
        self._step = self._read_nothing
        if command != socks.CONNECT:
            self._refuse(socks.encode_reply(socks.NOT_SUPPORTED), "command")
            return 0
        early, self._received = self._received[size:], b""
        self._client.open_tunnel(self._user, to, early, self._opened, self._failed)
        return 0

    def _read_nothing(self) -> int:
        return 0

    def _opened(self, lease: GatewayLease) -> bytes:
        self._context.counts.tunnels["socks"] += 1
        return socks.encode_reply(socks.SUCCEEDED)

    def _failed(self, error: LycosaError) -> None:
        code = socks.FAILED
        if isinstance(error, Forbidden):
            code = socks.NOT_ALLOWED
        elif isinstance(error, FetchError) and error.reached:
            code = socks.UNREACHABLE
        self._context.counts.refused[f"socks {code}"] += 1
        self._client.send(socks.encode_reply(code))

    def _refuse(self, reply: bytes, why: str) -> None:
        self._context.counts.refused[f"socks {why}"] += 1
        self._step = self._read_nothing
        if reply:
            self._client.send(reply)
        self._client.close()
