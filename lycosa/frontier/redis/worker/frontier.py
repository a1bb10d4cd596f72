"""A frontier in Redis that many workers share; `frontier/redis/layout.py` describes the keys.

The reports of a worker (done, failed, blocked...) are queued here as verbs (commands to a partition). The next exchange
with the partition, such as in `push` or `commit`, sends them in one round trip. A done record counts as done at once,
but is queued again if the worker dies before its next `commit`. The server ends leases only when their worker expires,
so each worker ends its own overdue leases in `expire`.

Hosts are spread over partitions; a script is atomic within one. A link into another partition waits in an outbox of its
page's partition until a worker delivers it.
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
from lycosa.frontier.core.telemetry import RunProgress
from lycosa.frontier.local import DELAY_MAX_S, EXPIRED
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.redis.admin.archiving import SegmentArchiver
from lycosa.frontier.redis.admin.counts import host_facts_of, read_dead, read_stats
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.lanes import done_row, encode, ended_row
from lycosa.frontier.redis.shared_crawl import RedisCrawl
from lycosa.frontier.redis.worker.claims import WorkerClaims
from lycosa.frontier.redis.worker.commits import Commits
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.frontier.redis.worker.event_flusher import EventFlusher
from lycosa.frontier.redis.worker.heartbeat import WorkerHeartbeat
from lycosa.frontier.redis.worker.known_hosts import KnownHosts
from lycosa.frontier.redis.worker.lease_buffer import LeaseBuffer
from lycosa.frontier.redis.worker.lease_pacing import LeasePacing
from lycosa.frontier.redis.worker.partition import push_arguments
from lycosa.frontier.redis.worker.session import Session
from lycosa.http.core.model import Validators

POLL_S = 0.05
"""Seconds between requests for work while other workers may create some."""

IDLE_POLL_S = 0.5
"""Seconds between requests for work while no worker has any."""

ADDRESS_LIMITS = "hosts of one IP address may be in several partitions: for limits per address set partitions=1"
WAITING_VERBS_MAX = 1000
"""Once a partition has this many queued verbs, they are sent at once."""

WAITING_ARGUMENTS_MAX = 100_000
"""Once the queued verbs of a partition have this many arguments, they are sent at once.

