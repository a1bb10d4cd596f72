"""A pool of proxies that many processes share, on Redis: one call lends, one gives back.

A call whose answer was lost is made again: a lease that nobody knows of comes back with its time, and a return that was
heard already is refused like a late one.
"""

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
from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyTargetState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.late_releases import LateReleases
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView
from lycosa.proxies.redis.calls import Calls
from lycosa.proxies.redis.expiry import TOLD_AT_ONCE, forget_dead, remove
from lycosa.proxies.redis.explain import explained
from lycosa.proxies.redis.outcome_reporter import Hearing
from lycosa.proxies.redis.refiller import Refiller
from lycosa.proxies.redis.target_script import TargetScript, granted, kind_of, looked, script_of
from lycosa.proxies.redis.wait_queue import ASKED_MAX, Answers, Asker, Line
from lycosa.proxies.views import (
    facts_of,
    from_stored,
    refuse_bad_count,
    to_stored,
    view_everywhere,
    view_on_target,
    why_none,
)

KNOWN_MAX = 100_000
"""Proxies that a process remembers with their logins; the others are asked for."""

AT_LEAST_S = 5.0
"""Who does not want to wait waits so long at most until he was asked for."""

SAY_WHY_S = 2.0
"""It may take so long to find out why there is none."""


class RedisPool:
    """See `proxies.ports.ProxyPool`. Make it with `redis_pool`."""

    def __init__(
        self,
        calls: Calls,
        policy_of: Callable[[str], TargetPolicy],
        draw: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._calls = calls
        self._policy_of = policy_of
        self._draw = draw
        self._now = now
        self._known: dict[str, Proxy] = {}
        self._lines: dict[str, dict[tuple[str, str], Line]] = {}
        self._hearing = Hearing(self._told, draw)
        self._late = LateReleases()
        self._filling = Refiller(calls, policy_of, self._known.clear)
        self._returning: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """See `ProxyPool`."""
        added = 0
        waiting = iter(proxies)
        while some := list(islice(waiting, TOLD_AT_ONCE)):
            told = {each.key: to_stored(each) for each in some}
            new, prices, changed = await self._calls.everywhere("add", proxies=told, unchecked=unchecked)
            self._know(some)
            added += new
            await (self._tell_all() if prices else self._tell(facts_of(changed)))
        self._filling.changed()
        self._woken()
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        """See `ProxyPool`."""
        gone = list(keys)
        count = await remove(self._calls, self._script, gone)
        for key in gone:
            self._known.pop(key, None)
        return count

    async def count(self) -> int:
        """See `ProxyPool`."""
        number: int = await self._calls.everywhere("count")
        return number

    async def forget_dead(self, kept_s: float) -> list[str]:
        """See `ProxyPool`."""
        gone = await forget_dead(self._calls, self._script, kept_s)
        for key in gone:
            self._known.pop(key, None)
        return gone

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
        ends = loop.time() + wait_s
        asker = Asker(count, request, lease_s, ends, max(ends, ends - wait_s + AT_LEAST_S), loop.create_future())
        self._line(target, request).join(asker)
        try:
            grants = await asker.granted
            return [self._remembered(target, each, request) or await self._asked(target, each) for each in grants]
        except BaseException as wrong:
            self._give_back(target, asker.got())  # in the moment in which he stopped waiting
            if isinstance(wrong, TimeoutError):
                raise NoProxy(await self._why(target, count, request, wait_s)) from None
            raise

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        """See `ProxyPool`."""
        until = await self._calls.target(lease.target, self._script(lease.target).renew(lease.token, lease_s))
        return None if until is False else float(until)

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        call = self._script(lease.target).release(lease.token, outcomes, self._draw())
        if await self._calls.target(lease.target, call) is False:
            self._late.add(lease)
            return False
        self._woken(lease.target, 1)
        await self._hearing.hear(lease.proxy.key, outcomes)
        return True

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """See `ProxyPool`."""
        if not await self._has(target, key):
            return False
        return bool(await self._calls.target(target, self._script(target).ban(key, until, reason)))

    async def unban(self, target: str, key: str) -> bool:
        """See `ProxyPool`."""
        if not await self._has(target, key):
            return False
        done = await self._calls.target(target, self._script(target).unban(key))
        self._woken(target)
        return bool(done)

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """See `ProxyPool`."""
        if await self._proxy(key) is None:
            return False
        await self._hearing.hear(NO_PROXY_KEY, REACHED)
        await self._hearing.hear(key, [outcome])
        await self._hearing.tell()
        if outcome.blame is Blame.NONE:
            await self._tell(facts_of(await self._calls.everywhere("revive", key=key, exit_ip=exit_ip)))
            self._filling.changed()
            self._woken()
        return True

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """See `ProxyPool`."""
        if target is not None:
            pairs, *_ = await self._look(target)
            found = {key: await self._proxy(key) for key in pairs}
            return [view_on_target(proxy, pairs[key], self._now()) for key, proxy in found.items() if proxy is not None]
        sums: Counter[tuple[str, str]] = Counter()
        for name in await self._calls.targets():
            for key, pair in (await self._look(name))[0].items():
                sums.update({(key, "uses"): pair.uses, (key, "good"): pair.good, (key, "bad"): pair.bad})
        return [
            view_everywhere(
                from_stored(told), health, (sums[key, "uses"], sums[key, "good"], sums[key, "bad"]), self._now()
            )
            for key, told, health in await self._calls.everywhere("look")
        ]

    async def targets(self) -> list[TargetView]:
        """See `ProxyPool`."""
        views = []
        for name in await self._calls.targets():
            pairs, counts, leases, interval_s = await self._look(name)
            states = Counter(pair.state(self._now()) for pair in pairs.values())
            numbers = (counts["granted"], counts["leaked"], counts["stale"])
            views.append(TargetView(name, states, leases, *numbers, interval_s))
        return views

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """See `ProxyPool`."""
        return await explained(self._calls, self._policy_of(target), target, request, self._now(), self._proxy)

    async def is_there(self, *, create: bool = False) -> bool:
        """Whether there is a pool of this name on the server; with `create` there is one now."""
        if create:
            await self._calls.everywhere("make")
            return True
        return bool((await self._calls.everywhere("version"))[0])

    async def close(self) -> None:
        """See `ProxyPool`."""
        self._closed = True
        lines = [line for each in self._lines.values() for line in each.values()]
        for line in lines:
            line.close(NoProxy(CLOSED))
        if lines:
            await asyncio.wait([line.task for line in lines])
        if self._returning:
            await asyncio.wait(self._returning)
        await self._filling.close()
        await self._hearing.close()
        await self._calls.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _line(self, target: str, request: ProxyRequest) -> Line:
        """Return the line for this wish, a new one if nobody waits with it."""
        if self._closed:
            raise NoProxy(CLOSED)
        lines = self._lines.setdefault(target, {})
        which = kind_of(request), request.session
        line = lines.get(which)
        if line is None:
            plain = ProxyRequest(request.tags)
            ask, fill = partial(self._ask, target), partial(self._filling.fill, target, plain)
            ended = partial(self._end_line, target, which)
            line = lines[which] = Line(ask, fill, partial(self._give_back, target), ended, self._now)
        return line

    def _end_line(self, target: str, which: tuple[str, str]) -> None:
        del self._lines[target][which]
        if not self._lines[target]:
            del self._lines[target]

    async def _ask(self, target: str, askers: Sequence[Asker]) -> Answers:
        """Ask for all of them in one call, or in few."""
        if self._closed:
            raise NoProxy(CLOSED)
        await self._filling.see()
        script = self._script(target)
        calls = [
            script.acquire([self._draw() for _ in range(each.count)], each.request, each.lease_s, self._filling.version)
            for each in askers
        ]
        answers = [granted(answer) for answer in await self._calls.together(target, calls)]
        is_filled = all(filled for _, filled in answers)
        if not is_filled and not any(isinstance(answer, Wait) for answer, _ in answers):
            self._filling.begin(target, ProxyRequest(askers[0].request.tags))
        return Answers([answer for answer, _ in answers], is_filled)

    def _give_back(self, target: str, grants: Sequence[Grant]) -> None:
        """Return what nobody has taken."""
        for grant in grants:
            returning = self._calls.together(target, [self._script(target).release(grant.token, (), self._draw())])
            self._returning.add(returning)
            returning.add_done_callback(partial(self._given_back, target))

    def _given_back(self, target: str, returning: asyncio.Future[Any]) -> None:
        self._returning.discard(returning)
        if not returning.cancelled() and returning.exception() is None:  # otherwise its time brings it back
            self._woken(target, 1)

    def _remembered(self, target: str, grant: Grant, request: ProxyRequest) -> ProxyLease | None:
        """Return the lease if this process knows its proxy."""
        proxy = self._known.get(grant.key)
        if proxy is None:
            return None
        if request.tags and not request.tags.items() <= proxy.tags.items():  # others have given it other tags
            del self._known[grant.key]
            return None
        return ProxyLease(target, grant.token, proxy, grant.deadline, grant.rebound, grant.drawn_from)

    async def _asked(self, target: str, grant: Grant) -> ProxyLease:
        """Return the lease, with what the server knows of its proxy."""
        proxy = await self._proxy(grant.key)
        if proxy is None:  # by somebody who has not told this target yet, or ended before he could
            await self._calls.target(target, self._script(target).forget(grant.key))
            raise NoProxy(f"the proxy {grant.key} was removed in this moment")
        return ProxyLease(target, grant.token, proxy, grant.deadline, grant.rebound, grant.drawn_from)

    async def _proxy(self, key: str) -> Proxy | None:
        """Return a proxy, by what is known here if possible."""
        if key not in self._known:
            told = await self._calls.everywhere("proxy", key=key)
            if not told:
                return None
            self._know([from_stored(told)])
        return self._known[key]

    def _know(self, proxies: Iterable[Proxy]) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known.update((each.key, each) for each in proxies)

    async def _has(self, target: str, key: str) -> bool:
        """Let a target have a proxy, wherever that stands. False when there is none of this key."""
        facts = facts_of(await self._calls.everywhere("facts", keys=[key], target=target))
        if facts:
            await self._calls.target(target, self._script(target).learn(facts))
        return bool(facts)

    async def _look(self, target: str) -> tuple[dict[str, ProxyTargetState], dict[str, Any], int, float]:
        return looked(await self._calls.target(target, self._script(target).look()))

    async def _told(self, heard: Mapping[str, Any]) -> None:
        """Say what was heard of proxies, and to targets what they have to know of it."""
        await self._tell(facts_of(await self._calls.everywhere("hear", heard=heard)))

    async def _tell(self, facts: Mapping[str, ProxyFacts]) -> None:
        """All targets that have these proxies hear of them."""
        if facts:
            for target in await self._calls.targets():
                await self._calls.target(target, self._script(target).update(facts))

    async def _tell_all(self) -> None:
        """All targets hear of all that they have: tiers have changed."""
        for target in await self._calls.targets():
            pairs, *_ = await self._look(target)
            facts = facts_of(await self._calls.everywhere("facts", keys=list(pairs)))
            await self._calls.target(target, self._script(target).update(facts))

    async def _why(self, target: str, count: int, request: ProxyRequest, wait_s: float) -> str:
        try:
            async with asyncio.timeout(SAY_WHY_S):
                pairs, *_ = await self._look(target)
                is_empty = not pairs and not await self.count()
        except TimeoutError:
            return f"no proxy for {target}: the server of the pool does not answer"
        counts = Counter(pair.state(self._now()) for pair in pairs.values() if request.fits(pair))
        return why_none(target, count, self._policy_of(target).members, wait_s, counts, is_empty=is_empty)

    def _woken(self, target: str | None = None, returned: int = ASKED_MAX) -> None:
        """Let those of this process who wait ask again: so many may have come back."""
        some = self._lines.values() if target is None else [self._lines.get(target, {})]
        for lines in some:
            for line in lines.values():
                line.woken(returned)

    def _script(self, target: str) -> TargetScript:
        return script_of(self._policy_of(target))


async def redis_pool(
    url: str,
    name: str,
    say: Callable[[str], None],
    policy_of: Callable[[str], TargetPolicy] = lambda _: TargetPolicy(),
    *,
    now: Callable[[], float] | None = None,
    draw: Callable[[], float] = clock.chance,
) -> RedisPool:
    """Return the pool of this name. `now` is the time (unix seconds), of the server when it is not given.

    Raises `UsageError` for what is no address or is not let in, `StateError` for a server that is not there or unfit.
    """
    server = RedisServer(parse_redis_url(url), say, subject="a pool of proxies", option="?pool=")
    clients = await server.clients()
    clients.blocking.close()
    told = (lambda: "") if now is None else (lambda: repr(now()))
    return RedisPool(Calls(server, clients.loop, name, told), policy_of, draw, now or clock.Clock().now)
