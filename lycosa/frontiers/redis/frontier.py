"""A frontier that many workers share, in Redis: see `lua/base.lua` for what is kept where.

What a worker reports (done, failed, blocked...) waits here and goes to the server with the next `lease`, `push`,
`commit` or `stats`: one round trip for all of it. What is done counts at once, and is taken back if the worker dies
before its next `commit`. Leases end with their worker, not with time: `expire` is about our own.

Hosts are spread over partitions, each a script of its own, that one step can be atomic in. A record that is found in
one and belongs to another waits in the outbox of the first until somebody has brought it over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import msgspec

from lycosa.core.errors import StateError
from lycosa.core.frontier import Event, Policy, expire, fail, give_up
from lycosa.core.model import FrontierStats, HostFacts, Kind, Lease, UrlRecord, Validators
from lycosa.core.workbench import Claim, Host
from lycosa.frontiers.redis.heart import Heart
from lycosa.frontiers.redis.known import Known
from lycosa.frontiers.redis.lanes import decode, encode, question
from lycosa.frontiers.redis.looking import counted, first_dead
from lycosa.frontiers.redis.partition import Partition, pushed
from lycosa.frontiers.redis.session import Session
from lycosa.frontiers.redis.wire import Asked

EXPIRED = "lease expired"
POLL_S = 0.05
"""How often is asked for work while other workers may make some."""

IDLE_POLL_S = 0.5
"""The same while nobody has any."""

TELL_S = 0.005
"""Starts of so long are told together."""

VERBS_MAX = 1000
"""Reports that wait; with more they are sent at once."""

DELAY_MAX_S = 3600.0

_facts = msgspec.msgpack.Decoder(HostFacts).decode


class RedisFrontier:
    """See `ports.Frontier`; every method here is documented there. Make it with `joining`.

    So many records are lent `ahead` of what was asked for. With `keep_alive` there may always be more to come.
    """

    def __init__(self, session: Session, policy: Policy, *, ahead: int = 0, keep_alive: bool = False) -> None:
        self.session = session
        self.heart: Heart | None = None
        self._policy = policy
        self._ahead = ahead
        self._keep_alive = keep_alive
        self._known = Known()
        self._held: dict[int, Lease] = {}
        self._stock: deque[Lease] = deque()
        self._paced: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._finished = False
        self._claimed = self._offered = self._commit = 0

    async def open(self, known: str = "") -> str:
        """Join the crawl. See `Session.open`."""
        punctual = int(not self.session.callers_clock)
        return await self.session.open({**_policy(self._policy), "punctual": punctual}, known)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        for record in records:
            self.session.of(record.host).add("+", *pushed(record, self.session.shift_s))
            self._remember(record)
        before = self.session.wire.added
        await self.session.send()
        self._offered += len(records)
        return self.session.wire.added - before

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Ask what was pushed from here lately."""
        return self._known.among(segment, fingerprints)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now: of the stock, if that is enough."""
        self.session.now = now
        if len(self._stock) < limit:
            await self._fetch(limit - len(self._stock))
        return [self._stock.popleft() for _ in range(min(limit, len(self._stock)))]

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
        arguments: list[Any] = [self._token(lease), reason, int(contacted), len(children)]
        for child in children:
            there = self.session.of(child.host)
            arguments += ("" if there is home else there.number, *pushed(child, self.session.shift_s))
            if there is not home:
                home.outgoing.add(there.number)
            self._remember(child)
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
        record = give_up(lease.record) if retry_at is None else fail(lease.record, retry_at)
        again = "" if retry_at is None else repr(retry_at + self.session.shift_s)
        self.session.of(record.host).end("n", self._token(lease), int(contacted), again, reason, encode(record))
        await self._settled(lease)
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        """Give back untouched."""
        if not self._give_back(lease, now):
            return False
        self.session.of(lease.record.host).end("r", self._token(lease), "")
        await self._settled(lease)
        return True

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend."""
        if self._held.pop(lease.token, None) is None:
            return None
        renewed = lease._replace(expires_at=now + self._policy.lease_s)
        self._held[lease.token] = renewed
        return renewed

    async def expire(self, now: float) -> int:
        """Take back what is overdue of our own."""
        self.session.now = now
        late = []
        for lease in self._held.values():
            if lease.expires_at > now:
                break
            late.append(lease)
        for lease in late:
            await self._expired(lease, now)
        return len(late)

    async def block_host(self, host: str, until: float) -> None:
        """Pause the host."""
        self.session.of(host).add("b", host, repr(until + self.session.shift_s))

    def started(self, host: str, now: float) -> None:
        """A transfer to the host starts now: its next turn counts from here, however long it was held up before."""
        if host in self._paced:
            self.session.of(host).add("s", host, repr(now + self.session.shift_s))
            if self._telling is None or self._telling.done():
                self._telling = asyncio.create_task(self._tell_soon())

    async def _tell_soon(self) -> None:
        """Until it is known when a host heard of a request, nobody else may ask it."""
        await asyncio.sleep(TELL_S)
        with suppress(StateError):  # whoever asks next hears of it
            await self.session.send()

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line."""
        if holder is not None and holder.token in self._held:
            self.session.of(holder.record.host).add("o", self._token(holder))
        self._claimed += 1
        return Claim(Host(key=host), wake, self._claimed)

    async def turn(self, claim: Claim, now: float) -> float:
        """Ask for the turn."""
        if claim.granted:
            return 0.0
        self.session.now = now
        partition = self.session.of(claim.host.key)
        if partition.waiting:
            await self.session.send()
        _, at, address = await self.session.wire.run(partition, "turn", claim.stamp, claim.host.key)
        if float(at) > 0:
            return float(at) - self.session.shift_s
        claim.granted, claim.address = True, address.decode()
        return 0.0

    async def unclaim(self, claim: Claim, now: float) -> None:
        """End it."""
        self.session.now = now
        if claim.granted:
            claim.granted = False
            self.session.of(claim.host.key).add("u", claim.stamp)

    def wants_address(self, host: str, now: float) -> bool:
        """Ask."""
        return self._policy.resolves

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Throttle."""
        self.session.of(host).add("t", host, repr(min(max(0.0, delay_s), DELAY_MAX_S)))

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        data = await self.session.ask("hget", self.session.of(host), "f", host)
        return _facts(data) if data is not None else None

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self.session.now = now
        fetched, since = repr(facts.robots_at + self.session.shift_s), repr(now + self.session.shift_s)
        self.session.of(host).add("f", host, fetched, since, repr(facts.crawl_delay_s), encode(facts))
        await self.session.send()

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self.session.now = now
        self.session.of(host).add("i", host, address, repr(until + self.session.shift_s))

    def next_ready(self, now: float) -> float | None:
        """As far as the last exchange told; while others have work, soon."""
        dues = [partition.due for partition in self.session.partitions if partition.due is not None]
        if self._stock or 0.0 in dues:
            return 0.0
        due = min(dues, default=None)
        if due is not None:
            due -= self.session.shift_s
        if self.session.callers_clock or (self._finished and not self._keep_alive):
            return due
        again_at = now + (IDLE_POLL_S if self._finished else POLL_S)
        return again_at if due is None else min(again_at, due)

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        self._commit += 1
        first, *others = self.session.partitions
        prepared = [partition for partition in others if partition.acked]
        for partition in prepared:
            partition.acked = False
            partition.add("p", self._commit)
        await self.session.exchange([Asked(partition) for partition in prepared])
        fields = [part for name, position in positions.items() for part in (f"{self.session.worker}/{name}", position)]
        first.add("c", self._commit, len(positions), *fields)
        await self.session.send()
        for partition in prepared:
            partition.add("q")

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        found = await self.session.ask("hgetall", self.session.partitions[0], "p")
        mine = f"{self.session.worker}/"
        told = ((name.decode(), int(position)) for name, position in found.items())
        return {name.removeprefix(mine): position for name, position in told if name.startswith(mine)}

    async def stats(self) -> FrontierStats:
        """Count."""
        return await counted(self.session, self._offered)

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        return await first_dead(self.session, limit)

    async def close(self) -> None:
        """Leave; what is not committed goes back."""
        if self._telling is not None:
            await asyncio.gather(self._telling, return_exceptions=True)
        if self.heart is not None:
            await asyncio.to_thread(self.heart.stop)
        with suppress(StateError):  # we were not there any more, or the server is not: others take over
            await self.session.leave()
        await self.session.wire.client.aclose()

    # ----------------------------------------------------------------------------------------------------------------

    def _token(self, lease: Lease) -> int:
        """Return what the partition calls the lease: our tokens hold the number of the partition too."""
        return lease.token // len(self.session.partitions)

    async def _fetch(self, wanted: int) -> None:
        """Ask all partitions for their share, then those that gave it for more; see whether all is done."""
        asked = self.session.partitions
        while asked and wanted > 0:
            share, ahead = -(-wanted // len(asked)), -(-self._ahead // len(asked))
            lent = await self.session.exchange([Asked(each, share, ahead) for each in asked])
            for partition, records in lent.items():
                for record in records:
                    self._lent(partition, record)
            wanted -= sum(map(len, lent.values()))
            asked = [each for each in asked if len(lent[each]) >= share]
        await self.session.tell_of_the_gone()
        await self.session.forward()
        if not self._stock and not self._held:
            self._finished = await self.session.is_over()

    def _lent(self, partition: Partition, said: list[Any]) -> None:
        token, kind, host, data, address, attempts, paced = said
        what = Kind(int(kind))
        number = int(token) * len(self.session.partitions) + partition.number
        if number in self._held or int(token) in partition.ending:
            return  # the answer to an exchange that was sent twice
        record = decode(data) if what is Kind.PAGE else question(host.decode(), what, int(attempts), data)
        lease = Lease(number, record, self.session.now + self._policy.lease_s, address.decode())
        self._held[number] = lease
        self._stock.append(lease)
        if paced:
            self._paced.add(record.host)

    def _give_back(self, lease: Lease, now: float) -> bool:
        self.session.now = now
        return self._held.pop(lease.token, None) is not None

    async def _settled(self, lease: Lease) -> None:
        """A question holds up its host: it is answered at once."""
        if lease.record.kind != Kind.PAGE or self.session.of(lease.record.host).waiting >= VERBS_MAX:
            await self.session.send()

    async def _expired(self, lease: Lease, now: float) -> None:
        overdue, event = expire(lease.record)
        if lease.record.kind == Kind.RESOLVE:
            await self.nack(lease, EXPIRED, now, now)
        elif lease.record.kind == Kind.ROBOTS and event is Event.EXPIRE:
            await self.nack(lease, EXPIRED, now + 2.0**overdue.attempts, now)
        elif lease.record.kind == Kind.ROBOTS:
            await self.set_host_facts(lease.record.host, HostFacts(EXPIRED.encode(), 0, now), now)
            await self.ack(lease, EXPIRED, (), now)
        elif event is Event.EXPIRE and self._give_back(lease, now):
            self.session.of(overdue.host).end("r", self._token(lease), encode(overdue))
        else:
            await self.nack(lease, EXPIRED, None, now)

    def _remember(self, record: UrlRecord) -> None:
        if not record.dont_filter:
            self._known.add(record.segment, record.fingerprint)


def _policy(policy: Policy) -> dict[str, float]:
    return {
        "delay": policy.delay_s,
        "places": policy.concurrency_per_host,
        "robots": int(policy.robots),
        "robots_ttl": policy.robots_ttl_s,
        "resolves": int(policy.resolves),
        "ip_delay": policy.delay_per_ip_s,
        "ip_places": policy.concurrency_per_ip,
    }
