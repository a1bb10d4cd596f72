"""One plain HTTP request: sent through a proxy, retried through other proxies if needed, and its response passed on.

A small request body is kept, to be sent again. If the proxy fails before the request is sent (it is unreachable, or
opens no tunnel), any request is retried. After a later failure, only an idempotent method is retried (RFC 9110 §9.2.2),
and only while the client has not received a byte of the final response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lycosa.core.errors import PROXY_LOGIN_REFUSED, BadMessage, BadResponse, ConnectionLost, FetchTimeout, ProxyFailed
from lycosa.http.core import codings
from lycosa.http.core.destination import Destination
from lycosa.http.core.http1.forward import (
    IDEMPOTENT,
    encode_request,
    encode_response,
    is_connection_bound,
    is_kept,
    is_reusable,
)
from lycosa.http.core.http1.framing import (
    LAST_CHUNK,
    BodyReader,
    ChunkedReader,
    ContentLengthReader,
    encode_chunk,
    response_body_reader,
)
from lycosa.http.core.http1.head import RequestHead, ResponseHead, head_end, read_response
from lycosa.proxies.core.gateway.handshakes import proxy_authorization
from lycosa.proxies.core.gateway.limits import BUFFER_MAX
from lycosa.proxies.core.outcomes.outcome import CHALLENGE_STATUSES, SEARCHED_MAX, Outcome, OutcomeRule, judge
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway.client_protocol import ClientTransport
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.responses import LEASE_FIELD
from lycosa.proxies.gateway.routing import GatewayContext, Route, destination_for
from lycosa.proxies.gateway.upstream import Upstream, UpstreamKey


class Exchange:
    """One request, as a `ProxyTask` and `UpstreamListener`.

    `keep_alive`: the client's connection can be reused. `started`: part of the final response was sent to the client.
    `active_at`: the loop time of the last progress.
    """

    def __init__(
        self,
        context: GatewayContext,
        client: ClientTransport,
        head: RequestHead,
        body: BodyReader,
        to: Destination,
        path: bytes,
    ) -> None:
        self.started = False
        self.status = 0
        self.body = body
        self.keep_alive = is_kept(head)
        self._loop = asyncio.get_running_loop()
        self.active_at = self._loop.time()
        self._context = context
        self._client = client
        self._head = head
        self._to = to
        self._path = path
        self._rules: Sequence[OutcomeRule] = ()
        self._replay: bytearray | None = bytearray()
        self._sent = False
        self._upstream: Upstream | None = None
        self._lease: GatewayLease  # set by `attempt`
        self._done: asyncio.Future[None] | None = None
        self._body_error: BadMessage | None = None
        self._client_stalled = False
        self._received = b""
        self._response: ResponseHead | None = None
        self._response_body: BodyReader = ContentLengthReader(0)
        self._sample: bytearray | None = None
        self._latency_s: float | None = None

    # ------------------------------------------------------------------------------------------------ the client's side

    def feed(self, data: bytes) -> bytes:
        """Forward a piece of the request body. Return the bytes after its end. Raises `BadMessage`."""
        self.active_at = self._loop.time()
        payload, rest = self.body.feed(data)
        out = payload
        if isinstance(self.body, ChunkedReader):
            out = encode_chunk(payload) + (LAST_CHUNK if self.body.done else b"")
        upstream = self._upstream
        if self._replay is not None:
            # Until there is a connection to the proxy, the whole body must be kept.
            if upstream is None or len(self._replay) + len(out) <= BUFFER_MAX:
                self._replay += out
            else:
                self._replay = None  # too much to send again
        if upstream is not None:
            upstream.send(out)
        elif self._replay is not None and len(self._replay) > BUFFER_MAX:
            self._client.pause()
        return rest

    def on_client_writable(self, *, is_writable: bool) -> None:
        self._client_stalled = not is_writable
        if self._upstream is not None and is_writable:
            self._upstream.resume()
        elif self._upstream is not None:
            self._upstream.pause()

    def fail(self, error: BadMessage) -> None:
        """End the exchange, because the request body is invalid."""
        self._body_error = error
        self._fail(error)

    def handle_timeout(self) -> bool:
        """Return True if the client is to blame for the timeout. Otherwise fail the attempt: the proxy is to blame.

        Does nothing before there is a connection to the proxy: connecting and leasing have their own time limits.
        """
        if self._upstream is None:
            return False
        if self._client_stalled or not self.body.done:
            return True
        error = FetchTimeout(f"the proxy sent nothing for {self._context.limits.answer_s:g} s")
        error.reached = True
        self._fail(error)
        return False

    # ------------------------------------------------------------------------------------------------- the proxy's side

    @property
    def outcome(self) -> Outcome | None:
        return None if self._response is None else self._judge(self._response)

    async def attempt(self, lease: GatewayLease, route: Route) -> Outcome | None:
        self._lease, self._latency_s = lease, None
        self._rules = self._context.rules_of(lease.proxy_lease.target)
        proxy = lease.proxy_lease.proxy
        # An HTTP proxy receives the request with its full URL. A SOCKS proxy first opens a tunnel to the host; so does
        # an HTTP proxy if the address is pinned.
        absolute = proxy.scheme in ("http", "https") and not route.pinned
        key = (proxy.key, "" if absolute else self._to.authority)
        login = proxy_authorization(proxy) if absolute else b""
        request = encode_request(self._head, self._to, self._path, self.body, absolute_form=absolute, login=login)
        while True:
            upstream = self._take_idle(key) or await self._connect(proxy, route, absolute=absolute)
            upstream.key = key
            try:
                await self._send(upstream, request)
            except ConnectionLost:
                if not upstream.is_reused or not self.can_repeat():
                    raise
                continue  # an idle connection was closed: the proxy is not to blame
            return self.outcome

    def can_repeat(self) -> bool:
        is_safe = not self._sent or self._head.method in IDEMPOTENT
        return is_safe and not self.started and self._replay is not None

    def on_data(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        try:
            if self._response is None:
                self._received += data
                self._read_heads()
            else:
                self._pass_on(b"", data)
        except BadMessage as error:
            self._fail(BadResponse(str(error)))
        except ProxyFailed as error:
            self._fail(error)

    def on_close(self, how: str) -> None:
        if self._response is not None and self._response_body.open_ended and how == "closed":
            self._finish(reusable=False)
        else:
            when = "before the response" if self._response is None else "in the middle of the response"
            self._fail(ConnectionLost(f"the connection was {how} {when}"))

    def on_writable(self, *, is_writable: bool) -> None:
        if is_writable:
            self._client.resume()
        else:
            self._client.pause()

    def _take_idle(self, key: UpstreamKey) -> Upstream | None:
        """Return an idle connection, but only for a repeatable request: the proxy may be closing the connection."""
        is_repeatable = self._head.method in IDEMPOTENT and self._replay is not None
        return self._context.idle_connections.take(key) if is_repeatable else None

    async def _connect(self, proxy: Proxy, route: Route, *, absolute: bool) -> Upstream:
        """Return a new connection to the proxy (`absolute`), or through the proxy to the host."""
        if absolute:
            upstream = await self._context.dialer.connect(proxy)
        else:
            to = await destination_for(self._context, route, proxy)
            upstream, early = await self._context.dialer.connect_through(proxy, to)
            if early:
                upstream.abort()
                raise ProxyFailed("proxy sent bytes before the request")
        self._latency_s = upstream.latency_s
        return upstream

    async def _send(self, upstream: Upstream, request: bytes) -> None:
        assert self._replay is not None
        self._upstream, self._sent = upstream, True
        self._done = self._loop.create_future()
        self._received, self._response = b"", None
        self.active_at = self._loop.time()
        upstream.listen(self)
        upstream.send(request + self._replay if self._replay else request)
        if len(self._replay) > BUFFER_MAX:
            self._replay = None
        upstream.resume()
        self._client.resume()
        if self._body_error is not None:
            self._fail(self._body_error)
        try:
            await self._done
        except BaseException:
            upstream.abort()
            raise
        finally:
            self._upstream = None

    def _read_heads(self) -> None:
        """Read interim responses (RFC 9110 §15.2), and then the head of the response."""
        while self._response is None and (end := head_end(self._received)):
            head, self._received = read_response(self._received[:end]), self._received[end:]
            if head.status >= 200:
                self._start_response(head)
            elif head.status == 101:
                raise BadMessage("the server switched to another protocol without being asked to")
            elif self._head.minor:  # HTTP/1.0 has no interim responses
                self._client.send(encode_response(head))

    def _start_response(self, head: ResponseHead) -> None:
        if head.status == 407:  # about our login, not the client's
            raise ProxyFailed(f"{PROXY_LOGIN_REFUSED} (407)")
        self._response_body = body = response_body_reader(head, self._head.method)
        self.keep_alive &= not body.open_ended and self.body.done
        chunked = isinstance(body, ChunkedReader)
        if chunked and not self._head.minor:  # HTTP/1.0 has no chunks: the body ends with the connection
            chunked = self.keep_alive = False
        self._response, self.status = head, head.status
        if head.status in CHALLENGE_STATUSES or self._rules:
            self._sample = bytearray()
        lines = (LEASE_FIELD + self._lease.id.encode(),)
        out = encode_response(head, lines, chunked=chunked, close=not self.keep_alive)
        received, self._received = self._received, b""
        self._pass_on(out, received)

    def _pass_on(self, out: bytes, data: bytes) -> None:
        body = self._response_body
        payload, rest = body.feed(data) if data and not body.done else (b"", data)
        if self._sample is not None and len(self._sample) < SEARCHED_MAX:
            self._sample += payload[: SEARCHED_MAX - len(self._sample)]
        if isinstance(body, ChunkedReader) and self._head.minor:
            payload = encode_chunk(payload) + (LAST_CHUNK if body.done else b"")
        if out or payload:
            self.started = True
            self._client.send(out + payload if out else payload)
        if body.done:
            assert self._response is not None
            self._finish(reusable=not rest and is_reusable(self._response, body) and self.body.done)

    def _finish(self, *, reusable: bool) -> None:
        upstream = self._upstream
        if upstream is None or self._done is None or self._done.done():
            return
        assert self._response is not None
        if reusable and not is_connection_bound(self._head) and not is_connection_bound(self._response):
            upstream.resume()
            self._context.idle_connections.add(upstream, self._loop.time())
        else:
            upstream.abort()
        self._upstream = None
        self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    def _judge(self, head: ResponseHead) -> Outcome:
        retry_after = head.values(b"retry-after")
        url = b"http://" + self._to.authority.encode() + self._path
        return judge(
            head.status,
            {"retry-after": retry_after[-1].decode("latin-1")} if retry_after else {},
            self._decode_sample(head),
            locations=[each.decode("latin-1") for each in (url, *head.values(b"location"))] if self._rules else (),
            rules=self._rules,
            now=self._context.now(),
            latency_s=self._latency_s,
        )

    def _decode_sample(self, head: ResponseHead) -> bytes:
        if not self._sample:
            return b""
        sample = bytes(self._sample)
        values = [value.decode("latin-1") for value in head.values(b"content-encoding")]
        return (codings.decode_body(sample, values, SEARCHED_MAX, text=True) or sample) if values else sample
