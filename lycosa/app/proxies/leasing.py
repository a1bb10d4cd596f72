"""A pool of proxies for programs: lease one, use it, report the outcome. `lycosa.pool` is the public module."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypedDict, Unpack, overload

from lycosa.core.errors import LycosaError, UsageError
from lycosa.proxies.core.outcomes.clients import LATENCY_MAX_S, outcome_of_error, outcome_of_response
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule, measured
from lycosa.proxies.core.outcomes.reports import REPORTABLE
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.sources.lists import parse_line
from lycosa.proxies.ports import ProxyLease, ProxyPool, ProxyView, TargetView

log = logging.getLogger(__name__)

WAIT_S = 30.0
HOLD_MAX_S = 3600.0
"""The default `max_hold_s`: a block that never ends must not keep its proxy forever."""

LEASE_MIN_S, LEASE_MAX_S = 0.1, 86_400.0

RENEWALS = 3
"""Number of renewals per lease time. With several, the lease survives a failed renewal."""

REST_MAX_S = 86_400.0

REPORTS_MAX = 10_000
"""Maximum number of reports on one lease."""

TEXT_MAX = 255
"""Maximum number of characters of a target, a session, a tag or a reason. A longer reason is cut off."""


class LeaseOptions(TypedDict, total=False):
    """The keyword arguments of `Pool.lease`."""

    session: str
    tags: Mapping[str, str] | None
    avoid: Iterable[str]
    wait_s: float
    lease_s: float | None
    max_hold_s: float


class LeasedProxy:
    """A leased proxy. `url` is the address to connect with (a secret), `name` the address without the login.

    `rebound`: the session had another proxy before, so its cookies are useless now. `is_lost`: the lease ended before
    the block did, so another client may have the proxy.
    """

    def __init__(self, lease: ProxyLease, rules: Sequence[OutcomeRule]) -> None:
        self._rules = rules
        self._leased_at = time.monotonic()
        self.lease = lease
        self.outcomes: list[Outcome] = []
        self.is_lost = False

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}>"

    @property
    def url(self) -> str:
        """The address with the login: a secret."""
        return self.lease.proxy.url

    @property
    def proxies(self) -> dict[str, str]:
        """The address in the form that the `requests` library takes: `requests.get(url, proxies=proxy.proxies)`."""
        return {"http": self.url, "https": self.url}

    @property
    def name(self) -> str:
        return self.lease.proxy.name

    @property
    def tags(self) -> Mapping[str, str]:
        return self.lease.proxy.tags

    @property
    def target(self) -> str:
        return self.lease.target

    @property
    def rebound(self) -> bool:
        return self.lease.rebound

    def report(
        self,
        result: Any = None,
        *,
        body: bytes | None = None,
        blame: Blame | str | None = None,
        reason: str = "",
        rest_s: float | None = None,
        latency_s: float | None = None,
    ) -> Outcome:
        """Report the result of a request: a response of any HTTP client, a status, or an exception. Return its outcome.

        Each report counts as one use. `body` is searched for captchas and by the rules of the target; it is needed only
        if the response object has not read its body. `blame` ("none", "nobody", "miss", "site", "proxy") overrides the
        outcome of the result; `reason` is then a short text, and `rest_s` the cool-down in seconds. `latency_s` is the
        time to connect, in seconds; the default is the response's `elapsed`. Without either, the first report on a
        lease uses the time since the lease began, up to MEASURED_MAX_S, unless the proxy may not have been reached.
        Raises `UsageError` if `result` is neither a response nor a status nor an exception, unless `blame` is given,
        and for invalid arguments.
        """
        if len(self.outcomes) >= REPORTS_MAX:
            raise UsageError(f"more than {REPORTS_MAX:,} reports on one lease: take another lease")
        _refuse_bad_time("latency_s", latency_s, LATENCY_MAX_S)
        _refuse_bad_time("rest_s", rest_s, REST_MAX_S)
        if blame is not None:
            outcome = Outcome(_blame(blame), str(reason)[:TEXT_MAX], rest_s, latency_s)
        elif isinstance(result, BaseException):
            unknown = Outcome(Blame.NOBODY, type(result).__name__, None, latency_s)
            outcome = outcome_of_error(result, latency_s) or unknown
        else:
            outcome = outcome_of_response(result, body=body, rules=self._rules, now=time.time(), latency_s=latency_s)
        if not self.outcomes:
            (outcome,) = measured([outcome], time.monotonic() - self._leased_at)
        self.outcomes.append(outcome)
        return outcome


class Pool:
    """A pool of proxies. Errors of its store raise `StateError`."""

    def __init__(self, port: ProxyPool, policies: Policies) -> None:
        self.port = port
        self._policies = policies

    @overload
    def lease(
        self, target: str, n: None = None, **options: Unpack[LeaseOptions]
    ) -> AbstractAsyncContextManager[LeasedProxy]: ...

    @overload
    def lease(
        self, target: str, n: int, **options: Unpack[LeaseOptions]
    ) -> AbstractAsyncContextManager[list[LeasedProxy]]: ...

    def lease(self, target: str, n: int | None = None, **options: Unpack[LeaseOptions]) -> Any:
        """Lease the best proxy for a target while the block runs; with `n`, a list of `n` different proxies.

        `session`: the same name gets the same proxy again, as long as it works. `tags`: only proxies with these tags.
        `avoid`: keys of proxies to exclude. Waits up to `wait_s` for a proxy, then raises `NoProxy`, which says why
        there is none. The lease lasts `lease_s` (default: the target's policy) and is renewed until the block ends, for
        up to `max_hold_s`. If the process dies, the lease expires. If only one proxy is leased, an exception that
        leaves the block is reported if it concerns the proxy.
        """
        return self._lease(target, n, **options)

    @asynccontextmanager
    async def _lease(
        self,
        target: str,
        n: int | None,
        *,
        session: str = "",
        tags: Mapping[str, str] | None = None,
        avoid: Iterable[str] = (),
        wait_s: float = WAIT_S,
        lease_s: float | None = None,
        max_hold_s: float = HOLD_MAX_S,
    ) -> AsyncIterator[LeasedProxy | list[LeasedProxy]]:
        _refuse_bad_texts(target, session or "-", *(tags or {}), *(tags or {}).values())
        if lease_s is not None and not LEASE_MIN_S <= lease_s <= LEASE_MAX_S:
            raise UsageError(f"lease_s={lease_s}: write {LEASE_MIN_S} to {LEASE_MAX_S:,.0f} seconds")
        lease_s = self._policies.policy_of(target).lease_s if lease_s is None else lease_s
        request = ProxyRequest(dict(tags or {}), session, frozenset(avoid))
        leases = await self.port.acquire(target, 1 if n is None else n, request, lease_s=lease_s, wait_s=wait_s)
        rules = self._policies.rules_of(target)
        leased = [LeasedProxy(lease, rules) for lease in leases]
        renewing = asyncio.create_task(self._renew(leased, lease_s, max_hold_s))
        try:
            yield leased[0] if n is None else leased
        except BaseException as error:
            _report_error(leased, error)
            with suppress(LycosaError):  # the block's exception is more important
                await self._release(leased)
            raise
        else:
            await self._release(leased)
        finally:
            renewing.cancel()

    async def add(self, *proxies: Proxy | str) -> int:
        """Add proxies, as objects or as lines of a list. Return how many are new. Raises `BadProxy`."""
        read = [each for line in proxies for each in ([line] if isinstance(line, Proxy) else parse_line(line))]
        return await self.port.add(read)

    async def remove(self, *keys: str) -> int:
        """Remove proxies by their keys. Return how many were removed."""
        return await self.port.remove(keys)

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """Ban a proxy for a target, permanently or until a unix time. Return False if it is not in the pool."""
        return await self.port.ban(target, key, until, reason)

    async def unban(self, target: str, key: str) -> bool:
        """Lift bans and cool-downs of a proxy for a target. Return False if it is not in the pool."""
        return await self.port.unban(target, key)

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """Return all proxies, lowest latency first; with `target`, only the proxies of this target."""
        return await self.port.proxies(target)

    async def targets(self) -> list[TargetView]:
        return await self.port.targets()

    async def _renew(self, leased: Sequence[LeasedProxy], lease_s: float, max_hold_s: float) -> None:
        ends = time.monotonic() + max_hold_s
        while time.monotonic() < ends:
            await asyncio.sleep(lease_s / RENEWALS)
            for each in leased:
                if each.is_lost:
                    continue
                try:
                    each.is_lost = await self.port.renew(each.lease, lease_s) is None
                except LycosaError as error:
                    log.warning("the lease of %s for %s was not renewed: %s", each.name, each.target, error)
                if each.is_lost:
                    log.warning("the lease of %s for %s was lost", each.name, each.target)

    async def _release(self, leased: Sequence[LeasedProxy]) -> None:
        errors: list[LycosaError] = []
        for each in leased:
            try:
                each.is_lost = not await self.port.release(each.lease, each.outcomes)
            except LycosaError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _report_error(leased: Sequence[LeasedProxy], error: BaseException) -> None:
    outcome = outcome_of_error(error)
    # With several proxies it is unknown which of them caused the exception.
    if len(leased) == 1 and outcome is not None and len(leased[0].outcomes) < REPORTS_MAX:
        leased[0].outcomes.append(outcome)


def _refuse_bad_texts(*texts: object) -> None:
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= TEXT_MAX:
            shown = repr(text)[:80]
            raise UsageError(f"{shown} for a target, session or tag: write a string of 1 to {TEXT_MAX} characters")


def _refuse_bad_time(name: str, value: object, max_s: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value <= max_s):  # type: ignore[operator]
        raise UsageError(f"{name}={str(value)[:20]}: write 0 to {max_s:,.0f} seconds")


def _blame(blame: Blame | str) -> Blame:
    if blame not in REPORTABLE:
        raise UsageError(f"{blame!r} is not a blame: write one of {', '.join(REPORTABLE)}")
    return Blame(blame)
