"""A pool of proxies on Redis, shared by many processes. Each acquire and each release is one call of a script.

A call whose answer was lost is repeated. If the server did execute the first acquire, its lease is never used and
expires. A release that was already executed gets the same answer as one that came too late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from lycosa.core.errors import NoProxy
from lycosa.core.redis_url import parse_redis_url
from lycosa.infra import clock
from lycosa.infra.redis.server import RedisServer
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import NO_PROXY_KEY, REACHED
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.late_releases import LateReleases
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView
from lycosa.proxies.redis.calls import PoolCalls
from lycosa.proxies.redis.expiry import PROXIES_PER_CALL, forget_dead, remove
from lycosa.proxies.redis.explain import explain_target
from lycosa.proxies.redis.outcome_reporter import OutcomeReporter
from lycosa.proxies.redis.refiller import Refiller
from lycosa.proxies.redis.target_script import TargetScript, TargetState, kind_of, read_grants, read_state, script_of
from lycosa.proxies.redis.wait_queue import REQUESTS_MAX, AcquireAnswers, RedisWaiter, RedisWaitQueue
from lycosa.proxies.views import (
    facts_of,
    from_stored,
    refuse_bad_count,
    to_stored,
    view_everywhere,
    view_on_target,
    why_none,
)

CACHED_MAX = 100_000
"""Proxies, with their logins, that a process caches. Others are read from the server."""

ANSWER_MAX_S = 5.0
"""Seconds to wait for the server's answer if the caller's `wait_s` is shorter."""

WHY_MAX_S = 2.0
"""Maximum time to find out why a request got no proxy."""


class RedisPool:
    """A `ProxyPool` on Redis. Create it with `redis_pool`."""

    def __init__(
        self,
        calls: PoolCalls,
        policy_of: Callable[[str], TargetPolicy],
        draw: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._calls = calls
        self._policy_of = policy_of
        self._draw = draw
        self._now = now
        self._cached: dict[str, Proxy] = {}
        self._queues: dict[str, dict[tuple[str, str], RedisWaitQueue]] = {}
        self._reporter = OutcomeReporter(self._report, draw)
        self._late = LateReleases()
        self._refiller = Refiller(calls, policy_of, self._cached.clear)
        self._returning: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        added = 0
        remaining = iter(proxies)
        while some := list(islice(remaining, PROXIES_PER_CALL)):
            stored = {each.key: to_stored(each) for each in some}
            new, new_tiers, changed = await self._calls.call_pool("add", proxies=stored, unchecked=unchecked)
            self._cache(some)
            added += new
            await (self._update_all() if new_tiers else self._update_targets(facts_of(changed)))
        self._refiller.refresh_next()
        self._wake()
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        removed = list(keys)
        count = await remove(self._calls, self._script, removed)
        for key in removed:
            self._cached.pop(key, None)
        return count

    async def count(self) -> int:
        count: int = await self._calls.call_pool("count")
        return count

    async def forget_dead(self, kept_s: float) -> list[str]:
        forgotten = await forget_dead(self._calls, self._script, kept_s)
        for key in forgotten:
            self._cached.pop(key, None)
        return forgotten

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        refuse_bad_count(count, request)
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiter = RedisWaiter(
            count, request, lease_s, loop.create_future(), now + wait_s, now + max(wait_s, ANSWER_MAX_S)
        )
        self._queue(target, request).join(waiter)
        try:
            grants = await waiter.granted
            return [self._cached_lease(target, each, request) or await self._lease(target, each) for each in grants]
        except BaseException as error:
            self._give_back(target, waiter.grants())  # the grant may have arrived while the caller was cancelled
            if isinstance(error, TimeoutError):
                raise NoProxy(await self._why(target, count, request, wait_s)) from None
            raise

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        call = self._script(lease.target).renew(lease.token, lease_s)
        deadline = await self._calls.call_target(lease.target, call)
        return None if deadline is False else float(deadline)

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        call = self._script(lease.target).release(lease.token, outcomes, self._draw())
        if await self._calls.call_target(lease.target, call) is False:
            self._late.add(lease)
            return False
        self._wake(lease.target, 1)
        await self._reporter.record(lease.proxy.key, outcomes)
        return True

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        if not await self._add_member(target, key):
            return False
        return bool(await self._calls.call_target(target, self._script(target).ban(key, until, reason)))

    async def unban(self, target: str, key: str) -> bool:
        if not await self._add_member(target, key):
            return False
        done = await self._calls.call_target(target, self._script(target).unban(key))
        self._wake(target)
        return bool(done)

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        if await self._proxy(key) is None:
            return False
        await self._reporter.record(NO_PROXY_KEY, REACHED)
        await self._reporter.record(key, [outcome])
        await self._reporter.flush()
        if outcome.blame is Blame.NONE:
            await self._update_targets(facts_of(await self._calls.call_pool("revive", key=key, exit_ip=exit_ip)))
            self._refiller.refresh_next()
            self._wake()
        return True

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        if target is not None:
            members = (await self._state(target)).members
            found = {key: await self._proxy(key) for key in members}
            return [
                view_on_target(proxy, members[key], self._now()) for key, proxy in found.items() if proxy is not None
            ]
        counts: Counter[tuple[str, str]] = Counter()
        for name in await self._calls.targets():
            for key, member in (await self._state(name)).members.items():
                counts.update({(key, "uses"): member.uses, (key, "good"): member.good, (key, "bad"): member.bad})
        return [
            view_everywhere(
                from_stored(stored), health, (counts[key, "uses"], counts[key, "good"], counts[key, "bad"]), self._now()
            )
            for key, stored, health in await self._calls.call_pool("list")
        ]

    async def targets(self) -> list[TargetView]:
        views = []
        for name in await self._calls.targets():
            members, counters, leases, interval_s = await self._state(name)
            states = Counter(member.state(self._now()) for member in members.values())
            counts = (counters["granted"], counters["leaked"], counters["stale"])
            views.append(TargetView(name, states, leases, *counts, interval_s))
        return views

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        return await explain_target(self._calls, self._policy_of(target), target, request, self._now(), self._proxy)

    async def exists(self) -> bool:
        return bool((await self._calls.call_pool("versions"))[0])

    async def create(self) -> None:
        await self._calls.call_pool("create")

    async def close(self) -> None:
        self._closed = True
        queues = [queue for by_kind in self._queues.values() for queue in by_kind.values()]
        for queue in queues:
            queue.close(NoProxy(CLOSED))
        if queues:
            await asyncio.wait([queue.task for queue in queues])
        if self._returning:
            await asyncio.wait(self._returning)
        await self._refiller.close()
        await self._reporter.close()
        await self._calls.close()

    def _queue(self, target: str, request: ProxyRequest) -> RedisWaitQueue:
        """Return the queue for requests with the same tags and session."""
        if self._closed:
            raise NoProxy(CLOSED)
        queues = self._queues.setdefault(target, {})
        kind = kind_of(request), request.session
        queue = queues.get(kind)
        if queue is None:
            queue = queues[kind] = RedisWaitQueue(
                partial(self._acquire_for, target),
                partial(self._refiller.refill, target, ProxyRequest(request.tags)),
                partial(self._give_back, target),
                partial(self._end_queue, target, kind),
                self._now,
            )
        return queue

    def _end_queue(self, target: str, kind: tuple[str, str]) -> None:
        del self._queues[target][kind]
        if not self._queues[target]:
            del self._queues[target]

    async def _acquire_for(self, target: str, waiters: Sequence[RedisWaiter]) -> AcquireAnswers:
        if self._closed:
            raise NoProxy(CLOSED)
        await self._refiller.refresh()
        script = self._script(target)
        calls = [
            script.acquire(
                [self._draw() for _ in range(each.count)], each.request, each.lease_s, self._refiller.version
            )
            for each in waiters
        ]
        answers = [read_grants(answer) for answer in await self._calls.call_target_all(target, calls)]
        is_filled = all(filled for _, filled in answers)
        if not is_filled and not any(isinstance(answer, Wait) for answer, _ in answers):
            self._refiller.start(target, ProxyRequest(waiters[0].request.tags))
        return AcquireAnswers([answer for answer, _ in answers], is_filled)

    def _give_back(self, target: str, grants: Sequence[Grant]) -> None:
        for grant in grants:
            returning = self._calls.call_target_all(
                target, [self._script(target).release(grant.token, (), self._draw())]
            )
            self._returning.add(returning)
            returning.add_done_callback(partial(self._end_return, target))

    def _end_return(self, target: str, returning: asyncio.Future[Any]) -> None:
        self._returning.discard(returning)
        if not returning.cancelled() and returning.exception() is None:  # after an error the lease expires
            self._wake(target, 1)

    def _cached_lease(self, target: str, grant: Grant, request: ProxyRequest) -> ProxyLease | None:
        proxy = self._cached.get(grant.key)
        if proxy is None:
            return None
        if request.tags and not request.tags.items() <= proxy.tags.items():  # another process changed the tags
            del self._cached[grant.key]
            return None
        return ProxyLease(target, grant.token, proxy, grant.deadline, grant.rebound, grant.drawn_from)

    async def _lease(self, target: str, grant: Grant) -> ProxyLease:
        proxy = await self._proxy(grant.key)
        if proxy is None:  # the process that removed the proxy has not updated this target yet, or was killed
            await self._calls.call_target(target, self._script(target).forget(grant.key))
            raise NoProxy(f"the proxy {grant.key} has just been removed")
        return ProxyLease(target, grant.token, proxy, grant.deadline, grant.rebound, grant.drawn_from)

    async def _proxy(self, key: str) -> Proxy | None:
        if key not in self._cached:
            stored = await self._calls.call_pool("proxy", key=key)
            if not stored:
                return None
            self._cache([from_stored(stored)])
        return self._cached[key]

    def _cache(self, proxies: Iterable[Proxy]) -> None:
        if len(self._cached) >= CACHED_MAX:
            self._cached.clear()
        self._cached.update((each.key, each) for each in proxies)

    async def _add_member(self, target: str, key: str) -> bool:
        """Add a proxy to a target, whatever the proxy's latency. Return False for an unknown proxy."""
        facts = facts_of(await self._calls.call_pool("facts", keys=[key], target=target))
        if facts:
            await self._calls.call_target(target, self._script(target).learn(facts))
        return bool(facts)

    async def _state(self, target: str) -> TargetState:
        return read_state(await self._calls.call_target(target, self._script(target).state()))

    async def _report(self, reports: Mapping[str, Any]) -> None:
        await self._update_targets(facts_of(await self._calls.call_pool("record", reports=reports)))

    async def _update_targets(self, facts: Mapping[str, ProxyFacts]) -> None:
        if facts:
            for target in await self._calls.targets():
                await self._calls.call_target(target, self._script(target).update(facts))

    async def _update_all(self) -> None:
        """Send to each target the facts of its members, because tiers have changed."""
        for target in await self._calls.targets():
            members = (await self._state(target)).members
            facts = facts_of(await self._calls.call_pool("facts", keys=list(members)))
            await self._calls.call_target(target, self._script(target).update(facts))

    async def _why(self, target: str, count: int, request: ProxyRequest, wait_s: float) -> str:
        try:
            async with asyncio.timeout(WHY_MAX_S):
                members = (await self._state(target)).members
                is_empty = not members and not await self.count()
        except TimeoutError:
            return f"no proxy for {target}: the pool's server does not answer"
        counts = Counter(member.state(self._now()) for member in members.values() if request.fits(member))
        return why_none(target, count, self._policy_of(target).members, wait_s, counts, is_empty=is_empty)

    def _wake(self, target: str | None = None, released: int = REQUESTS_MAX) -> None:
        """Make the waiting callers of this process ask the server again. `target`: None for all."""
        some = self._queues.values() if target is None else [self._queues.get(target, {})]
        for queues in some:
            for queue in queues.values():
                queue.wake(released)

    def _script(self, target: str) -> TargetScript:
        return script_of(self._policy_of(target))


async def redis_pool(
    url: str,
    name: str,
    report: Callable[[str], None],
    policy_of: Callable[[str], TargetPolicy] = lambda _: TargetPolicy(),
    *,
    now: Callable[[], float] | None = None,
    draw: Callable[[], float] = clock.chance,
) -> RedisPool:
    """Return the pool named `name`. `now` returns unix seconds; by default, the scripts use the server's clock.

    Raises `UsageError` for a bad address or a refused login, `StateError` if the server is unreachable or unsuitable.
    """
    server = RedisServer(parse_redis_url(url), report, subject="a pool of proxies", option="?pool=")
    clients = await server.clients()
    clients.blocking.close()
    time_text = (lambda: "") if now is None else (lambda: repr(now()))
    return RedisPool(PoolCalls(server, clients.loop, name, time_text), policy_of, draw, now or clock.Clock().now)
