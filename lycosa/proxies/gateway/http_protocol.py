"""Speaks HTTP/1.1 (RFC 9112) with a client: requests in absolute form, CONNECT, and the gateway's own endpoints."""

from __future__ import annotations

from lycosa.core.errors import BadMessage, Forbidden, LycosaError
from lycosa.http.core.destination import Destination, parse_authority
from lycosa.http.core.http1.forward import check_connection_field, is_kept, read_target
from lycosa.http.core.http1.framing import BodyReader, request_body_reader
from lycosa.http.core.http1.head import RequestHead, elements, head_end, read_request
from lycosa.proxies.core.gateway.limits import BUFFER_MAX
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.reports import REPORT_MAX
from lycosa.proxies.gateway.client_protocol import ClientTransport
from lycosa.proxies.gateway.endpoints import respond
from lycosa.proxies.gateway.exchange import Exchange
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.responses import LEASE_FIELD, encode_own_response, error_text, status_of
from lycosa.proxies.gateway.routing import GatewayContext, run_attempts

REFUSALS_MAX = 5
"""Number of refused requests, such as wrong logins, after which the connection is closed."""

TUNNEL_OPENED = b"HTTP/1.1 200 Connection established\r\n"


class HttpProtocol:
    """The `ClientProtocol` for HTTP. Handles one request at a time; pipelined requests are buffered."""

    def __init__(self, client: ClientTransport, context: GatewayContext) -> None:
        self._client = client
        self._context = context
        self._received = b""
        self._searched = 0
        self._is_busy = False
        self._keep_alive = False
        self._exchange: Exchange | None = None
        self._own_request: OwnRequest | None = None
        self._refusals = 0

    def on_data(self, data: bytes) -> None:
        try:
            if self._exchange is not None and not self._exchange.body.done:
                data = self._exchange.feed(data)
            elif self._own_request is not None and not self._own_request.body.done:
                data = self._own_request.feed(data)
                self._respond_if_complete(self._own_request)
        except BadMessage as error:
            self._abandon_body(error)
            return
        if self._is_busy:
            self._received += data
            if len(self._received) > BUFFER_MAX:
                self._client.pause()
        elif data:
            self._read_head(data)

    def on_writable(self, *, is_writable: bool) -> None:
        if self._exchange is not None:
            self._exchange.on_client_writable(is_writable=is_writable)

    def on_task_done(self) -> None:
        self._is_busy, self._exchange, self._own_request = False, None, None
        if not self._keep_alive:
            self._client.close()
            return
        self._client.set_deadline(self._context.limits.idle_s)
        self._client.resume()
        if self._received:
            received, self._received = self._received, b""
            self._read_head(received)

    def is_stalled(self, now: float) -> bool:
        exchange = self._exchange
        limit_s = self._context.limits.answer_s
        return exchange is not None and now >= exchange.active_at + limit_s and exchange.handle_timeout()

    def on_timeout(self) -> None:
        if self._received or self._own_request is not None:
            self._send_error(Forbidden("the complete request was not received in time", 408))
        self._client.close()

    def _read_head(self, data: bytes) -> None:
        if not self._received:
            data = data.lstrip(b"\r\n")  # RFC 9112 §2.2
            self._searched = 0
            self._client.set_deadline(self._context.limits.head_s)
        self._received += data
        try:
            end = head_end(self._received, self._searched)
            self._searched = len(self._received)
            if end:
                head, rest = self._received[:end], self._received[end:]
                self._received = b""
                self._start_request(read_request(head), rest)
        except LycosaError as error:
            self._keep_alive = False
            self._send_error(error)
            self._client.close()

    def _start_request(self, head: RequestHead, rest: bytes) -> None:
        """Raises `LycosaError`: then close the connection, because it is unknown where the next request starts."""
        body = request_body_reader(head)
        if any(each != b"100-continue" for each in elements(head.values(b"expect"))):
            raise BadMessage("Expect: only 100-continue is supported", 417)
        self._keep_alive = is_kept(head)
        self._is_busy = True
        if head.target[:1] in (b"/", b"*"):  # not in absolute form: meant for the gateway itself (RFC 9112 §3.2)
            self._own_request = OwnRequest(head, body)
            self._client.set_deadline(self._context.limits.head_s)
            self._respond_if_complete(self._own_request)
        else:
            try:
                self._forward(head, body, rest)
            except Forbidden as error:
                self._refuse(error, body, rest)
                return
            if head.method == b"CONNECT":
                return  # the tunnel has `rest`
        if rest:
            self.on_data(rest)

    def _forward(self, head: RequestHead, body: BodyReader, rest: bytes) -> None:
        """Raises `Forbidden`, `BadMessage`."""
        user = self._context.accounts.log_in_basic(head.values(b"proxy-authorization"))
        if head.method == b"CONNECT":
            self._client.open_tunnel(user, parse_authority(head.target), rest, self._opened, self._failed)
            return
        if head.method == b"TRACE" or head.values(b"max-forwards") == [b"0"]:
            raise BadMessage("TRACE and Max-Forwards: 0 are not supported", 405)
        check_connection_field(head)
        to, path = read_target(head)
        self._exchange = Exchange(self._context, self._client, head, body, to, path)
        self._client.start(self._run_exchange(self._exchange, user, to))

    def _refuse(self, error: Forbidden, body: BodyReader, rest: bytes) -> None:
        """Send an error. Close the connection if the body is incomplete, or after REFUSALS_MAX refusals."""
        self._refusals += 1
        self._keep_alive = self._keep_alive and body.done and self._refusals < REFUSALS_MAX
        self._send_error(error)
        self._is_busy = False
        if not self._keep_alive:
            self._client.close()
        elif rest:
            self.on_data(rest)

    async def _run_exchange(self, exchange: Exchange, user: GatewayUser, to: Destination) -> None:
        try:
            await run_attempts(self._context, user, to, exchange)
            self._context.counts.requests[exchange.status] += 1
            self._keep_alive = self._keep_alive and exchange.keep_alive
        except LycosaError as error:
            self._context.counts.requests[0] += 1
            self._keep_alive = self._keep_alive and exchange.body.done
            if exchange.started:
                self._client.abort()
            else:
                self._send_error(error)

    def _respond_if_complete(self, own: OwnRequest) -> None:
        if own.body.done:
            self._client.start(self._respond(own))

    async def _respond(self, own: OwnRequest) -> None:
        response = await respond(self._context, own.head, bytes(own.content))
        head_only = own.head.method == b"HEAD"
        self._client.send(encode_own_response(*response, close=not self._keep_alive, head_only=head_only))

    def _opened(self, lease: GatewayLease) -> bytes:
        self._context.counts.tunnels["connect"] += 1
        return TUNNEL_OPENED + LEASE_FIELD + lease.id.encode() + b"\r\n\r\n"

    def _failed(self, error: LycosaError) -> None:
        self._keep_alive = self._keep_alive and not self._received
        self._send_error(error)

    def _send_error(self, error: LycosaError) -> None:
        status = status_of(error)
        self._context.counts.refused[str(status)] += 1
        self._client.send(encode_own_response(status, f"{error_text(error)}\n", close=not self._keep_alive))

    def _abandon_body(self, error: BadMessage) -> None:
        """End a request with an invalid body, and the connection: it is unknown where the next request starts."""
        self._keep_alive = False
        if self._exchange is not None:
            self._exchange.fail(error)
        else:
            self._send_error(error)
            self._client.close()


class OwnRequest:
    """A request to the gateway's own endpoints."""

    def __init__(self, head: RequestHead, body: BodyReader) -> None:
        self.head = head
        self.body = body
        self.content = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return the bytes after the end of the body. Raises `BadMessage`."""
        payload, rest = self.body.feed(data)
        self.content += payload
        if len(self.content) > REPORT_MAX:
            raise BadMessage(f"the report is longer than {REPORT_MAX:,} bytes", 413)
        return rest
