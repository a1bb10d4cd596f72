"""The HTTP API of a proxy pool.

Responses are JSON; every error is {"error": "one line"}:

    400 invalid request              404 no such proxy                413 the body is too large
    401 missing or wrong key         409 no proxy is free             503 the pool is unavailable
    403 from another site or machine 410 the lease has ended          408 the body was too slow
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import BadProxy, ConnectFailed, ConnectionLost, FetchTimeout, LycosaError
from lycosa.core.metrics import CONTENT_TYPE, exposition
from lycosa.proxies.api.leases import LeaseRegistry
from lycosa.proxies.api.metrics import pool_metrics
from lycosa.proxies.api.params import (
    LIST_MAX,
    choice_param,
    decode_body,
    int_param,
    json_response,
    proxy_request_params,
    read_body,
    run_while_connected,
    tags_param,
    target_param,
)
from lycosa.proxies.api.schemas import (
    AddResponse,
    BanRequest,
    DoneResponse,
    ExplainResponse,
    HealthResponse,
    LeaseInfo,
    LeaseRequest,
    LeasesResponse,
    ListFault,
    OutcomeReport,
    ProxiesResponse,
    ReleaseRequest,
    RenewRequest,
    RenewResponse,
    TargetsResponse,
    UnbanRequest,
    choice_info,
    explanation_text,
    lease_info,
    pool_stats,
    proxy_info,
    select_proxies,
    target_info,
    verdict_info,
)
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.outcomes.outcome import Outcome, OutcomeRule, judge, judge_error, measured
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import PORTS, Proxy
from lycosa.proxies.core.sources.lists import Fault, read_list
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyLease

LIMIT, LIMIT_MAX, OFFSET_MAX = 100, 1_000, 1_000_000
FAULTS_SHOWN = 20
WAITING_MAX = 1_000

ERRORS = {"connect": ConnectFailed, "lost": ConnectionLost, "timeout": FetchTimeout}
LEASE_OVER = "this lease has ended: it was released, it has expired, or the server was restarted"
CLIENT_CLOSED_REQUEST = 499

RulesOf = Callable[[str], Sequence[OutcomeRule]]


class Api:
    """The request handlers. `rules_of(target)` returns outcome rules; `now` returns unix seconds."""

    def __init__(self, cache: SnapshotCache, rules_of: RulesOf, now: Callable[[], float], choices: Choices) -> None:
        self._pool = cache.pool
        self._cache = cache
        self._choices = choices
        self._rules_of = rules_of
        self._now = now
        self._leases = LeaseRegistry()
        self._waiting = 0

    async def health(self, request: Request) -> Response:
        await self._pool.targets()
        return json_response(HealthResponse(ok=True))

    async def targets(self, request: Request) -> Response:
        name = target_param(request)
        views = [view for view in await self._pool.targets() if not name or view.target == name]
        return json_response(TargetsResponse([target_info(view) for view in views]))

    async def proxies(self, request: Request) -> Response:
        limit, offset = int_param(request, "limit", LIMIT, 1, LIMIT_MAX), int_param(request, "offset", 0, 0, OFFSET_MAX)
        target = target_param(request)
        # A target has few proxies. Reading all proxies may be slow, so clients share a cached list.
        views = await (self._pool.proxies(target) if target else self._cache.proxies())
        state = choice_param(request, "state", list(ProxyState)) or None
        views = select_proxies(views, state, tags_param(request))
        shown = [proxy_info(view) for view in views[offset : offset + limit]]
        return json_response(ProxiesResponse(shown, len(views), offset))

    async def add(self, request: Request) -> Response:
        scheme = choice_param(request, "scheme", PORTS, "http")
        proxies, faults = parse_list(await read_body(request, LIST_MAX), scheme)
        if not proxies:
            raise HTTPException(400, str(faults[0]) if faults else "the list has no proxies")
        added = await self._pool.add(proxies)
        shown = [ListFault(*fault) for fault in faults[:FAULTS_SHOWN]]
        return json_response(AddResponse(added, len(proxies) - added, len(faults), shown))

    async def remove(self, request: Request) -> Response:
        return done_response(bool(await self._pool.remove([request.path_params["key"]])))

    async def acquire(self, request: Request) -> Response:
        body = await decode_body(request, LeaseRequest)
        # A lease that cannot be registered could not be released.
        if self._leases.room(self._now()) < body.count or self._waiting >= WAITING_MAX:
            raise HTTPException(503, "too many active leases or waiting lease requests", {"retry-after": "1"})
        proxy_request = ProxyRequest(body.tags, body.session, frozenset(body.avoid))
        acquiring = self._pool.acquire(
            body.target, body.count, proxy_request, lease_s=body.lease_s, wait_s=body.wait_s
        )  # fmt: skip
        started = self._now()
        self._waiting += 1
        try:
            # A disconnected client must leave the wait queue, or it would take another client's proxy.
            leases, left = await run_while_connected(request, with_store_timeout(acquiring, body.wait_s))
        except LycosaError as error:
            self._choices.add(body.target, proxy_request, started, refusal=str(error))
            raise
        finally:
            self._waiting -= 1
        if left:  # the client does not know the leases, so it cannot release them
            for lease in leases or ():
                await self._pool.release(lease)
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        infos = [self._register(lease, proxy_request, started) for lease in leases or ()]
        return json_response(LeasesResponse(infos), 201)

    async def renew(self, request: Request) -> Response:
        body = await decode_body(request, RenewRequest)
        deadline = await self._pool.renew(self._lease(request), body.lease_s)
        if deadline is None:
            raise HTTPException(410, LEASE_OVER)
        self._leases.renew(request.path_params["id"], deadline)
        return json_response(RenewResponse(deadline))

    async def release(self, request: Request) -> Response:
        body = await decode_body(request, ReleaseRequest)
        lease = self._lease(request)
        outcomes = [self._outcome(lease.target, each) for each in body.outcomes]
        outcomes = measured(outcomes, self._leases.held_s(request.path_params["id"], self._now()))
        was_active = await self._pool.release(lease, outcomes)
        choice = self._leases.remove(request.path_params["id"])
        if choice is not None:  # None: another request has released it meanwhile
            choice.end(outcomes, in_time=was_active)
        if not was_active:
            raise HTTPException(410, LEASE_OVER)
        return json_response(DoneResponse(done=True))

    async def ban(self, request: Request) -> Response:
        body = await decode_body(request, BanRequest)
        until = None if body.for_s is None else self._now() + body.for_s
        return done_response(await self._pool.ban(body.target, body.key, until, body.reason))

    async def unban(self, request: Request) -> Response:
        body = await decode_body(request, UnbanRequest)
        return done_response(await self._pool.unban(body.target, body.key))

    async def explain(self, request: Request) -> Response:
        target, proxy_request = target_param(request, required=True), proxy_request_params(request)
        limit = int_param(request, "limit", LIMIT_MAX, 1, LIMIT_MAX)
        found = await self._cache.explain(target, proxy_request)
        verdicts = [verdict_info(each, explanation_text(each, proxy_request, format_utc)) for each in found[:limit]]
        choices = [choice_info(each) for each in self._choices.of(target)]
        return json_response(ExplainResponse(target, verdicts, len(found), choices))

    async def stats(self, request: Request) -> Response:
        return json_response(pool_stats(await self._cache.proxies(), await self._pool.targets()))

    async def metrics(self, request: Request) -> Response:
        targets = await self._pool.targets()
        stats = pool_stats(await self._cache.proxies(), targets)
        metrics = pool_metrics(stats, targets, len(self._leases))
        return Response(exposition(metrics), 200, {"content-type": CONTENT_TYPE})

    def _register(self, lease: ProxyLease, proxy_request: ProxyRequest, started: float) -> LeaseInfo:
        choice = self._choices.add(
            lease.target,
            proxy_request,
            started,
            proxy=lease.proxy.name,
            drawn_from=lease.drawn_from,
            rebound=lease.rebound,
        )
        return lease_info(self._leases.add(lease, choice), lease)

    def _lease(self, request: Request) -> ProxyLease:
        lease = self._leases.get(request.path_params["id"])
        if lease is None:
            raise HTTPException(410, LEASE_OVER)
        return lease

    def _outcome(self, target: str, report: OutcomeReport) -> Outcome:
        if sum(field is not UNSET for field in (report.status, report.error, report.blame)) != 1:
            raise HTTPException(400, "an outcome must have exactly one of status, error and blame")
        if report.status is not UNSET:
            # Judged here, because the client may not know the current rules of the target.
            headers = {name.lower(): value for name, value in (report.headers or {}).items()}
            body = (report.body or "").encode("utf-8", "replace")
            locations = [headers["location"]] if headers.get("location") else []
            rules, latency_s = self._rules_of(target), report.latency_s
            return judge(
                report.status, headers, body, locations=locations, rules=rules, now=self._now(), latency_s=latency_s
            )
        if report.error is not UNSET:
            error = ERRORS[report.error](report.reason or f"{report.error} failed")
            error.reached = report.error == "timeout"  # a failed connection is reported as "connect"
            return judge_error(error, report.latency_s)
        assert report.blame is not UNSET
        return Outcome(report.blame, report.reason, report.rest_s, report.latency_s)


def done_response(found: bool) -> Response:
    """Return the response to a change. Raises `HTTPException` (404) if the proxy was not found."""
    if not found:
        raise HTTPException(404, "there is no such proxy")
    return json_response(DoneResponse(done=True))


def parse_list(body: bytes, scheme: str) -> tuple[list[Proxy], list[Fault]]:
    """Return the proxies and the faults of a list. Raises `BadProxy`."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadProxy(f"the list is not UTF-8 at byte {error.start:,}") from None
    found = list(read_list(text, scheme))
    return [each for each in found if isinstance(each, Proxy)], [each for each in found if isinstance(each, Fault)]


def format_utc(at: float) -> str:
    """Format unix seconds as UTC; "never" if out of range."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return "never"
