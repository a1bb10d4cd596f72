"""HTTP/1.1 as clients of the gateway speak it (RFC 9112): requests in absolute form, CONNECT, and the gateway's own."""

from __future__ import annotations

import asyncio

from lycosa.core.errors import BadMessage, Forbidden, LycosaError
from lycosa.http.core.destination import parse_authority
from lycosa.http.core.http1.forward import check_connection_field, is_kept, read_target
from lycosa.http.core.http1.framing import BodyReader, request_body_reader
from lycosa.http.core.http1.head import RequestHead, elements, head_end, read_request
from lycosa.proxies.core.gateway.limits import BUFFER_MAX
from lycosa.proxies.core.outcomes.reports import REPORT_MAX
from lycosa.proxies.gateway.client_protocol import SpeakerConnection
from lycosa.proxies.gateway.endpoints import respond
from lycosa.proxies.gateway.exchange import Exchange
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.responses import LEASE, answer, says, status_of
from lycosa.proxies.gateway.routing import Parts

LOGINS_MAX = 5
"""Refused logins of one connection."""

OPEN = b"HTTP/1.1 200 Connection established\r\n"


class HttpSpeaker:
    """See the module."""

    def __init__(self, line: SpeakerConnection, parts: Parts) -> None:
        self._line = line
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._came = b""
        self._looked_at = 0
        self._is_busy = False
        self._keep = False
        self._exchange: Exchange | None = None
        self._own: Own | None = None
        self._refused = 0

    def came(self, data: bytes) -> None:
        """See `Speaker`."""
        try:
            if self._exchange is not None and not self._exchange.body.done:
                data = self._exchange.take(data)
            elif self._own is not None and not self._own.body.done:
                data = self._own.take(data)
                self._respond(self._own)
        except BadMessage as error:
            self._broken(error)
            return
        if self._is_busy:
            self._came += data
            if len(self._came) > BUFFER_MAX:
                self._line.pause()
        elif data:
            self._read(data)

    def ended(self) -> bool:
        """A client that closes its side has gone, as far as one can see: nobody works for it any longer."""
        return False

    def writable(self, *, yes: bool) -> None:
        """See `Speaker`."""
        if self._exchange is not None:
            self._exchange.client_writable(yes=yes)

    def next(self) -> None:
        """See `Speaker`."""
        self._is_busy, self._exchange, self._own = False, None, None
        if not self._keep:
            self._line.close()
            return
        self._line.wait(self._parts.limits.idle_s)
        self._line.resume()
        if self._came:
            came, self._came = self._came, b""
            self._read(came)

    def is_stuck(self, now: float) -> bool:
        """See `Speaker`."""
        exchange = self._exchange
        return exchange is not None and now >= exchange.moved_at + self._parts.limits.answer_s and exchange.timed_out()

    def too_slow(self) -> None:
        """See `Speaker`."""
        if self._came or self._own is not None:
            self._fail(Forbidden("the request did not come to its end", 408))
        self._line.close()

    def _read(self, data: bytes) -> None:
        """Read a head."""
        if not self._came:
            data = data.lstrip(b"\r\n")  # RFC 9112 §2.2
            self._looked_at = 0
            self._line.wait(self._parts.limits.head_s)
        self._came += data
        try:
            end = head_end(self._came, self._looked_at)
            self._looked_at = len(self._came)
            if end:
                head, rest = self._came[:end], self._came[end:]
                self._came = b""
                self._begin(read_request(head), rest)
        except LycosaError as error:
            self._keep = False
            self._fail(error)
            self._line.close()

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """A request begins. Raises when nobody can know where the next one does."""
        body = request_body_reader(head)
        if any(each != b"100-continue" for each in elements(head.values(b"expect"))):
            raise BadMessage("an expectation other than 100-continue", 417)
        self._keep = is_kept(head)
        self._is_busy = True
        if head.target[:1] in (b"/", b"*"):
            self._own = Own(head, body)
            self._line.wait(self._parts.limits.head_s)
            self._respond(self._own)
        else:
            try:
                self._ask(head, body, rest)
            except Forbidden as error:
                self._refuse(error, body, rest)
                return
            if head.method == b"CONNECT":
                return
        if rest:
            self.came(rest)

    def _ask(self, head: RequestHead, body: BodyReader, rest: bytes) -> None:
        """Send a request on, or open a tunnel. Raises `Forbidden`, `BadMessage`."""
        asked = self._parts.accounts.log_in_basic(head.values(b"proxy-authorization"))
        if head.method == b"CONNECT":
            to = parse_authority(head.target)
            self._line.open(asked, to, rest, self._opened, self._failed)
            return
        if head.method == b"TRACE" or head.values(b"max-forwards") == [b"0"]:
            raise BadMessage("nobody is traced here", 405)
        check_connection_field(head)
        to, path = read_target(head)
        self._exchange = Exchange(self._parts, self._line, head, body, asked, to, path)
        self._line.start(self._answered(self._exchange))

    def _refuse(self, error: Forbidden, body: BodyReader, rest: bytes) -> None:
        """Refuse a request, and read the next one if its end is known."""
        self._refused += 1
        self._keep = self._keep and body.done and self._refused < LOGINS_MAX
        self._fail(error)
        self._is_busy = False
        if not self._keep:
            self._line.close()
        elif rest:
            self.came(rest)

    async def _answered(self, exchange: Exchange) -> None:
        """Let a request be answered."""
        try:
            await exchange.run()
            self._parts.counts.requests[exchange.status] += 1
            self._keep = self._keep and exchange.keep
        except LycosaError as error:
            self._parts.counts.requests[0] += 1
            self._keep = self._keep and exchange.body.done
            if exchange.began:
                self._line.cut()
            else:
                self._fail(error)

    def _respond(self, own: Own) -> None:
        """Answer a request to the gateway itself when it has come to its end."""
        if own.body.done:
            self._line.start(self._responded(own))

    async def _responded(self, own: Own) -> None:
        said = await respond(self._parts, own.head, bytes(own.content))
        close = not self._keep
        head_only = own.head.method == b"HEAD"
        self._line.send(answer(said.status, said.text, close=close, kind=said.kind, head_only=head_only))

    def _opened(self, hold: GatewayLease) -> bytes:
        self._parts.counts.tunnels["connect"] += 1
        return OPEN + LEASE + hold.id.encode() + b"\r\n\r\n"

    def _failed(self, error: LycosaError) -> None:
        """A tunnel could not be opened."""
        self._keep = self._keep and not self._came
        self._fail(error)

    def _fail(self, error: LycosaError) -> None:
        status = status_of(error)
        self._parts.counts.refused[str(status)] += 1
        self._line.send(answer(status, f"{says(error)}\n", close=not self._keep))

    def _broken(self, error: BadMessage) -> None:
        """A body cannot be read: nobody knows where the next request would begin."""
        self._keep = False
        if self._exchange is not None:
            self._exchange.give_up(error)
        else:
            self._fail(error)
            self._line.close()


class Own:
    """A request to the gateway itself."""

    def __init__(self, head: RequestHead, body: BodyReader) -> None:
        self.head = head
        self.body = body
        self.content = bytearray()

    def take(self, data: bytes) -> bytes:
        """Take a piece of its body. Return what is behind that. Raises `BadMessage`."""
        payload, rest = self.body.feed(data)
        self.content += payload
        if len(self.content) > REPORT_MAX:
            raise BadMessage(f"more than {REPORT_MAX:,} bytes", 413)
        return rest
