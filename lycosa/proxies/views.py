"""Proxies as they are kept in a store, and as people look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyState, ProxyTargetState
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.ports import ProxyView

AT_ONCE_MAX = 1_000
"""Proxies that may be asked for at once."""


def refuse_counts(count: int, request: ProxyRequest) -> None:
    """Raise `UsageError` for a number of proxies that cannot be lent at once."""
    if not 1 <= count <= AT_ONCE_MAX or (count > 1 and request.session):
        raise UsageError(f"{count} proxies at once: ask for 1 to {AT_ONCE_MAX:,}, or for one of a session")


def stored(proxy: Proxy) -> dict[str, Any]:
    """Return a proxy as it is kept: its address has the login."""
    prices = {"price_gb": proxy.price_gb, "price_request": proxy.price_request}
    return {"url": proxy.url, "tags": dict(proxy.tags), **prices}


def read_stored(told: Mapping[str, Any]) -> Proxy:
    """Return the proxy that was kept so."""
    proxy = parse_proxy(told["url"])
    prices = (float(told["price_gb"]), float(told["price_request"]))
    return replace(proxy, tags=dict(told["tags"] or {}), price_gb=prices[0], price_request=prices[1])


def facts_of(told: Mapping[str, Mapping[str, Any]]) -> dict[str, ProxyFacts]:
    """Return what targets know of proxies, of what a script says."""
    return {
        key: ProxyFacts(**{"latency_s": None, **each, "tags": dict(each["tags"] or {})})
        for key, each in dict(told).items()
    }


def view_on(proxy: Proxy, member: ProxyTargetState, now: float) -> ProxyView:
    """Return what is known of a proxy on one target."""
    counts = (member.uses, member.good, member.bad)
    return ProxyView(
        proxy, member.state(now), member.latency_s, *counts, member.at, member.reason, member.facts.exit_ip
    )


SEEN = ("rests_until", "dead", "latency_s", "reason", "exit_ip")
"""What is looked at of the health of a proxy."""


def view_everywhere(proxy: Proxy, health: Mapping[str, Any], counts: tuple[int, int, int], now: float) -> ProxyView:
    """Return what is known of a proxy as such; `counts` are its uses, good and bad answers on all targets."""
    rests_until = float(health["rests_until"])
    state = ProxyState.DEAD if health["dead"] else ProxyState.COOLING if rests_until > now else ProxyState.READY
    latency_s = None if health["latency_s"] in (None, False) else float(health["latency_s"])
    return ProxyView(proxy, state, latency_s, *counts, rests_until, health["reason"], health["exit_ip"])


def why_not(
    target: str, count: int, members: int, wait_s: float, counts: Mapping[ProxyState, int], *, is_empty: bool
) -> str:
    """Say why there is none, or are not so many."""
    if is_empty:
        return "the pool has no proxies: lycosa proxies add FILE"
    states = ", ".join(f"{counts[state]:,} {state}" for state in ProxyState if counts.get(state))
    within = f" within {round(wait_s, 2):g} s" if wait_s else ""
    if count == 1:
        return f"no proxy for {target} is free{within} ({states or 'none fits'})"
    more = f"; it has {members:,} at a time: members = {count}" if count > members else ""
    return f"no {count:,} proxies for {target} were free at once{within} ({states or 'none fits'}){more}"
