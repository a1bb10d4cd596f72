"""A frontier that many workers share, in Redis: see `frontier/redis/lua/base.lua` for what is kept where.

What a worker reports (done, failed, blocked...) waits here and goes to the server with the next `lease`, `push`,
`commit` or `stats`: one round trip for all of it. What is done counts at once, and is taken back if the worker dies
before its next `commit`. Leases end with their worker, not with time: `expire` is about our own.

Hosts are spread over partitions, each a script of its own, that one step can be atomic in. A record that is found in
one and belongs to another waits in the outbox of the first until somebody has brought it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from itertools import takewhile
from typing import Any

from lycosa.core.errors import StateError, UsageError
from lycosa.frontier.core.model import FrontierStats, HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.recent_fingerprints import RecentFingerprints
from lycosa.frontier.core.scheduler import Claim
from lycosa.frontier.core.states import Event, Policy, expire, fail, give_up
from lycosa.frontier.local import DELAY_MAX_S, EXPIRED
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.redis.admin.counts import counted, facts_of, first_dead
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.lanes import done_row, encode, ended_row
from lycosa.frontier.redis.shared_crawl import RedisCrawl
from lycosa.frontier.redis.worker.claims import Claims
from lycosa.frontier.redis.worker.commits import Commits
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.frontier.redis.worker.event_flusher import Teller
from lycosa.frontier.redis.worker.heartbeat import WorkerHeartbeat
from lycosa.frontier.redis.worker.hosts import Hosts
from lycosa.frontier.redis.worker.lease_buffer import Stock
from lycosa.frontier.redis.worker.lease_pacing import Pace
from lycosa.frontier.redis.worker.partition import pushed
from lycosa.frontier.redis.worker.session import Session
from lycosa.http.core.model import Validators

POLL_S = 0.05
"""How often is asked for work while other workers may make some."""

IDLE_POLL_S = 0.5
"""The same while nobody has any."""

APART = "hosts of one IP address may be in several partitions: for limits per address set partitions=1"
VERBS_MAX = 1000
"""Reports that wait; with more they are sent at once."""

WORDS_MAX = 100_000
"""Arguments of reports that wait, six for each link of a page: with so many the server is at them for half a second."""


class RedisFrontier:
    """See `frontier.ports.SharedFrontier`; every method here is documented there. Make it with `join.redis_frontier`.

    So many records are lent `ahead` of what was asked for. With `keep_alive` there may always be more to come.
    """

    def __init__(self, session: Session, policy: Policy, *, ahead: int = 0, keep_alive: bool = False) -> None:
        self.session, self.server_url = session, "the server"
        self.crawl = RedisCrawl(session)
        self.heart: WorkerHeartbeat | None = None
        self.cookies: RedisCookies | None = None
        self._policy = policy
        self._keep_alive = keep_alive
        self._known = RecentFingerprints()
        self._hosts = Hosts()
        self._claims = Claims(session)
        self._pace = Pace(policy, punctual=not session.callers_clock)
        self._stock = Stock(session, self._pace, ahead=ahead, lease_s=policy.lease_s, heard=self._heard)
        self._teller = Teller(session, self._pace.gather_s)
        self._offered = 0
        self._doubt = asyncio.Lock()
        self.commits = Commits(session)

    async def open(self, known: str = "") -> str:
        """Join the crawl. See `Session.open`. Raises `UsageError` for limits that could not be kept."""
        if self._policy.limits_addresses and len(self.session.partitions) > 1:
            raise UsageError(APART)
        return await self.session.open(shared_policy(self._policy, punctual=not self.session.callers_clock), known)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        for record in records:
            self.session.of(record.host).add("+", *pushed(record, self.session.of(record.host).shift_s))
            self._known.add(record)
        before = self.session.wire.added
        await self.session.send()
        await self.commits.replicated({self.session.of(record.host) for record in records})
        self._offered += len(records)
        return self.session.wire.added - before

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Ask what was pushed from here lately."""
        return self._known.contained(segment, fingerprints)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now: of the stock, if that is enough."""
        self.session.now = now
        if self.shortage and not limit:  # which may last: what waits here goes back
            await self._unstock(self._stock.waiting(), now)
            await self.session.look()
        if len(self._stock) < limit and now >= self._pace.next_at():
            await self._stock.fetch(limit - len(self._stock))
        while self.cookies is not None and self._stock.fresh:
            self._stock.fresh = False
            await self.cookies.ask()
        return self._stock.take(limit)

    async def ack(
        self,
        lease: Lease,
        reason: str,
        children: Sequence[UrlRecord],
        now: float,
        *,
        contacted: bool = True,
        validators: Validators | None = None,
    ) -> bool:
        """Done."""
        if not self._give_back(lease, now):
            return False
        home = self.session.of(lease.record.host)
        kept = done_row(lease.record, reason, now, validators) if self.session.keeps_done else ""
        arguments: list[Any] = [self.session.token(lease), reason, int(contacted), kept, len(children)]
        for child in children:
            there = self.session.of(child.host)
            arguments += ("" if there is home else there.number, *pushed(child, there.shift_s))
            if there is not home:
                home.outgoing.add(there.number)
            self._known.add(child)
        self._offered += len(children)
        home.acked = True
        home.end("a", *arguments)
        await self._settled(lease)
        return True

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        """Again later, or never."""
        if not self._give_back(lease, now):
            return False
        again = "" if retry_at is None else float(retry_at)
        data = _failed(lease.record, reason, retry_at, now)
        self.session.of(lease.record.host).end("n", self.session.token(lease), int(contacted), again, reason, data)
        await self._settled(lease)
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        """Give back untouched."""
        if not self._give_back(lease, now):
            return False
        self.session.of(lease.record.host).end("r", self.session.token(lease), "")
        await self._settled(lease)
        return True

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend."""
        if self._stock.held.pop(lease.token, None) is None:
            return None
        renewed = lease._replace(expires_at=now + self._policy.lease_s)
        self._stock.held[lease.token] = renewed
        return renewed

    async def expire(self, now: float) -> int:
        """Take back what is overdue of our own."""
        self.session.now = now
        await self._unstock([lease for lease in self._stock.waiting() if lease.expires_at <= now], now)
        late = list(takewhile(lambda lease: lease.expires_at <= now, self._stock.held.values()))
        for lease in late:
            await self._expired(lease, now)
        return len(late)

    async def block_host(self, host: str, until: float) -> None:
        """Pause the host."""
        self.session.of(host).add("b", host, float(until))

    async def check_membership(self) -> None:
        """Ask the server when this process was blocked for long."""
        async with self._doubt:
            if self.heart is not None and self.heart.may_be_expired():
                await self.session.look()

    def report_start(self, host: str, now: float) -> None:
        """Report it, where the start of a transfer matters."""
        if self._hosts.is_paced(host):
            home = self.session.of(host)
            home.add("s", host, repr(now + home.shift_max_s))  # at the latest: the script cuts it to its own now
            self._teller.tell()

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line."""
        if holder is not None and holder.token in self._stock.held:
            self.session.of(holder.record.host).add("o", self.session.token(holder))
            self._claims.wake(holder.record.host)
        return self._claims.claim(host, wake)

    async def try_start(self, claim: Claim, now: float) -> float:
        """Ask for the turn."""
        self.session.now = now
        told = await self._claims.turn(claim, now)
        self._hosts.told(claim.host.key, told.known_until, paced=told.paced)
        return told.at

    async def release_claim(self, claim: Claim, now: float) -> None:
        """End it."""
        self.session.now = now
        if self._claims.unclaim(claim):
            self._teller.tell()

    def needs_address(self, host: str, now: float) -> bool:
        """Ask."""
        return self._policy.limits_addresses and self._hosts.known_until(host) <= now + self.session.of(host).shift_s

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Throttle."""
        self.session.now = now
        self.session.of(host).add("t", host, repr(min(max(0.0, delay_s), DELAY_MAX_S)))
        self._claims.wake(host)

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        await self._teller.is_told(host)
        return await facts_of(self.session, host)

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self.session.now = now
        told = (float(facts.robots_at), float(now), repr(facts.crawl_delay_s), encode(facts))
        self.session.of(host).add("f", host, *told)
        await self._teller.learned(host)

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self.session.now = now
        self.session.of(host).add("i", host, address, float(until))
        self._hosts.told(host, until + self.session.of(host).shift_s)
        self._claims.wake(host)

    @property
    def shortage(self) -> str:
        """Report a full server."""
        return f"{self.server_url} has reached its maxmemory" if self.session.is_full else ""

    def next_ready(self, now: float) -> float | None:
        """As far as the last exchange told; while others have work, soon."""
        parts = [partition for partition in self.session.partitions if partition.due is not None]
        if self._stock:
            return 0.0
        if any(partition.due == 0.0 for partition in parts) and not self.shortage:
            return self._pace.next_at()
        due = min((partition.due - partition.shift_s for partition in parts if partition.due), default=None)
        if self.session.callers_clock or (self._stock.finished and not self._keep_alive):
            return due
        again_at = now + (IDLE_POLL_S if self._stock.finished else POLL_S)
        return max(self._pace.next_at(), again_at if due is None else min(again_at, due))

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        await self.commits.commit(positions)

    async def forget(self, segment: str) -> None:
        """Give up the leases of a segment that was dropped."""
        gone = [each for each in self._stock.held.values() if each.record.segment == segment]
        await self._unstock([each for each in gone if each.record.kind == RecordKind.PAGE], self.session.now)

    def operations(
        self, commit: Callable[[], Awaitable[None]], on_change: Callable[[], None], paused: Callable[[], str]
    ) -> FrontierOperations:
        """Return them."""
        return RedisOperations(self.session, commit, on_change, paused, self.forget)

    async def is_finished(self) -> bool:
        """Ask all partitions."""
        return await self.session.is_over()

    def set_reporter(self, report: Callable[[], bytes], last: Callable[[], bytes]) -> None:
        """Report with the heartbeat, and when leaving."""
        self.session.report = last
        if self.heart is not None:
            self.heart.report = report

    async def totals(self, report: bytes) -> dict[str, int]:
        """Report, then add up."""
        await self.session.wire.run(self.session.partitions[0], "beat", report)
        return await self.session.totals()

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        return await self.commits.positions()

    async def stats(self) -> FrontierStats:
        """Count."""
        return await counted(self.session, self._offered)

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        return await first_dead(self.session, limit)

    async def close(self) -> None:
        """Leave; what is not committed goes back."""
        await self._teller.close()
        if self.heart is not None:
            await asyncio.to_thread(self.heart.stop)
        async with aclosing(self.session.wire.client):
            with suppress(StateError):  # we were not there any more, or the server is not: others take over
                await self.session.leave()

    # ----------------------------------------------------------------------------------------------------------------

    async def _unstock(self, leases: Sequence[Lease], now: float) -> None:
        self._stock.remove(leases)
        for lease in leases:
            await self.release(lease, now)

    def _heard(self, host: str, known_until: float, paced: bool) -> None:
        self._hosts.told(host, known_until, paced=paced)
        self._claims.wake(host)

    def _give_back(self, lease: Lease, now: float) -> bool:
        self.session.now = now
        if self._stock.held.pop(lease.token, None) is None:
            return False
        self._claims.wake(lease.record.host)
        return True

    async def _settled(self, lease: Lease) -> None:
        """A question holds up its host: it is answered soon."""
        if lease.record.kind != RecordKind.PAGE:
            await self._teller.learned()
        elif (home := self.session.of(lease.record.host)).waiting >= VERBS_MAX or home.words >= WORDS_MAX:
            await self.session.send([home])

    async def _expired(self, lease: Lease, now: float) -> None:
        overdue, event = expire(lease.record)
        if lease.record.kind == RecordKind.RESOLVE:
            await self.nack(lease, EXPIRED, now, now)
        elif lease.record.kind == RecordKind.ROBOTS and event is Event.EXPIRE:
            await self.nack(lease, EXPIRED, now + 2.0**overdue.attempts, now)
        elif lease.record.kind == RecordKind.ROBOTS:
            await self.set_host_facts(lease.record.host, HostFacts(EXPIRED.encode(), 0, now), now)
            await self.ack(lease, EXPIRED, (), now)
        elif event is Event.EXPIRE and self._give_back(lease, now):
            self.session.of(overdue.host).end("r", self.session.token(lease), encode(overdue))
        else:
            await self.nack(lease, EXPIRED, None, now)


def _failed(record: UrlRecord, reason: str, retry_at: float | None, now: float) -> bytes:
    """Return what is sent of a record that failed: as it waits to be tried again, or its row among the dead."""
    return ended_row(give_up(record), reason, now) if retry_at is None else encode(fail(record, retry_at))


def shared_policy(policy: Policy, *, punctual: bool = False) -> dict[str, float]:
    """Return what of a policy is the crawl's, by the names that it has there."""
    return {
        "punctual": int(punctual),
        "delay": policy.delay_s,
        "lease": policy.lease_s,
        "places": policy.concurrency_per_host,
        "robots": int(policy.robots),
        "robots_ttl": policy.robots_ttl_s,
        "resolves": int(policy.limits_addresses),
        "ip_delay": policy.delay_per_ip_s,
        "ip_places": policy.concurrency_per_ip,
        "start_delay": policy.start_delay_s,
    }
