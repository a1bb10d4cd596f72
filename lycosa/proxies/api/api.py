"""The proxy pool over HTTP: lend, renew, give back with what came of it, add, ban, look, explain.

Every answer is JSON, every error {"error": "one line"}:

    400 what was asked makes no sense      409 no proxy is free (yet)           413 the body is too large
    401 no key, or a wrong one             410 the lease is over                503 the pool cannot be used now
    403 from another site or machine       404 there is no such thing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from msgspec import UNSET, Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import BadProxy, ConnectFailed, ConnectionLost, FetchTimeout, LycosaError
from lycosa.core.metrics import CONTENT_TYPE, exposition
from lycosa.proxies.api.leases import LeaseRegistry
from lycosa.proxies.api.metrics import pool_metrics
from lycosa.proxies.api.params import (
    LIST_MAX,
    decode_body,
    int_param,
    proxy_request_params,
    read_body,
    run_while_connected,
    scheme_param,
    tags_param,
    target_param,
    text_param,
)
from lycosa.proxies.api.schemas import (
    AddResponse,
    BanRequest,
    DoneResponse,
    ExplainResponse,
    HealthResponse,
    LeaseRequest,
    LeasesResponse,
    ListFault,
    OutcomeReport,
    PoolStats,
    ProxiesResponse,
    ReleaseRequest,
    RenewRequest,
    RenewResponse,
    TargetsResponse,
    UnbanRequest,
    choice_info,
    encode,
    lease_info,
    proxy_info,
    target_info,
    verdict_info,
)
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.explain import verdict_text
from lycosa.proxies.core.outcomes.outcome import Outcome, OutcomeRule, judge, judge_error
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.sources.lists import Fault, read_list
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyPool, ProxyView, TargetView

LIMIT, LIMIT_MAX, OFFSET_MAX = 100, 1_000, 1_000_000
FAULTS_SHOWN = 20
WAITING_MAX = 1_000
"""Who wait for a proxy at the same time."""

ERRORS = {"connect": ConnectFailed, "lost": ConnectionLost, "timeout": FetchTimeout}
OVER = "this lease is over: it was given back, or its time is up, or this server was started anew"

Rules = Callable[[str], Sequence[OutcomeRule]]


class Api:
    """The answers. `rules_of(target)` are rules of what an answer means; `now` is the time (unix seconds)."""

    def __init__(
        self, pool: ProxyPool, looks: SnapshotCache, rules_of: Rules, now: Callable[[], float], choices: Choices
    ) -> None:
        self._pool = pool
        self._choices = choices
        self._looks = looks
        self._rules_of = rules_of
        self._now = now
        self._held = LeaseRegistry()
        self._waiting = 0

    async def health(self, request: Request) -> Response:
        """Whether the pool can be used."""
        await self._pool.targets()
        return json_response(HealthResponse(ok=True))

    async def targets(self, request: Request) -> Response:
        """All targets."""
        name = target_param(request)
        views = [view for view in await self._pool.targets() if not name or view.target == name]
        return json_response(TargetsResponse([target_info(view) for view in views]))

    async def proxies(self, request: Request) -> Response:
        """A part of all proxies, or of those of a target."""
        limit, offset = int_param(request, "limit", LIMIT, 1, LIMIT_MAX), int_param(request, "offset", 0, 0, OFFSET_MAX)
        target = target_param(request)
        views = await (self._pool.proxies(target) if target else self._looks.proxies())
        views = select_proxies(views, state_param(request), tags_param(request))
        shown = [proxy_info(view) for view in views[offset : offset + limit]]
        return json_response(ProxiesResponse(shown, len(views), offset))

    async def add(self, request: Request) -> Response:
        """Take proxies in."""
        proxies, faults = parse_list(await read_body(request, LIST_MAX), scheme_param(request))
        if not proxies:
            raise HTTPException(400, str(faults[0]) if faults else "there is no proxy in this list")
        added = await self._pool.add(proxies)
        shown = [ListFault(*fault) for fault in faults[:FAULTS_SHOWN]]
        return json_response(AddResponse(added, len(proxies) - added, len(faults), shown))

    async def remove(self, request: Request) -> Response:
        """Forget a proxy."""
        if not await self._pool.remove([request.path_params["key"]]):
            raise HTTPException(404, "there is no such proxy")
        return json_response(DoneResponse(done_response=True))

    async def acquire(self, request: Request) -> Response:
        """Lend proxies."""
        wanted = await decode_body(request, LeaseRequest)
        if self._held.room(self._now()) < wanted.count or self._waiting >= WAITING_MAX:
            raise HTTPException(503, "too many leases are out, or asked for, at the moment", {"retry-after": "1"})
        proxy_request = ProxyRequest(wanted.tags, wanted.session, frozenset(wanted.avoid))
        lending = self._pool.acquire(
            wanted.target, wanted.count, proxy_request, lease_s=wanted.lease_s, wait_s=wanted.wait_s
        )  # fmt: skip
        asking = with_store_timeout(lending, wanted.wait_s)
        began = self._now()
        self._waiting += 1
        try:
            lease, left = await run_while_connected(request, asking)
        except LycosaError as error:
            self._choices.add(wanted.target, proxy_request, began, refusal=str(error))
            raise
        finally:
            self._waiting -= 1
        if left:
            for each in lease or ():
                await self._pool.release(each)
            return Response(status_code=499)  # nobody is there to read it
        return json_response(
            LeasesResponse([lease_info(self._kept(each, proxy_request, began), each) for each in lease or ()]), 201
        )

    async def renew(self, request: Request) -> Response:
        """Set another deadline."""
        wanted = await decode_body(request, RenewRequest)
        lease = self._lease(request)
        deadline = await self._pool.renew(lease, wanted.lease_s)
        if deadline is None:
            raise HTTPException(410, OVER)
        self._held.renewed(request.path_params["id"], deadline)
        return json_response(RenewResponse(deadline))

    async def release(self, request: Request) -> Response:
        """End a lease."""
        told = await decode_body(request, ReleaseRequest)
        lease = self._lease(request)
        outcomes = [self._outcome(lease.target, each) for each in told.outcomes]
        returned = await self._pool.release(lease, outcomes)
        choice = self._held.take(request.path_params["id"])
        if choice is not None:
            choice.end(outcomes, in_time=returned)
        if not returned:
            raise HTTPException(410, OVER)
        return json_response(DoneResponse(done_response=True))

    async def ban(self, request: Request) -> Response:
        """Keep a proxy from a target."""
        wanted = await decode_body(request, BanRequest)
        until = None if wanted.for_s is None else self._now() + wanted.for_s
        return done_response(await self._pool.ban(wanted.target, wanted.key, until, wanted.reason))

    async def unban(self, request: Request) -> Response:
        """Lift bans and rests."""
        wanted = await decode_body(request, UnbanRequest)
        return done_response(await self._pool.unban(wanted.target, wanted.key))

    async def explain(self, request: Request) -> Response:
        """Say why proxies would be lent, or not."""
        target, proxy_request = target_param(request, needed=True), proxy_request_params(request)
        limit = int_param(request, "limit", LIMIT_MAX, 1, LIMIT_MAX)
        told = await self._looks.explain(target, proxy_request)
        shown = [verdict_info(each, explanation_text(each, proxy_request)) for each in told[:limit]]
        lately = [choice_info(each) for each in self._choices.of(target)]
        return json_response(ExplainResponse(target, shown, len(told), lately))

    async def stats(self, request: Request) -> Response:
        """The whole pool in numbers."""
        return json_response(pool_stats(await self._looks.proxies(), await self._pool.targets()))

    async def metrics(self, request: Request) -> Response:
        """The same for Prometheus."""
        metrics = pool_metrics(await self._looks.proxies(), await self._pool.targets(), len(self._held))
        return Response(exposition(metrics), 200, {"content-type": CONTENT_TYPE})

    def _kept(self, lease: ProxyLease, proxy_request: ProxyRequest, began: float) -> str:
        """Return the name under which a lease is remembered."""
        told: dict[str, Any] = {"proxy": lease.proxy.name, "drawn_from": lease.drawn_from, "rebound": lease.rebound}
        return self._held.keep(lease, self._choices.add(lease.target, proxy_request, began, **told))

    def _lease(self, request: Request) -> ProxyLease:
        lease = self._held.get(request.path_params["id"])
        if lease is None:
            raise HTTPException(410, OVER)
        return lease

    def _outcome(self, target: str, told: OutcomeReport) -> Outcome:
        """Return what a use says. Raises `HTTPException`."""
        ways = [name for name in ("status", "error", "blame") if getattr(told, name) is not UNSET]
        if len(ways) != 1:
            raise HTTPException(400, "an outcome has one of status, error and blame")
        if told.status is not UNSET:
            headers = {name.lower(): value for name, value in (told.headers or {}).items()}
            body = (told.body or "").encode("utf-8", "replace")
            rules, now = self._rules_of(target), self._now()
            where = [each for each in [headers.get("location")] if each]
            return judge(told.status, headers, body, locations=where, rules=rules, now=now, latency_s=told.latency_s)
        if told.error is not UNSET:
            return judge_error(ERRORS[told.error](told.reason or f"{told.error} failed"), told.latency_s)
        assert told.blame is not UNSET
        return Outcome(told.blame, told.reason, told.rest_s, told.latency_s)


def json_response(value: Struct, status: int = 200) -> Response:
    """Return an answer."""
    return Response(encode(value), status, media_type="application/json")


def done_response(was_there: bool) -> Response:
    """Return that it was done, or that there is no such proxy. Raises `HTTPException`."""
    if not was_there:
        raise HTTPException(404, "there is no such proxy")
    return json_response(DoneResponse(done_response=True))


def parse_list(body: bytes, scheme: str) -> tuple[list[Proxy], list[Fault]]:
    """Return what a list holds. Raises `BadProxy`."""
    try:
        text = body.decode()
    except UnicodeDecodeError as wrong:
        raise BadProxy(f"a list in UTF-8 is wanted, and byte {wrong.start:,} of this one is not") from None
    parse_list = list(read_list(text, scheme))
    return [each for each in parse_list if isinstance(each, Proxy)], [
        each for each in parse_list if isinstance(each, Fault)
    ]


def state_param(request: Request) -> ProxyState | None:
    """Return the parameter `state`. Raises `HTTPException`."""
    text = text_param(request, "state")
    if text and text not in set(ProxyState):
        raise HTTPException(400, f"state {text[:20]!r}: write one of {', '.join(ProxyState)}")
    return ProxyState(text) if text else None


def select_proxies(views: Iterable[ProxyView], state: ProxyState | None, tags: dict[str, str]) -> list[ProxyView]:
    """Return those that are in this state, if one is given, and have these tags."""
    return [
        view for view in views if (state is None or view.state is state) and tags.items() <= view.proxy.tags.items()
    ]


def pool_stats(proxies: Sequence[ProxyView], targets: Sequence[TargetView]) -> PoolStats:
    """Return a pool in numbers."""
    states = Counter(view.state for view in proxies)
    latencies = [view.latency_s for view in proxies if view.latency_s is not None]
    return PoolStats(
        len(proxies),
        {state: states[state] for state in ProxyState},
        len(targets),
        sum(view.leases for view in targets),
        sum(view.granted for view in targets),
        sum(view.leaked for view in targets),
        sum(view.stale for view in targets),
        sum(view.uses for view in proxies),
        sum(view.good for view in proxies),
        sum(view.bad for view in proxies),
        median(latencies) if latencies else None,
    )


def explanation_text(told: ProxyExplanation, proxy_request: ProxyRequest) -> str:
    """Return a verdict in words; times are in UTC."""
    wanted = ", ".join(f"{name}={value}" for name, value in proxy_request.tags.items())
    return verdict_text(told.verdict, format_utc, tags=wanted)


def format_utc(at: float) -> str:
    """Return a time as it is written everywhere."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return "never"
