"""What the API of a proxy pool takes and answers, as types: they check what comes in, and are its description.

Times are unix seconds, latencies seconds. The only place with a login is the `url` of a lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lycosa.proxies.core.explain import Why
from lycosa.proxies.core.outcomes.outcome import Blame
from lycosa.proxies.core.pool.choices import LeaseChoice
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView

TARGET_MAX = 500
"""Characters of the name of a target."""

WORD_MAX = 200
REASON_MAX = 200
AVOID_MAX = 1_000
TAGS_MAX = 32
OUTCOMES_MAX = 1_000
LEASE_MAX_S = 86_400.0
WAIT_MAX_S = 60.0
COUNT_MAX = 1_000
BODY_EXCERPT_MAX = 65_536
"""Characters of a page that an outcome may tell, to look for captchas."""

Target = Annotated[
    str, Meta(min_length=1, max_length=TARGET_MAX, description="A site, by default its registrable domain")
]
Key = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="Stands for the whole identity of a proxy")]
Word = Annotated[str, Meta(max_length=WORD_MAX)]
Seconds = Annotated[float, Meta(ge=0)]
LeaseSeconds = Annotated[float, Meta(gt=0, le=LEASE_MAX_S)]
Tags = Annotated[dict[Word, Word], Meta(max_length=TAGS_MAX)]
Count = Annotated[int, Meta(ge=0)]


class RequestBody(Struct, forbid_unknown_fields=True):
    """What comes in: unknown names are refused, since they may be meant for known ones."""


class LeaseRequest(RequestBody):
    """Proxies for a target: `count` different ones at once, or none."""

    target: Target
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = 1
    tags: Tags = {}
    session: Annotated[Word, Meta(description="The same proxy for the same word, as long as it works")] = ""
    avoid: Annotated[list[Key], Meta(max_length=AVOID_MAX, description="Not these")] = []
    lease_s: Annotated[
        LeaseSeconds | None, Meta(description="How long; left out: as the policy of the target says")
    ] = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S, description="Wait so long for one, if none is free")] = 0.0


class RenewRequest(RequestBody):
    """Another deadline, counted from now."""

    lease_s: LeaseSeconds | None = None


class OutcomeReport(RequestBody):
    """How one request through the proxy ended: either `status` (with what helps to judge it), or `error`, or `blame`.

    `blame`: none (the page came), nobody (404, 5xx), miss (the connection broke), site (a ban), proxy (cannot be
    reached), unfit (alters pages: it is lent no more until a check finds it well). `latency_s` is TCP and TLS connect,
    without transfer.
    """

    status: Annotated[int, Meta(ge=100, le=999)] | UnsetType = UNSET
    headers: Annotated[dict[str, Annotated[str, Meta(max_length=8192)]], Meta(max_length=200)] | UnsetType = UNSET
    body: (
        Annotated[str, Meta(max_length=BODY_EXCERPT_MAX, description="The beginning of the page, to look for captchas")]
        | UnsetType
    ) = UNSET
    error: Literal["connect", "lost", "timeout"] | UnsetType = UNSET
    blame: Blame | UnsetType = UNSET
    reason: Annotated[str, Meta(max_length=REASON_MAX)] = ""
    rest_s: Seconds | None = None
    latency_s: Annotated[float, Meta(ge=0, le=3600)] | None = None


class ReleaseRequest(RequestBody):
    """An outcome for each use of the lease."""

    outcomes: Annotated[list[OutcomeReport], Meta(max_length=OUTCOMES_MAX)] = []


class BanRequest(RequestBody):
    """A proxy that a target is not to get: for `for_s` seconds, or until somebody lifts it."""

    target: Target
    key: Key
    for_s: Annotated[float, Meta(gt=0, le=LEASE_MAX_S * 365)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_MAX)] = "by hand"


class UnbanRequest(RequestBody):
    """A proxy whose bans and rests on a target are lifted."""

    target: Target
    key: Key


# ---------------------------------------------------------------------------------------------------------------------


class ErrorResponse(Struct):
    """What went wrong, in one line."""

    error: str


class HealthResponse(Struct):
    """Whether the pool can be used."""

    ok: bool


class DoneResponse(Struct):
    """It was done."""

    done: bool


class LeaseInfo(Struct):
    """A proxy, lent until `deadline`. `url` is what to connect through, with the login: a secret.

    `rebound`: its session had another one before. It was drawn from `among`; 0: its session asked for it.
    """

    id: str
    target: str
    key: Key
    name: str
    url: str
    deadline: float
    rebound: bool
    among: Count


class LeasesResponse(Struct):
    """As many as were asked for."""

    leases: list[LeaseInfo]


class RenewResponse(Struct):
    """The new deadline."""

    deadline: float


class ProxyInfo(Struct):
    """What is known of a proxy, everywhere or on one target. `until`: when a rest ends, null for none."""

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
    """A part of the proxies that were asked for; `total` is how many there are."""

    proxies: list[ProxyInfo]
    total: Count
    offset: Count


class TargetInfo(Struct):
    """What is known of a target. `interval_s` is the least time between two leases of one proxy."""

    target: str
    states: dict[ProxyState, Count]
    leases: Count
    granted: Count
    leaked: Count
    stale: Count
    interval_s: float


class TargetsResponse(Struct):
    """All targets."""

    targets: list[TargetInfo]


class ListFault(Struct):
    """What is wrong in a list, and in which line or entry, counted from 1."""

    line: int
    problem: str


class AddResponse(Struct):
    """How many proxies of a list are new, how many were known, and the first faults; `faulty` counts all."""

    added: Count
    known: Count
    faulty: Count
    faults: list[ListFault]


class VerdictInfo(Struct):
    """Whether a proxy would be lent now: `why` as a word, `says` as a sentence. See docs/proxy-api.md."""

    key: Key
    name: str
    why: Why
    says: str
    state: ProxyState
    until: float | None
    place: Count
    weight: float
    share: float
    tier: Count
    reason: str
    joins: bool


class ChoiceInfo(Struct):
    """A lease that this server lent, or refused: `name` "" and `why`. `came`: what came of it, "" is not known yet."""

    at: float
    name: str
    why: str
    came: str


class ExplainResponse(Struct):
    """A verdict for each proxy that may be lent for a target or is kept from it, those that may be leased next first.

    `choices` are the last leases that this server lent for the target, or could not lend, the newest first.
    """

    target: str
    verdicts: list[VerdictInfo]
    total: Count
    choices: list[ChoiceInfo]


class PoolStats(Struct):
    """The whole pool in numbers: proxies by state everywhere, and sums over all targets."""

    proxies: Count
    states: dict[ProxyState, Count]
    targets: Count
    leases: Count
    granted: Count
    leaked: Count
    stale: Count
    uses: Count
    good: Count
    bad: Count
    latency_median_s: float | None


def proxy_info(view: ProxyView) -> ProxyInfo:
    """Return a view as it is shown to everybody."""
    proxy = view.proxy
    return ProxyInfo(
        proxy.key,
        proxy.name,
        view.state,
        view.latency_s,
        view.uses,
        view.good,
        view.bad,
        view.until or None,
        view.reason,
        view.exit_ip,
        dict(proxy.tags),
        proxy.price_gb,
        proxy.price_request,
    )


def target_info(view: TargetView) -> TargetInfo:
    """Return a target as it is shown."""
    states = {state: view.states.get(state, 0) for state in ProxyState}
    return TargetInfo(view.target, states, view.leases, view.granted, view.leaked, view.stale, view.interval_s)


def verdict_info(told: ProxyExplanation, says: str) -> VerdictInfo:
    """Return a verdict as it is shown."""
    verdict = told.verdict
    return VerdictInfo(
        verdict.key,
        told.proxy.name,
        verdict.why,
        says,
        verdict.state,
        verdict.until or None,
        verdict.place,
        verdict.weight,
        verdict.share,
        verdict.tier,
        verdict.reason,
        verdict.joins,
    )


def lease_info(name: str, lease: ProxyLease) -> LeaseInfo:
    """Return a lease for its holder, under the name by which he gives it back."""
    proxy = lease.proxy
    return LeaseInfo(
        name, lease.target, proxy.key, proxy.name, proxy.url, lease.deadline, lease.rebound, max(0, lease.drawn_from)
    )


def export_row(proxy: Proxy) -> Mapping[str, object]:
    """Return what a list says of a proxy beside its address."""
    prices = {"price_gb": proxy.price_gb, "price_request": proxy.price_request}
    return {**proxy.tags, **{name: price for name, price in prices.items() if price}}


def choice_info(choice: LeaseChoice) -> ChoiceInfo:
    """Return a choice as it is told."""
    return ChoiceInfo(choice.at, choice.proxy, choice.why(), choice.result)


def encode(value: object) -> bytes:
    """Return JSON."""
    return msgspec.json.encode(value)
