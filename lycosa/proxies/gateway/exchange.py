"""One plain HTTP request: sent on through a proxy, perhaps another one, and its answer brought back as it comes.

What was sent of the body is kept as long as it is small, so that it can be sent again. A request is sent again when it
was the proxy's fault: it could not be reached, or wanted another login, whatever the method; it broke off before the
answer, for methods that may be sent twice (RFC 9110 §9.2.2). Never when the client has seen a byte of an answer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

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
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.outcome import CHALLENGE_STATUSES, LOOKED_AT, Outcome, judge
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.responses import LEASE
from lycosa.proxies.gateway.routing import Parts, Route, attempt, located, route
from lycosa.proxies.gateway.upstream import Key, Upstream


class ExchangeClient(Protocol):
    """The client, as far as its request needs it."""

    def send(self, data: bytes) -> None:
        """Write to it."""
        ...

    def pause(self) -> None:
        """Read no more of it for now."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


class Exchange:
    """See the module. `keep`: the client's connection can be used again; `began`: the client has seen some of it.

    `moved_at` is when anything happened last, in the loop's time.
    """

    def __init__(
        self,
        parts: Parts,
        client: ExchangeClient,
        head: RequestHead,
        body: BodyReader,
        asked: GatewayUser,
        to: Destination,
        path: bytes,
    ) -> None:
        self.began = False
        self.status = 0
        self.body = body
        self.keep = is_kept(head)
        self.moved_at = 0.0
        self._parts = parts
        self._client = client
        self._head = head
        self._asked = asked
        self._to = to
        self._path = path
        self._target = asked.site or parts.target_of(to.host)
        self._rules = parts.rules_of(self._target)
        self._loop = asyncio.get_running_loop()
        self._way: Route | None = None
        self._replay: bytearray | None = bytearray()
        self._sent = False
        self._upstream: Upstream | None = None
        self._hold: GatewayLease | None = None
        self._done: asyncio.Future[None] | None = None
        self._broken: BadMessage | None = None
        self._stalled = False
        self._came = b""
        self._answer: ResponseHead | None = None
        self._answer_body: BodyReader = ContentLengthReader(0)
        self._sample: bytearray | None = None
        self._latency_s: float | None = None

    # ------------------------------------------------------------------------------------------------ the client's side

    def take(self, data: bytes) -> bytes:
        """Take what came of the client. Return what is behind the end of the body. Raises `BadMessage`."""
        self.moved_at = self._loop.time()
        payload, rest = self.body.feed(data)
        out = payload
        if isinstance(self.body, ChunkedReader):
            out = encode_chunk(payload) + (LAST_CHUNK if self.body.done else b"")
        upstream = self._upstream
        if self._replay is not None:
            if upstream is None or len(self._replay) + len(out) <= BUFFER_MAX:
                self._replay += out
            else:
                self._replay = None
        if upstream is not None:
            upstream.send(out)
        elif self._replay is not None and len(self._replay) > BUFFER_MAX:
            self._client.pause()
        return rest

    def client_writable(self, *, yes: bool) -> None:
        """The client takes no more of the answer for now, or does again."""
        self._stalled = not yes
        if self._upstream is not None and yes:
            self._upstream.resume()
        elif self._upstream is not None:
            self._upstream.pause()

    def give_up(self, error: BadMessage) -> None:
        """The body cannot be read to its end."""
        self._broken = error
        self._fail(error)

    def timed_out(self) -> bool:
        """Nothing moved for too long. Return whether that is the client's fault, who neither sends nor reads.

        Waiting for a lease or a connection has limits of its own.
        """
        if self._upstream is None:
            return False
        if self._stalled or not self.body.done:
            return True
        error = FetchTimeout(f"the proxy brought nothing for {self._parts.limits.answer_s:g} s")
        error.reached = True
        self._fail(error)
        return False

    async def run(self) -> None:
        """Do it. Raises what `attempt` and `route` raise."""
        self.moved_at = self._loop.time()
        self._way = await route(self._parts, self._to)
        await attempt(self._parts, self._asked, self._target, self)

    # ------------------------------------------------------------------------------------------------- the proxy's side

    @property
    def outcome(self) -> Outcome | None:
        """See `Use`: what the answer says, as far as it has come."""
        return None if self._answer is None else self._judged(self._answer)

    async def go(self, hold: GatewayLease) -> Outcome | None:
        """See `Use`."""
        assert self._way is not None
        self._hold, self._latency_s = hold, None
        proxy = hold.lease.proxy
        whole = proxy.scheme in ("http", "https") and not self._way.pinned
        key = (proxy.key, "" if whole else self._way.to.authority)
        login = proxy_authorization(proxy) if whole else b""
        asks = encode_request(self._head, self._to, self._path, self.body, absolute_form=whole, login=login)
        while True:
            upstream = self._kept(key) or await self._opened(proxy, self._way, whole=whole)
            upstream.key = key
            try:
                await self._ask(upstream, asks)
            except ConnectionLost:
                if not upstream.is_reused or not self.may_repeat():
                    raise
                continue  # it was closed while nobody used it: that is no fault
            return self.outcome

    def may_repeat(self) -> bool:
        """See `Use`."""
        safe = not self._sent or self._head.method in IDEMPOTENT
        return safe and not self.began and self._replay is not None

    def came(self, data: bytes) -> None:
        """Bytes of the proxy."""
        self.moved_at = self._loop.time()
        try:
            if self._answer is None:
                self._came += data
                self._read_heads()
            else:
                self._pass_on(b"", data)
        except BadMessage as error:
            self._fail(BadResponse(str(error)))
        except ProxyFailed as error:
            self._fail(error)

    def lost(self, why: str) -> None:
        """The proxy's connection is over."""
        if self._answer is not None and self._answer_body.open_ended and why == "closed":
            self._finish(reusable=False)
        else:
            when = "before the answer" if self._answer is None else "in the middle of the answer"
            self._fail(ConnectionLost(f"the connection was {why} {when}"))

    def writable(self, *, yes: bool) -> None:
        """The proxy takes no more of the body for now, or does again."""
        if yes:
            self._client.resume()
        else:
            self._client.pause()

    def _kept(self, key: Key) -> Upstream | None:
        """Return a connection that is there, for what may be sent twice: the proxy may be closing it just now."""
        twice = self._head.method in IDEMPOTENT and self._replay is not None
        return self._parts.kept.take(key) if twice else None

    async def _opened(self, proxy: Proxy, way: Route, *, whole: bool) -> Upstream:
        """Return a new connection, to the proxy or through it."""
        if whole:
            upstream = await self._parts.dialer.open(proxy)
        else:
            way = await located(self._parts, way, proxy)
            upstream, early = await self._parts.dialer.through(proxy, way.through(proxy))
            if early:
                upstream.abort()
                raise ProxyFailed("proxy sent bytes before it was asked")
        self._latency_s = upstream.latency_s
        return upstream

    async def _ask(self, upstream: Upstream, asks: bytes) -> None:
        """Send the request, and wait until the answer is with the client."""
        assert self._replay is not None
        self._upstream, self._sent = upstream, True
        self._done = self._loop.create_future()
        self._came, self._answer = b"", None
        self.moved_at = self._loop.time()
        upstream.listen(self)
        upstream.send(asks + self._replay if self._replay else asks)
        if len(self._replay) > BUFFER_MAX:
            self._replay = None
        upstream.resume()
        self._client.resume()
        if self._broken is not None:
            self._fail(self._broken)
        try:
            await self._done
        except BaseException:
            upstream.abort()
            raise
        finally:
            self._upstream = None

    def _read_heads(self) -> None:
        """Read what stands before the body: perhaps interim answers first (RFC 9110 §15.2)."""
        while self._answer is None and (end := head_end(self._came)):
            head, self._came = read_response(self._came[:end]), self._came[end:]
            if head.status >= 200:
                self._begin(head)
            elif head.status == 101:
                raise BadMessage("another protocol that nobody asked for")
            elif self._head.minor:
                self._client.send(encode_response(head))

    def _begin(self, head: ResponseHead) -> None:
        """Begin the answer for the client."""
        if head.status == 407:
            raise ProxyFailed(f"{PROXY_LOGIN_REFUSED} (407)")
        assert self._hold is not None
        self._answer_body = body = response_body_reader(head, self._head.method)
        self.keep &= not body.open_ended and self.body.done
        chunked = isinstance(body, ChunkedReader)
        if chunked and not self._head.minor:
            chunked = self.keep = False
        self._answer, self.status = head, head.status
        if head.status in CHALLENGE_STATUSES or self._rules:
            self._sample = bytearray()
        lines = (LEASE + self._hold.id.encode(),)
        out = encode_response(head, lines, chunked=chunked, close=not self.keep)
        came, self._came = self._came, b""
        self._pass_on(out, came)

    def _pass_on(self, out: bytes, data: bytes) -> None:
        """Bring a piece of the answer to the client, behind `out`."""
        body = self._answer_body
        payload, rest = body.feed(data) if data and not body.done else (b"", data)
        if self._sample is not None and len(self._sample) < LOOKED_AT:
            self._sample += payload[: LOOKED_AT - len(self._sample)]
        if isinstance(body, ChunkedReader) and self._head.minor:
            payload = encode_chunk(payload) + (LAST_CHUNK if body.done else b"")
        if out or payload:
            self.began = True
            self._client.send(out + payload if out else payload)
        if body.done:
            assert self._answer is not None
            self._finish(reusable=not rest and is_reusable(self._answer, body) and self.body.done)

    def _finish(self, *, reusable: bool) -> None:
        """The answer is complete."""
        upstream = self._upstream
        if upstream is None or self._done is None or self._done.done():
            return
        assert self._answer is not None
        if reusable and not is_connection_bound(self._head) and not is_connection_bound(self._answer):
            upstream.resume()
            self._parts.kept.keep(upstream, self._loop.time())
        else:
            upstream.abort()
        self._upstream = None
        self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    def _judged(self, head: ResponseHead) -> Outcome:
        """Return what the answer says of the proxy."""
        waits, leads = head.values(b"retry-after"), head.values(b"location")
        return judge(
            head.status,
            {"retry-after": waits[-1].decode("latin-1")} if waits else {},
            self._sampled(head),
            locations=self._locations(leads) if self._rules else (),
            rules=self._rules,
            now=self._parts.now(),
            latency_s=self._latency_s,
        )

    def _locations(self, leads: list[bytes]) -> list[str]:
        """Return the address that answered, and where the answer leads."""
        asked = b"http://" + self._to.authority.encode() + self._path
        return [each.decode("latin-1") for each in (asked, *leads)]

    def _sampled(self, head: ResponseHead) -> bytes:
        """Return the beginning of the body, readable if it can be made so."""
        if not self._sample:
            return b""
        sample = bytes(self._sample)
        values = [value.decode("latin-1") for value in head.values(b"content-encoding")]
        return (codings.decode_body(sample, values, LOOKED_AT, text=True) or sample) if values else sample
