"""A pool of proxies that many processes share, on Redis: one call lends, one gives back.

A call whose answer was lost is made again: a lease that nobody knows of comes back with its time, and a return that was
heard already is refused like a late one. What uses say of proxies as such is told once in HEAR_S; that one cannot be
reached, at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from lycosa import clock
from lycosa.core.errors import NoProxy, StateError
from lycosa.core.proxies.outcome import Blame, Outcome
from lycosa.core.proxies.pair import Facts, Pair
from lycosa.core.proxies.policy import TargetPolicy
from lycosa.core.proxies.proxy import Proxy
from lycosa.core.proxies.target import ANY, Grant, Wait, Wish
from lycosa.ports.proxies import Explained, Lent, ProxyView, TargetView
from lycosa.proxies.redis_calls import Calls
from lycosa.proxies.redis_explain import explained
from lycosa.proxies.target_script import TargetScript, granted, kind_of, looked, read
from lycosa.proxies.views import facts_of, read_stored, refuse_counts, stored, view_everywhere, view_on, why_not
from lycosa.proxies.waiting import CLOSED
from lycosa.servers.redis_connection import Server

log = logging.getLogger(__name__)

HEAR_S = 0.2
HEARD_MAX = 10_000
"""Uses that wait to be told; further ones are not told."""

AGAIN_MIN_S, AGAIN_MAX_S = 0.01, 0.25
"""Who waits asks again after so long: others, in other processes, may have given one back."""

SEE_S = 1.0
"""How often is looked whether others have changed the proxies."""

TOLD_AT_ONCE = 500
"""Proxies in one call."""

AT_LEAST_S = 5.0
"""Who does not want to wait waits so long at most for those of his process that ask at this moment."""


@dataclass(slots=True)
class Line:
    """Who of this process waits for a proxy of one target: one asks, the others wait for their turn to."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    given_back: asyncio.Event = field(default_factory=asyncio.Event)
    users: int = 0


