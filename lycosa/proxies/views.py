"""Converts proxies to stored forms and views, and says why a request got no proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyState, ProxyTargetState
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.ports import ProxyView

COUNT_MAX = 1_000

HEALTH_FIELDS = ("rests_until", "dead", "latency_s", "reason", "exit_ip")


def refuse_bad_count(count: int, request: ProxyRequest) -> None:
    """Raise `UsageError` if one request cannot lease `count` proxies."""
    if not 1 <= count <= COUNT_MAX or (count > 1 and request.session):
        raise UsageError(f"{count} proxies at once: ask for 1 to {COUNT_MAX:,}, or for 1 with a session")


def to_stored(proxy: Proxy) -> dict[str, Any]:
    """Return the stored form of a proxy. Its URL includes the login."""
    prices = {"price_gb": proxy.price_gb, "price_request": proxy.price_request}
    return {"url": proxy.url, "tags": dict(proxy.tags), **prices}


def from_stored(stored: Mapping[str, Any]) -> Proxy:
    """Return the proxy with this stored form."""
    prices = (float(stored["price_gb"]), float(stored["price_request"]))
    return replace(
        parse_proxy(stored["url"]), tags=dict(stored["tags"] or {}), price_gb=prices[0], price_request=prices[1]
    )


def facts_of(answer: Mapping[str, Mapping[str, Any]]) -> dict[str, ProxyFacts]:
    """Return facts by proxy key from the answer of a Lua script, which sends an empty table as a list."""
    return {
        key: ProxyFacts(**{"latency_s": None, **each, "tags": dict(each["tags"] or {})})
        for key, each in dict(answer).items()
    }


def view_on_target(proxy: Proxy, member: ProxyTargetState, now: float) -> ProxyView:
    """Return the view of a proxy on one target."""
    state, counts = member.state(now), (member.uses, member.good, member.bad)
    until, exit_ip = member.eligible_at, member.facts.exit_ip
    return ProxyView(proxy, state, member.latency_s, *counts, until, member.reason, exit_ip)


def view_everywhere(proxy: Proxy, health: Mapping[str, Any], counts: tuple[int, int, int], now: float) -> ProxyView:
    """Return the view of a proxy across all targets. `counts`: uses, good and bad responses."""
    rests_until = float(health["rests_until"])
    state = ProxyState.DEAD if health["dead"] else ProxyState.COOLING if rests_until > now else ProxyState.READY
    latency_s = None if health["latency_s"] in (None, False) else float(health["latency_s"])
    return ProxyView(proxy, state, latency_s, *counts, rests_until, health["reason"], health["exit_ip"])


def why_none(
    target: str, count: int, members: int, wait_s: float, counts: Mapping[ProxyState, int], *, is_empty: bool
) -> str:
    """Say why a request for `count` proxies got none. `members`: the number in the target's policy."""
    if is_empty:
        return "the pool has no proxies: lycosa proxies add FILE"
    states = ", ".join(f"{counts[state]:,} {state}" for state in ProxyState if counts.get(state))
    within = f" within {round(wait_s, 2):g} s" if wait_s else ""
    if count == 1:
        return f"no proxy for {target} is free{within} ({states or 'none fits'})"
    more = f"; the target has at most {members:,}: set members = {count}" if count > members else ""
    return f"no {count:,} proxies for {target} were free at once{within} ({states or 'none fits'}){more}"
