"""The JSON bodies of the proxy API. These types validate requests, describe the API (OpenAPI) and encode responses.

Times are unix seconds, latencies seconds. Logins are secret: only the `url` of a lease contains one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lycosa.proxies.core.explain import Why, verdict_text
from lycosa.proxies.core.outcomes.outcome import Blame
from lycosa.proxies.core.pool.choices import LeaseChoice
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView

TARGET_MAX = 500
"""In characters."""

WORD_MAX = 200
REASON_MAX = 200
AVOID_MAX = 1_000
TAGS_MAX = 32
OUTCOMES_MAX = 1_000
LEASE_MAX_S = 86_400.0
WAIT_MAX_S = 60.0
COUNT_MAX = 1_000

BODY_EXCERPT_MAX = 65_536
"""In characters."""

Target = Annotated[
    str, Meta(min_length=1, max_length=TARGET_MAX, description="What the proxies are for, usually a registrable domain")
]
Key = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="Identifies a proxy: scheme, host, port and login")]
Word = Annotated[str, Meta(max_length=WORD_MAX)]
Seconds = Annotated[float, Meta(ge=0)]
LeaseSeconds = Annotated[float, Meta(gt=0, le=LEASE_MAX_S)]
Tags = Annotated[dict[Word, Word], Meta(max_length=TAGS_MAX)]
Count = Annotated[int, Meta(ge=0)]


class RequestBody(Struct, forbid_unknown_fields=True):
    """Rejects unknown fields, because they may be misspelled."""


class LeaseRequest(RequestBody):
    """Lease `count` different proxies for a target, all or none."""

    target: Target
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = 1
    tags: Tags = {}
    session: Annotated[Word, Meta(description="Requests with the same word get the same proxy while it works")] = ""
    avoid: Annotated[list[Key], Meta(max_length=AVOID_MAX, description="Exclude these proxies")] = []
    lease_s: Annotated[
        LeaseSeconds | None, Meta(description="Duration of the lease; default: as in the target's policy")
    ] = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S, description="How long to wait for a free proxy")] = 0.0


class RenewRequest(RequestBody):
    """Renew a lease; its new duration counts from now."""

    lease_s: LeaseSeconds | None = None


class OutcomeReport(RequestBody):
    """The outcome of one request through the proxy: give exactly one of `status`, `error` and `blame`.

    `headers` and `body` help to judge a status. `blame`: none (success), nobody (404, 5xx), miss (the connection
    broke), site (a ban), proxy (unreachable), unfit (the proxy alters pages, so it is not leased again until a check
    finds it working). `latency_s` is the time of the TCP and TLS handshakes, without the transfer. If no outcome of a
    lease has a latency, the latency is derived from the time since the lease was granted.
    """

    status: Annotated[int, Meta(ge=100, le=999)] | UnsetType = UNSET
    headers: Annotated[dict[str, Annotated[str, Meta(max_length=8192)]], Meta(max_length=200)] | UnsetType = UNSET
    body: (
        Annotated[str, Meta(max_length=BODY_EXCERPT_MAX, description="The start of the page, to detect captchas")]
        | UnsetType
    ) = UNSET
    error: Literal["connect", "lost", "timeout"] | UnsetType = UNSET
    blame: Blame | UnsetType = UNSET
    reason: Annotated[str, Meta(max_length=REASON_MAX)] = ""
    rest_s: Seconds | None = None
    latency_s: Annotated[float, Meta(ge=0, le=3600)] | None = None


class ReleaseRequest(RequestBody):
    """Release a lease, with one outcome per use."""

    outcomes: Annotated[list[OutcomeReport], Meta(max_length=OUTCOMES_MAX)] = []


class BanRequest(RequestBody):
    """Ban a proxy for a target, for `for_s` seconds or until the ban is lifted."""

    target: Target
    key: Key
    for_s: Annotated[float, Meta(gt=0, le=LEASE_MAX_S * 365)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_MAX)] = "by hand"


class UnbanRequest(RequestBody):
    """Lift the bans and cool-downs of a proxy for a target."""

    target: Target
    key: Key


# ---------------------------------------------------------------------------------------------------------------------


class ErrorResponse(Struct):
    """What is wrong, in one line."""

    error: str


class HealthResponse(Struct):
    """Whether the pool can be used."""

    ok: bool


class DoneResponse(Struct):
    """The request was carried out."""

    done: bool


class LeaseInfo(Struct):
    """A proxy, leased until `deadline`. `url` is its address with the login: a secret.

    `rebound`: the session used another proxy before. `drawn_from`: the proxy was drawn from at most this many of the
    best proxies; 0 if the session was already bound to it.
    """

    id: str
    target: str
    key: Key
    name: str
    url: str
    deadline: float
    rebound: bool
    drawn_from: Count


class LeasesResponse(Struct):
    """The leases, as many as requested."""

    leases: list[LeaseInfo]


class RenewResponse(Struct):
    """The new deadline."""

    deadline: float


class ProxyInfo(Struct):
    """The state of a proxy, for all targets or one.

    `until`: the end of a cool-down or, for one target, of the delay after a lease; it may have passed; null for none.
    """

    key: Key
    name: str
    state: ProxyState
    latency_s: float | None
    uses: Count
    good: Count
    bad: Count
    until: float | None
    reason: str
    exit_ip: str
    tags: dict[str, str]
    price_gb: float
    price_request: float


class ProxiesResponse(Struct):
    """One page of the selected proxies; `total` is the number of selected proxies on all pages."""

    proxies: list[ProxyInfo]
    total: Count
    offset: Count


class TargetInfo(Struct):
    """The state of a target. `interval_s`: the minimum time between two leases of one proxy."""

    target: str
    states: dict[ProxyState, Count]
    leases: Count
    granted: Count
    leaked: Count
    stale: Count
    interval_s: float


class TargetsResponse(Struct):
    """All targets, or the one requested."""

    targets: list[TargetInfo]


class ListFault(Struct):
    """A problem in a list, and its line number, from 1. In JSON, the problem also names the entry."""

    line: int
    problem: str


class AddResponse(Struct):
    """How many entries of a list are new proxies, known proxies or faulty. `faults` has the first problems."""

    added: Count
    known: Count
    faulty: Count
    faults: list[ListFault]


class VerdictInfo(Struct):
    """Whether a proxy would be leased now: `why` as a word, `text` as a sentence. See docs/proxy-api.md."""

    key: Key
    name: str
    why: Why
    text: str
    state: ProxyState
    until: float | None
    place: Count
    weight: float
    share: float
    tier: Count
    reason: str
    joins: bool


class ChoiceInfo(Struct):
    """A lease granted by this server, or a refused request (`name` is ""). `result` is "" before the release."""

    at: float
    name: str
    why: str
    result: str


class ExplainResponse(Struct):
    """A verdict for each proxy of a target; proxies that may be leased next come first.

    `choices`: this server's latest leases and refused requests for the target, newest first.
    """

    target: str
    verdicts: list[VerdictInfo]
    total: Count
    choices: list[ChoiceInfo]


class PoolStats(Struct):
    """Statistics of the whole pool: its proxies by state, and sums over all targets."""

    proxies: Count
    states: dict[ProxyState, Count]
    latency_median_s: float | None
    targets: Count
    leases: Count
    granted: Count
    leaked: Count
    stale: Count
    uses: Count
    good: Count
    bad: Count


def select_proxies(views: Iterable[ProxyView], state: str | None, tags: Mapping[str, str]) -> list[ProxyView]:
    """Return the proxies in this state (None: any) that have all these tags."""
    return [
        view for view in views if (state is None or view.state == state) and tags.items() <= view.proxy.tags.items()
    ]


def pool_stats(proxies: Sequence[ProxyView], targets: Sequence[TargetView]) -> PoolStats:
    """Return the statistics of a pool."""
    states = Counter(view.state for view in proxies)
    latencies = [view.latency_s for view in proxies if view.latency_s is not None]
    return PoolStats(
        proxies=len(proxies),
        states={state: states[state] for state in ProxyState},
        latency_median_s=median(latencies) if latencies else None,
        targets=len(targets),
        leases=sum(view.leases for view in targets),
        granted=sum(view.granted for view in targets),
        leaked=sum(view.leaked for view in targets),
        stale=sum(view.stale for view in targets),
        uses=sum(view.uses for view in proxies),
        good=sum(view.good for view in proxies),
        bad=sum(view.bad for view in proxies),
    )


def proxy_info(view: ProxyView) -> ProxyInfo:
    """Return a view without the login."""
    proxy = view.proxy
    return ProxyInfo(
        key=proxy.key,
        name=proxy.name,
        state=view.state,
        latency_s=view.latency_s,
        uses=view.uses,
        good=view.good,
        bad=view.bad,
        until=view.until or None,
        reason=view.reason,
        exit_ip=view.exit_ip,
        tags=dict(proxy.tags),
        price_gb=proxy.price_gb,
        price_request=proxy.price_request,
    )


def target_info(view: TargetView) -> TargetInfo:
    """Return a target with the counts of all states, including states without proxies."""
    return TargetInfo(**view._replace(states={state: view.states.get(state, 0) for state in ProxyState})._asdict())


def verdict_info(explanation: ProxyExplanation, text: str) -> VerdictInfo:
    """Return a verdict in its JSON form, with its text."""
    proxy, verdict = explanation
    return VerdictInfo(**{**verdict._asdict(), "until": verdict.until or None}, name=proxy.name, text=text)


def explanation_text(explanation: ProxyExplanation, request: ProxyRequest, format_time: Callable[[float], str]) -> str:
    """Return a verdict in words."""
    tags = ", ".join(f"{name}={value}" for name, value in request.tags.items())
    return verdict_text(explanation.verdict, format_time, tags=tags)


def lease_info(lease_id: str, lease: ProxyLease) -> LeaseInfo:
    """Return a lease in its JSON form."""
    proxy, drawn_from = lease.proxy, max(0, lease.drawn_from)
    return LeaseInfo(
        lease_id, lease.target, proxy.key, proxy.name, proxy.url, lease.deadline, lease.rebound, drawn_from
    )


def choice_info(choice: LeaseChoice) -> ChoiceInfo:
    """Return a choice in its JSON form."""
    return ChoiceInfo(choice.at, choice.proxy, choice.why(), choice.result)