Each link of a page has six arguments. The server takes half a second for this many.
"""


class RedisFrontier:
    """Implements `frontier.ports.SharedFrontier`. Create it with `join.redis_frontier`.

    It holds up to `ahead` more leases than requested. With `keep_alive`, it asks for work even after the crawl has
    finished: new URLs may be pushed.
    """

    def __init__(self, session: Session, policy: Policy, *, ahead: int = 0, keep_alive: bool = False) -> None:
        self.session, self.server_url = session, "the server"
        self.crawl = RedisCrawl(session)
        self.heartbeat: WorkerHeartbeat | None = None
        self.cookies: RedisCookies | None = None
        self.commits = Commits(session)
        self._archiver = SegmentArchiver(session)
        self._policy = policy
        self._keep_alive = keep_alive
        self._known = RecentFingerprints()
        self._hosts = KnownHosts()
        self._claims = WorkerClaims(session)
        self._pacing = LeasePacing(policy, punctual=not session.callers_clock)
        self._leases = LeaseBuffer(session, self._pacing, ahead=ahead, lease_s=policy.lease_s, on_host=self._on_host)
        self._flusher = EventFlusher(session, self._pacing.gather_s)
        self._offered = 0
        self._membership_check = asyncio.Lock()

    async def open(self, known: str = "") -> str:
        """See `Session.open`. Raises `UsageError` for several partitions if addresses are limited."""
        if self._policy.limits_addresses and len(self.session.partitions) > 1:
            raise UsageError(ADDRESS_LIMITS)
        return await self.session.open(shared_policy(self._policy, punctual=not self.session.callers_clock), known)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        homes = [self.session.partition_of(record.host) for record in records]
        for record, home in zip(records, homes, strict=True):
            home.add("push", *push_arguments(record, home.clock_ahead_s))
            self._known.add(record)
        before = self.session.calls.added
        await self.session.send()
        await self.commits.wait_for_replicas({*homes})
        self._offered += len(records)
        return self.session.calls.added - before

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        return self._known.contained(segment, fingerprints)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        self.session.now = now
        if self.shortage and not limit:  # the shortage may last: other workers may be able to use these leases
            await self._release_waiting(self._leases.waiting(), now)
            await self.session.refresh()
        if len(self._leases) < limit and now >= self._pacing.next_call_at():
            await self._leases.fetch(limit - len(self._leases))
        while self.cookies is not None and self._leases.needs_cookies:
            self._leases.needs_cookies = False
            await self.cookies.update()
        return self._leases.take(limit)

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
        if not self._end_lease(lease, now):
            return False
        home = self.session.partition_of(lease.record.host)
        row = done_row(lease.record, reason, now, validators) if self.session.keep_done else ""
        arguments: list[Any] = [self.session.token(lease), reason, int(contacted), row, len(children)]
        for child in children:
            target = self.session.partition_of(child.host)
            arguments += ("" if target is home else target.number, *push_arguments(child, target.clock_ahead_s))
            if target is not home:
                home.outgoing.add(target.number)
            self._known.add(child)
        self._offered += len(children)
        home.has_acked = True
        home.end_lease("ack", *arguments)
        await self._send_if_due(lease)
        return True

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        if not self._end_lease(lease, now):
            return False
        due = "" if retry_at is None else float(retry_at)
        data = _failed(lease.record, reason, retry_at, now)
        arguments = (self.session.token(lease), int(contacted), due, reason, data)
        self.session.partition_of(lease.record.host).end_lease("nack", *arguments)
        await self._send_if_due(lease)
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        if not self._end_lease(lease, now):
            return False
        self.session.partition_of(lease.record.host).end_lease("release", self.session.token(lease), "")
        await self._send_if_due(lease)
        return True

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        if self._leases.held.pop(lease.token, None) is None:
            return None
        renewed = lease._replace(expires_at=now + self._policy.lease_s)
        self._leases.held[lease.token] = renewed
        return renewed

    async def expire(self, now: float) -> int:
        self.session.now = now
        await self._release_waiting([lease for lease in self._leases.waiting() if lease.expires_at <= now], now)
        late = list(takewhile(lambda lease: lease.expires_at <= now, self._leases.held.values()))
        for lease in late:
            await self._expire(lease, now)
        return len(late)

    async def block_host(self, host: str, until: float) -> None:
        self.session.partition_of(host).add("block", host, float(until))

    async def check_membership(self) -> None:
        async with self._membership_check:
            if self.heartbeat is not None and self.heartbeat.may_be_expired():
                await self.session.refresh()

    def report_start(self, host: str, now: float) -> None:
        if self._hosts.has_delay(host):
            home = self.session.partition_of(host)
            # The latest possible time on the server's clock; the script caps it at its own time.
            home.add("started", host, repr(now + home.clock_ahead_max_s))
            self._flusher.flush_soon()

    def end_transfer(self, lease: Lease, now: float, *, contacted: bool = True) -> None:
        self.session.now = now
        if self._end_transfer(lease, contacted=contacted):
            self._flusher.flush_soon()

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        if holder is not None:
            self._end_transfer(holder, contacted=True)
        return self._claims.claim(host, wake)

    async def try_start(self, claim: Claim, now: float) -> float:
        self.session.now = now
        answer = await self._claims.try_start(claim, now)
        self._hosts.update(claim.host.key, answer.address_until, has_delay=answer.has_delay)
        return answer.at

    async def release_claim(self, claim: Claim, now: float) -> None:
        self.session.now = now
        if self._claims.release(claim):
            self._flusher.flush_soon()

    def needs_address(self, host: str, now: float) -> bool:
        server_now = now + self.session.partition_of(host).clock_ahead_s
        return self._policy.limits_addresses and self._hosts.address_until(host) <= server_now

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        self.session.now = now
        self.session.partition_of(host).add("throttle", host, repr(min(max(0.0, delay_s), DELAY_MAX_S)))
        self._claims.wake(host)

    async def host_facts(self, host: str) -> HostFacts | None:
        await self._flusher.sync(host)
        return await host_facts_of(self.session, host)

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        self.session.now = now
        arguments = (float(facts.robots_at), float(now), repr(facts.crawl_delay_s), encode(facts))
        self.session.partition_of(host).add("host_facts", host, *arguments)
        await self._flusher.flush_facts(host)

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        self.session.now = now
        home = self.session.partition_of(host)
        home.add("address", host, address, float(until))
        self._hosts.update(host, until + home.clock_ahead_s)
        self._claims.wake(host)

    @property
    def shortage(self) -> str:
        return f"{self.server_url} has reached its maxmemory" if self.session.is_full else ""

    def next_ready(self, now: float) -> float | None:
        """Use the status of the last exchange. While other workers may create work, poll."""
        if self._leases:
            return 0.0
        partitions = [partition for partition in self.session.partitions if partition.due is not None]
        if any(partition.due == 0.0 for partition in partitions) and not self.shortage:
            return self._pacing.next_call_at()
        due = min((each.due - each.clock_ahead_s for each in partitions if each.due), default=None)
        if self.session.callers_clock or (self._leases.crawl_finished and not self._keep_alive):
            return due
        poll_at = now + (IDLE_POLL_S if self._leases.crawl_finished else POLL_S)
        return max(self._pacing.next_call_at(), poll_at if due is None else min(poll_at, due))

    async def commit(self, positions: Mapping[str, int]) -> None:
        await self.commits.commit(positions)
        await self._archiver.archive_followed()

    async def begin_run(self, now: float) -> None:
        await self._archiver.begin_run(now)

    async def forget(self, segment: str) -> None:
        """Release the leases of a dropped segment."""
        leases = [each for each in self._leases.held.values() if each.record.segment == segment]
        await self._release_waiting([each for each in leases if each.record.kind == RecordKind.PAGE], self.session.now)

    def operations(
        self, commit: Callable[[], Awaitable[None]], on_change: Callable[[], None], paused: Callable[[], str]
    ) -> FrontierOperations:
        return RedisOperations(self.session, commit, on_change, paused, self.forget)

    async def is_finished(self) -> bool:
        return await self.session.is_finished()

    def set_reporter(self, report: Callable[[], bytes], last: Callable[[], bytes]) -> None:
        self.session.report = last
        if self.heartbeat is not None:
            self.heartbeat.report = report

    async def totals(self, report: bytes) -> dict[str, int]:
        return await self.session.totals(report)

    async def progress(self, report: bytes) -> RunProgress:
        return await self.session.progress(report)

    async def positions(self) -> dict[str, int]:
        return await self.commits.positions()

    async def stats(self) -> FrontierStats:
        await self.session.refresh()
        return await read_stats(self.session, self._offered)

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        return await read_dead(self.session, limit)

    async def close(self) -> None:
        await self._flusher.close()
        async with aclosing(self.session.calls.client):
            try:
                await self.session.shielded.wait()  # while the heartbeat keeps this worker alive
            finally:
                if self.heartbeat is not None:
                    await asyncio.to_thread(self.heartbeat.stop)
            with suppress(StateError):  # this worker expired, or the server is down: others take over
                await self.session.leave()

    # ----------------------------------------------------------------------------------------------------------------

    async def _release_waiting(self, leases: Sequence[Lease], now: float) -> None:
        self._leases.remove(leases)
        for lease in leases:
            await self.release(lease, now)

    def _end_transfer(self, lease: Lease, *, contacted: bool) -> bool:
        """Free the slot with the next exchange. Return False if the lease is no longer valid."""
        if lease.token not in self._leases.held:
            return False
        home = self.session.partition_of(lease.record.host)
        home.add("transferred", self.session.token(lease), int(contacted))
        self._claims.wake(lease.record.host)
        return True

    def _on_host(self, host: str, address_until: float, has_delay: bool) -> None:
        self._hosts.update(host, address_until, has_delay=has_delay)
        self._claims.wake(host)

    def _end_lease(self, lease: Lease, now: float) -> bool:
        self.session.now = now
        if self._leases.held.pop(lease.token, None) is None:
            return False
        self._claims.wake(lease.record.host)
        return True

    async def _send_if_due(self, lease: Lease) -> None:
        """Send the end of a robots.txt or address lease soon: its host waits. Send verbs now if too many are queued."""
        home = self.session.partition_of(lease.record.host)
        if lease.record.kind != RecordKind.PAGE:
            await self._flusher.flush_facts()
        elif home.waiting_verbs >= WAITING_VERBS_MAX or home.waiting_arguments >= WAITING_ARGUMENTS_MAX:
            await self.session.send([home])

    async def _expire(self, lease: Lease, now: float) -> None:
        overdue, event = expire(lease.record)
        if lease.record.kind == RecordKind.RESOLVE:
            await self.nack(lease, EXPIRED, now, now)
        elif lease.record.kind == RecordKind.ROBOTS and event is Event.EXPIRE:
            await self.nack(lease, EXPIRED, now + 2.0**overdue.attempts, now)
        elif lease.record.kind == RecordKind.ROBOTS:
            await self.set_host_facts(lease.record.host, HostFacts(EXPIRED.encode(), 0, now), now)
            await self.ack(lease, EXPIRED, (), now)
        elif event is Event.EXPIRE and self._end_lease(lease, now):
            token = self.session.token(lease)
            self.session.partition_of(overdue.host).end_lease("release", token, encode(overdue))
        else:
            await self.nack(lease, EXPIRED, None, now)


def _failed(record: UrlRecord, reason: str, retry_at: float | None, now: float) -> bytes:
    """A record to retry, or the row of a dead record if `retry_at` is None."""
    return ended_row(give_up(record), reason, now) if retry_at is None else encode(fail(record, retry_at))


def shared_policy(policy: Policy, *, punctual: bool = False) -> dict[str, float]:
    """Return the part of a policy that applies to the whole crawl, by its field names in Redis."""
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