class RedisPool:
    """See `ports.ProxyPool`. Make it with `redis_pool`."""

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
        self._version, self._seen_at = 0, 0.0
        self._lines: dict[tuple[str, str, str], Line] = {}
        self._heard: list[dict[str, Any]] = []
        self._telling: asyncio.Task[None] | None = None
        self._returning: set[asyncio.Task[bool]] = set()
        self._closed = False

    async def add(self, proxies: Iterable[Proxy]) -> int:
        """See `ProxyPool`."""
        added = 0
        waiting = iter(proxies)
        while some := list(islice(waiting, TOLD_AT_ONCE)):
            told = {each.key: stored(each) for each in some}
            new, prices = await self._calls.everywhere("add", proxies=told)
            self._known.update((each.key, each) for each in some)
            added += new
            if prices:
                await self._tell_all()
        self._seen_at = 0.0
        self._woken()
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        """See `ProxyPool`."""
        gone = list(keys)
        count: int = await self._calls.everywhere("remove", keys=gone)
        for target in await self._calls.targets():
            for key in gone:
                await self._calls.target(target, self._script(target).forget(key))
        for key in gone:
            self._known.pop(key, None)
        return count

    async def acquire(
        self, target: str, count: int = 1, wish: Wish = ANY, *, lease_s: float | None = None, wait_s: float = 0.0
    ) -> list[Lent]:
        """See `ProxyPool`."""
        refuse_counts(count, wish)
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        which = (target, kind_of(wish), wish.session)
        line = self._lines.setdefault(which, Line())
        line.users += 1
        try:
            async with asyncio.timeout_at(max(ends, loop.time() + AT_LEAST_S)):
                await line.turn.acquire()
            try:
                return await self._asked(target, count, wish, lease_s, line, ends)
            finally:
                line.turn.release()
        except TimeoutError:
            raise NoProxy(await self._why(target, wait_s)) from None
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[which]

    async def renew(self, lent: Lent, lease_s: float | None = None) -> float | None:
        """See `ProxyPool`."""
        until = read(await self._calls.target(lent.target, self._script(lent.target).renew(lent.token, lease_s)))
        return None if until is False else float(until)

    async def release(self, lent: Lent, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        call = self._script(lent.target).release(lent.token, outcomes, self._draw())
        if read(await self._calls.target(lent.target, call)) is False:
            return False
        self._woken(lent.target)
        await self._hear(lent.proxy.key, outcomes)
        return True

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """See `ProxyPool`."""
        if not await self._has(target, key):
            return False
        return bool(read(await self._calls.target(target, self._script(target).ban(key, until, reason))))

    async def unban(self, target: str, key: str) -> bool:
        """See `ProxyPool`."""
        if not await self._has(target, key):
            return False
        done = read(await self._calls.target(target, self._script(target).unban(key)))
        self._woken(target)
        return bool(done)

    async def checked(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """See `ProxyPool`."""
        if await self._proxy(key) is None:
            return False
        self._heard.append({"key": key, "outcomes": [asdict(outcome)], "draw": self._draw()})
        await self._tell_heard()
        if outcome.blame is Blame.NONE:
            await self._tell(facts_of(await self._calls.everywhere("revive", key=key, exit_ip=exit_ip)))
            self._seen_at = 0.0
            self._woken()
        return True

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """See `ProxyPool`."""
        if target is not None:
            pairs, *_ = await self._look(target)
            found = {key: await self._proxy(key) for key in pairs}
            return [view_on(proxy, pairs[key], self._now()) for key, proxy in found.items() if proxy is not None]
        sums: Counter[tuple[str, str]] = Counter()
        for name in await self._calls.targets():
            for key, pair in (await self._look(name))[0].items():
                sums.update({(key, "uses"): pair.uses, (key, "good"): pair.good, (key, "bad"): pair.bad})
        return [
            view_everywhere(
                read_stored(told), health, (sums[key, "uses"], sums[key, "good"], sums[key, "bad"]), self._now()
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

    async def explain(self, target: str, wish: Wish = ANY) -> list[Explained]:
        """See `ProxyPool`."""
        return await explained(self._calls, self._policy_of(target), target, wish, self._now(), self._proxy)

    async def close(self) -> None:
        """See `ProxyPool`."""
        self._closed = True
        self._woken()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        with suppress(StateError):
            await self._tell_heard()
        await self._calls.close()

    # ----------------------------------------------------------------------------------------------------------------

    async def _asked(
        self, target: str, count: int, wish: Wish, lease_s: float | None, line: Line, ends: float
    ) -> list[Lent]:
        """Ask until there is something. Raises `TimeoutError` when the time is over."""
        loop = asyncio.get_running_loop()
        while True:
            if self._closed:
                raise NoProxy(CLOSED)
            line.given_back.clear()
            answer = await self._unbroken(target, self._ask(target, count, wish, lease_s))
            if not isinstance(answer, Wait):
                return answer
            left_s = ends - loop.time()
            if left_s <= 0:
                raise TimeoutError
            soon_s = AGAIN_MAX_S if answer.at is None else min(max(answer.at - self._now(), AGAIN_MIN_S), AGAIN_MAX_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(soon_s, left_s)):
                    await line.given_back.wait()

    async def _ask(self, target: str, count: int, wish: Wish, lease_s: float | None) -> list[Lent] | Wait:
        script = self._script(target)
        await self._see()
        while True:
            call = script.acquire([self._draw() for _ in range(count)], wish, lease_s, self._version)
            answer, is_filled = granted(await self._calls.target(target, call))
            if not isinstance(answer, Wait):
                return [await self._lent(target, grant) for grant in answer]
            if is_filled:
                return answer
            await self._fill(target, wish)

    async def _unbroken(self, target: str, asking: Coroutine[Any, Any, list[Lent] | Wait]) -> list[Lent] | Wait:
        """Ask to the end, also when who asks is cancelled meanwhile: what he is lent then goes back."""
        task = asyncio.create_task(asking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._give_back)
            raise

    def _give_back(self, task: asyncio.Task[list[Lent] | Wait]) -> None:
        if not task.cancelled() and task.exception() is None and not isinstance(lent := task.result(), Wait):
            for each in lent:
                returning = asyncio.create_task(self.release(each))
                self._returning.add(returning)
                returning.add_done_callback(self._returning.discard)

    async def _lent(self, target: str, grant: Grant) -> Lent:
        proxy = await self._proxy(grant.key)
        if proxy is None:
            raise NoProxy(f"the proxy {grant.key} was removed in this moment")
        return Lent(target, grant.token, proxy, grant.deadline, grant.rebound, grant.among)

    async def _proxy(self, key: str) -> Proxy | None:
        """Return a proxy, by what is known here if possible."""
        if key not in self._known:
            told = await self._calls.everywhere("proxy", key=key)
            if not told:
                return None
            self._known[key] = read_stored(told)
        return self._known[key]

    async def _see(self) -> None:
        """Look now and then whether targets can be filled up anew."""
        if time.monotonic() - self._seen_at > SEE_S:
            self._seen_at = time.monotonic()
            self._version = await self._calls.everywhere("version")

    async def _fill(self, target: str, wish: Wish) -> None:
        """Let a target have as many proxies that fit as its policy says, the nearest first."""
        pairs, *_ = await self._look(target)
        missing = self._policy_of(target).members - sum(pair.usable and wish.means(pair) for pair in pairs.values())
        asked = {"target": target, "tags": dict(wish.tags), "has": list(pairs), "count": max(0, missing)}
        told, self._version, forgotten = await self._calls.everywhere("fill", **asked)
        await self._calls.target(target, self._script(target).learn(facts_of(told), wish, self._version))
        for name in forgotten:
            await self._calls.target(name, self._script(name).drop())

    async def _has(self, target: str, key: str) -> bool:
        """Let a target have a proxy, wherever that stands. False when there is none of this key."""
        facts = facts_of(await self._calls.everywhere("facts", keys=[key]))
        if facts:
            await self._calls.target(target, self._script(target).learn(facts))
        return bool(facts)

    async def _look(self, target: str) -> tuple[dict[str, Pair], dict[str, Any], int, float]:
        return looked(await self._calls.target(target, self._script(target).look()))

    async def _hear(self, key: str, outcomes: Sequence[Outcome]) -> None:
        """Remember what uses say of the proxy as such; that it cannot be reached is told at once."""
        if len(self._heard) < HEARD_MAX:
            told = [asdict(outcome) for outcome in outcomes]
            self._heard.append({"key": key, "outcomes": told, "draw": self._draw()})
        if any(outcome.blame is Blame.PROXY for outcome in outcomes):
            await self._tell_heard()
        elif self._telling is None:
            self._telling = asyncio.create_task(self._tell_soon())

    async def _tell_soon(self) -> None:
        await asyncio.sleep(HEAR_S)
        self._telling = None
        try:
            await self._tell_heard()
        except StateError as error:
            log.warning("what is known of proxies was not told: %s", error)

    async def _tell_heard(self) -> None:
        heard, self._heard = self._heard, []
        if heard:
            await self._tell(facts_of(await self._calls.everywhere("hear", heard=heard)))

    async def _tell(self, facts: Mapping[str, Facts]) -> None:
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

    async def _why(self, target: str, wait_s: float) -> str:
        pairs, *_ = await self._look(target)
        counts = Counter(pair.state(self._now()) for pair in pairs.values())
        is_empty = not pairs and not await self._calls.everywhere("look")
        return why_not(target, wait_s, counts, is_empty=is_empty)

    def _woken(self, target: str | None = None) -> None:
        """Let those of this process who wait ask again."""
        for (its, *_), line in self._lines.items():
            if target is None or its == target:
                line.given_back.set()

    def _script(self, target: str) -> TargetScript:
        return TargetScript(self._policy_of(target))


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
    server = Server(url, say, what="a pool of proxies", name="--pool-name")
    clients = await server.clients()
    clients.blocking.close()
    told = (lambda: "") if now is None else (lambda: repr(now()))
    return RedisPool(Calls(server, clients.loop, name, told), policy_of, draw, now or clock.Clock().now)
