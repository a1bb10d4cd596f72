"""Why a pool on Redis would lend a proxy, or not: what its two scripts know, told by the pure part.

A target is filled up here after it has lent what it has, or when it has nothing to lend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lycosa.proxies.core.explain import NEAREST_MAX, Why, explain
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyExplanation
from lycosa.proxies.redis.calls import Calls
from lycosa.proxies.redis.target_script import script_of, seen
from lycosa.proxies.views import facts_of, from_stored

Find = Callable[[str], Awaitable[Proxy | None]]


async def explained(
    calls: Calls, policy: TargetPolicy, target: str, request: ProxyRequest, now: float, find: Find
) -> list[ProxyExplanation]:
    """See `ProxyPool.explain`. `find` returns the proxies that are not among the nearest."""
    told, version = await calls.everywhere("nearest", count=NEAREST_MAX)
    facts = facts_of({key: each for key, _, each in told})
    proxies = {key: from_stored(each) for key, each, _ in told}
    answer = await calls.target(target, script_of(policy).explain(request, version))
    told_now = seen(answer, policy)
    verdicts = explain(replace(told_now, is_filled=True), list(facts.items()), request, now)
    if verdicts and verdicts[0].why is not Why.NEXT:
        verdicts = explain(told_now, list(facts.items()), request, now)
    found = []
    for verdict in verdicts:
        proxy = proxies.get(verdict.key) or await find(verdict.key)
        if proxy is not None:
            found.append(ProxyExplanation(proxy, verdict))
    return found
