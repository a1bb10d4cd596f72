"""Explains why a pool on Redis would or would not lease a proxy, from the state that the scripts return.

A target on Redis is refilled when a request finds no free proxy. If more proxies may join, it is also refilled in the
background after a lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lycosa.proxies.core.explain import NEAREST_MAX, Why, explain
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyExplanation
from lycosa.proxies.redis.calls import PoolCalls
from lycosa.proxies.redis.target_script import read_explanation, script_of
from lycosa.proxies.views import facts_of, from_stored

FindProxy = Callable[[str], Awaitable[Proxy | None]]


async def explain_target(
    calls: PoolCalls, policy: TargetPolicy, target: str, request: ProxyRequest, now: float, find: FindProxy
) -> list[ProxyExplanation]:
    """Implements `ProxyPool.explain`. `find` looks up proxies that are not among the NEAREST_MAX with the
    lowest latency."""
    nearest, version = await calls.call_pool("nearest", count=NEAREST_MAX)
    facts = list(facts_of({key: each for key, _, each in nearest}).items())
    proxies = {key: from_stored(stored) for key, stored, _ in nearest}
    answer = await calls.call_target(target, script_of(policy).explain(request, version))
    snapshot = read_explanation(answer, policy)
    # A target with a free proxy leases it without a refill. Any other target is refilled first.
    verdicts = explain(replace(snapshot, is_filled=True), facts, request, now)
    if verdicts and verdicts[0].why is not Why.NEXT:
        verdicts = explain(snapshot, facts, request, now)
    explanations = []
    for verdict in verdicts:
        proxy = proxies.get(verdict.key) or await find(verdict.key)
        if proxy is not None:
            explanations.append(ProxyExplanation(proxy, verdict))
    return explanations
