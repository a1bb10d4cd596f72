"""A frontier that many workers share, in Redis: see `lua/base.lua` for what is kept where.

What a worker reports (done, failed, blocked...) waits here and goes to the server with the next `lease`, `push`,
`commit` or `stats`: one round trip for all of it. What is done counts at once, and is taken back if the worker dies
before its next `commit`. Leases end with their worker, not with time: `expire` is about our own.

Hosts are spread over partitions, each a script of its own, that one step can be atomic in. A record that is found in
one and belongs to another waits in the outbox of the first until somebody has brought it over.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from lycosa.core.errors import StateError
from lycosa.core.frontier import Event, Policy, State, expire, fail, give_up
from lycosa.core.model import FrontierStats, HostFacts, Kind, Lease, Row, UrlRecord, Validators
from lycosa.core.workbench import Claim, Host
from lycosa.frontiers.redis.connection import check, clients_of, patiently, shown
from lycosa.frontiers.redis.heart import Heart
from lycosa.frontiers.redis.known import Known
from lycosa.frontiers.redis.lanes import decode, encode, question
from lycosa.frontiers.redis.partition import Partition, policy_pairs, pushed
from lycosa.frontiers.redis.wire import Asked, Patiently, Wire

EXPIRED = "lease expired"
POLL_S = 0.05
"""How often is asked for work while other workers may make some."""

VERBS_MAX = 1000
"""Reports that wait; with more they are sent at once."""

SHIFTS = 50
"""Exchanges by which our clock is compared with that of the server."""

DELAY_MAX_S = 3600.0

_facts = msgspec.msgpack.Decoder(HostFacts).decode


@dataclass(slots=True)
class Membership:
    """What a worker remembers of the crawl that it takes part in: under which name, and which crawl it is."""

    worker: str
    crawl: str = ""


class RedisFrontier:
    """See `ports.Frontier`; every method here is documented there. Make it with `redis_frontier`.

    So many records are lent `ahead` of what was asked for. Callers pass the time as `now`; with `callers_clock`, in
    simulations, the script goes by it too.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        policy: Policy,
        worker: str,
        patiently: Patiently,
        *,
        partitions: int = 1,
        ahead: int = 0,
        callers_clock: bool = False,
    ) -> None:
        self._policy = policy
        self._crawl = name
        self._name = worker
        self._ahead = ahead
        self._callers_clock = callers_clock
        self._now = self._shift_s = 0.0
        self._wire = Wire(client, patiently, lambda: repr(self._now) if callers_clock else "")
        self._partitions = [Partition(f"lycosa:{{{name}.{number}}}:", number) for number in range(partitions)]
        self._known = Known()
        self._held: dict[int, Lease] = {}
        self._stock: deque[Lease] = deque()
        self._shifts: deque[float] = deque(maxlen=SHIFTS)
        self._paced: set[str] = set()
        self._finished = False
        self._claimed = self._offered = self._commit = 0
        self._heart: Heart | None = None

    async def open(self, known: str = "", now: float = 0.0) -> str:
        """Join the crawl: the one that is known, "" to begin it if there is none. Return which one it is.

        Raises `StateError` when it is not there any more.
        """
        self._now = now
        policy, parts = policy_pairs(_policy(self._policy)), len(self._partitions)
        crawl = "" if known else token_hex(8)
        for partition in self._partitions:
            partition.worker = self._partitions[0].worker
            said = await self._wire.run(partition, "open", self._name, crawl, parts, partition.number, *policy)
            partition.worker, found, divided = (part.decode() for part in said[1:])
            if known and found != known:
                what = "another has its name" if found else "the server has lost it"
                raise StateError(f"the crawl {self._crawl!r} that this worker took part in is gone: {what}")
            if int(divided) != parts:
                raise StateError(
                    f"the crawl {self._crawl!r} has {divided} partitions, not {parts}: partitions={divided}"
                )
            crawl = "" if known else found
        return known or crawl

    def beat(self, client: Any) -> None:
        """Let a heart beat over a client that blocks."""
        self._heart = Heart(client, self._partitions[0].key, self._partitions[0].worker)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        for record in records:
            self._of(record.host).add("+", *pushed(record, self._shift_s))
            self._remember(record)
        before = self._wire.added
        await self._send()
        self._offered += len(records)
        return self._wire.added - before

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Ask what was pushed from here lately."""
        return self._known.among(segment, fingerprints)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now: of the stock, if that is enough."""
        self._now = now
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
        home = self._of(lease.record.host)
        arguments: list[Any] = [self._token(lease), reason, int(contacted), len(children)]
        for child in children:
            there = self._of(child.host)
            arguments += ("" if there is home else there.number, *pushed(child, self._shift_s))
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
        again = "" if retry_at is None else repr(retry_at + self._shift_s)
        self._of(record.host).end("n", self._token(lease), int(contacted), again, reason, encode(record))
        await self._settled(lease)
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        """Give back untouched."""
        if not self._give_back(lease, now):
            return False
        self._of(lease.record.host).end("r", self._token(lease), "")
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
        self._now = now
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
        self._of(host).add("b", host, repr(until + self._shift_s))

    def started(self, host: str, now: float) -> None:
        """A transfer to the host starts now: its next turn counts from here, however long it was held up before."""
        if host in self._paced:
            self._of(host).add("s", host, repr(now + self._shift_s))

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line."""
        if holder is not None and holder.token in self._held:
            self._of(holder.record.host).add("o", self._token(holder))
        self._claimed += 1
        return Claim(Host(key=host), wake, self._claimed)

    async def turn(self, claim: Claim, now: float) -> float:
        """Ask for the turn."""
        if claim.granted:
            return 0.0
        self._now = now
        partition = self._of(claim.host.key)
        if partition.waiting:
            await self._send()
        _, at, address = await self._wire.run(partition, "turn", claim.stamp, claim.host.key, "")
        if float(at) > 0:
            return float(at) - self._shift_s
        claim.granted, claim.address = True, address.decode()
        return 0.0

    async def unclaim(self, claim: Claim, now: float) -> None:
        """End it."""
        self._now = now
        if claim.granted:
            claim.granted = False
            self._of(claim.host.key).add("u", claim.stamp)

    def wants_address(self, host: str, now: float) -> bool:
        """Ask."""
        return self._policy.resolves

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Throttle."""
        self._of(host).add("t", host, repr(min(max(0.0, delay_s), DELAY_MAX_S)))

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        data = await self._ask("hget", self._of(host), "f", host)
        return _facts(data) if data is not None else None

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self._now = now
        fetched, since = repr(facts.robots_at + self._shift_s), repr(now + self._shift_s)
        self._of(host).add("f", host, fetched, since, repr(facts.crawl_delay_s), encode(facts))
        await self._send()

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self._now = now
        self._of(host).add("i", host, address, repr(until + self._shift_s))

    def next_ready(self, now: float) -> float | None:
        """As far as the last exchange told; while others have work, soon."""
        dues = [partition.due for partition in self._partitions if partition.due is not None]
        if self._stock or 0.0 in dues:
            return 0.0
        due = min(dues, default=None)
        if due is not None:
            due -= self._shift_s
        if self._finished or self._callers_clock:
            return due
        return min(now + POLL_S, due) if due is not None else now + POLL_S

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        self._commit += 1
        first, *others = self._partitions
        prepared = [partition for partition in others if partition.acked]
        for partition in prepared:
            partition.acked = False
            partition.add("p", self._commit)
        await self._exchange([Asked(partition) for partition in prepared])
        fields = [part for name, position in positions.items() for part in (f"{self._name}/{name}", position)]
        first.add("c", self._commit, len(positions), *fields)
        await self._send()
        for partition in prepared:
            partition.add("q")

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        found = await self._ask("hgetall", self._partitions[0], "p")
        mine = f"{self._name}/"
        told = ((name.decode(), int(position)) for name, position in found.items())
        return {name.removeprefix(mine): position for name, position in told if name.startswith(mine)}

    async def stats(self) -> FrontierStats:
        """Count."""
        await self._look()
        parts = [partition.counts for partition in self._partitions]
        queued, leased, delayed, done, dead = (
            sum(part.get(name, 0) for part in parts) for name in ("queued", "leased", "delayed", "done", "dead")
        )
        reasons, dead_reasons = await self._reasons("y"), await self._reasons("z")
        return FrontierStats(
            queued + sum(part.get("outgoing", 0) for part in parts),
            leased,
            delayed,
            done,
            dead,
            reasons=reasons,
            dead_reasons=dead_reasons,
            offered=self._offered,
            added=self._wire.added,
        )

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        found: list[tuple[UrlRecord, str]] = []
        async for row in self.dead_rows():
            found.append((row.record, row.reason))
            if len(found) >= limit:
                break
        return found

    async def close(self) -> None:
        """Leave; what is not committed goes back."""
        if self._heart is not None:
            await asyncio.to_thread(self._heart.stop)
        with suppress(StateError):  # we were not there any more, or the server is not: others take over
            _, told = await self._wire.run(self._partitions[0], "leave")
            self._partitions[0].heard(*told)
            await self._tell_of_the_gone()
        await self._wire.client.aclose()

    # What operations look into.

    async def segment_states(self) -> dict[str, str]:
        """Return the state of each segment."""
        states: dict[str, str] = {}
        for partition in self._partitions:
            found = await self._ask("hgetall", partition, "g")
            states |= {name.decode(): state.decode() for name, state in found.items()}
        return states

    async def segment_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of each segment."""
        await self._look()
        counts: dict[str, dict[str, int]] = {}
        for partition in self._partitions:
            for name, part in partition.segments.items():
                total = counts.setdefault(name, dict.fromkeys(part, 0))
                for word, number in part.items():
                    total[word] += number
        return counts

    async def reasons_by_segment(self, name: str) -> dict[str, dict[str, int]]:
        """Return why the URLs of each segment are done ("y") or dead ("z")."""
        reasons: dict[str, dict[str, int]] = {}
        for partition in self._partitions:
            for field, count in (await self._ask("hgetall", partition, name)).items():
                segment, _, reason = field.decode().partition("\n")
                mine = reasons.setdefault(segment, {})
                mine[reason] = mine.get(reason, 0) + int(count)
        return {segment: {why: n for why, n in mine.items() if n} for segment, mine in reasons.items()}

    async def dead_rows(self) -> AsyncIterator[Row]:
        """Yield what is dead."""
        for partition in self._partitions:
            async for _, data in self._wire.client.hscan_iter(partition.key + "e"):
                at, _, reason, record = data.split(b"\n", 3)
                yield Row(State.DEAD, decode(record), float(at), reason.decode())

    async def sleeping_rows(self) -> AsyncIterator[Row]:
        """Yield what sleeps."""
        for partition in self._partitions:
            async for member, due in self._wire.client.zscan_iter(partition.key + "d"):
                record = decode(member.split(b"\n", 2)[2])
                yield Row(State.RETRY if record.attempts else State.DELAYED, record, float(due))

    # ----------------------------------------------------------------------------------------------------------------

    def _of(self, host: str) -> Partition:
        if len(self._partitions) == 1:
            return self._partitions[0]
        return self._partitions[xxh3_64_intdigest(host.encode()) % len(self._partitions)]

    def _token(self, lease: Lease) -> int:
        """Return what the partition calls the lease: our tokens hold the number of the partition too."""
        return lease.token // len(self._partitions)

    async def _ask(self, command: str, partition: Partition, name: str, *arguments: Any) -> Any:
        method = getattr(self._wire.client, command)
        return await self._wire.patiently(lambda: method(partition.key + name, *arguments))

    async def _send(self) -> None:
        """Send what waits."""
        await self._exchange([Asked(each) for each in self._partitions if each.waiting])

    async def _look(self) -> None:
        """Ask all partitions how they are."""
        await self._exchange([Asked(each) for each in self._partitions])

    async def _fetch(self, wanted: int) -> None:
        """Ask all partitions for their share, then those that gave it for more; see whether all is done."""
        asked = self._partitions
        while asked and wanted > 0:
            share, ahead = -(-wanted // len(asked)), -(-self._ahead // len(asked))
            given = await self._exchange([Asked(each, share, ahead) for each in asked])
            asked = [each for each in asked if given[each] >= share]
            wanted -= sum(given.values())
        await self._tell_of_the_gone()
        await self._forward()
        if not self._stock and not self._held:
            self._finished = await self._is_over()

    async def _exchange(self, asked: Sequence[Asked]) -> dict[Partition, int]:
        """Return how many records each of the partitions lent."""
        lent = await self._wire.exchange(asked)
        if not self._callers_clock and asked:
            # The answer was on its way, and waited for a busy loop: the largest difference is the nearest.
            self._shifts.append(asked[0].partition.at - time.time())
            self._shift_s = max(self._shifts)
        for partition, records in lent.items():
            for each in records:
                self._lent(partition, each)
        return {partition: len(records) for partition, records in lent.items()}

    async def _tell_of_the_gone(self) -> None:
        """Tell the other partitions which workers were given up, and the first that they know."""
        first, *others = self._partitions
        gone = first.gone
        if not gone:
            return
        for partition in others:
            for worker, commit in gone.items():
                await self._wire.run(partition, "gone", worker, commit)
        for worker in gone:
            await self._wire.run(first, "known", worker)

    async def _forward(self) -> None:
        """Bring what is in our outboxes, or, when there is nothing to do, in any, to where it belongs."""
        for source in self._partitions:
            if not source.counts.get("outgoing"):
                source.outgoing.clear()
                continue
            targets = source.outgoing or {each.number for each in self._partitions} - {source.number}
            for number in list(targets):
                await self._wire.forward(source, self._partitions[number])
            source.outgoing.clear()

    async def _is_over(self) -> bool:
        """Look twice at all partitions: when nothing was live either time, and nothing came in between, all is done."""
        arrived: list[int] = []
        for _ in range(2):
            before, arrived = arrived, [partition.arrived for partition in self._partitions]
            if self._partitions[0].gone or any(partition.live for partition in self._partitions):
                return False
            if before:
                return before == arrived
            await self._look()
        return False

    def _lent(self, partition: Partition, said: list[Any]) -> None:
        token, kind, host, data, address, attempts, paced = said
        what = Kind(int(kind))
        number = int(token) * len(self._partitions) + partition.number
        if number in self._held or int(token) in partition.ending:
            return  # the answer to an exchange that was sent twice
        record = decode(data) if what is Kind.PAGE else question(host.decode(), what, int(attempts), data)
        lease = Lease(number, record, self._now + self._policy.lease_s, address.decode())
        self._held[number] = lease
        self._stock.append(lease)
        if paced:
            self._paced.add(record.host)

    def _give_back(self, lease: Lease, now: float) -> bool:
        self._now = now
        return self._held.pop(lease.token, None) is not None

    async def _settled(self, lease: Lease) -> None:
        """A question holds up its host: it is answered at once."""
        if lease.record.kind != Kind.PAGE or self._of(lease.record.host).waiting >= VERBS_MAX:
            await self._send()

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
            self._of(overdue.host).end("r", self._token(lease), encode(overdue))
        else:
            await self.nack(lease, EXPIRED, None, now)

    def _remember(self, record: UrlRecord) -> None:
        if not record.dont_filter:
            self._known.add(record.segment, record.fingerprint)

    async def _reasons(self, name: str) -> dict[str, int]:
        total: dict[str, int] = {}
        for reasons in (await self.reasons_by_segment(name)).values():
            for reason, count in reasons.items():
                total[reason] = total.get(reason, 0) + count
        return total


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


async def simulated_frontier(
    client: Any, name: str, policy: Policy, now: float, *, partitions: int = 1
) -> RedisFrontier:
    """Join a crawl by the clock of the callers, with no heart."""
    frontier = RedisFrontier(client, name, policy, "worker", _at_once, partitions=partitions, callers_clock=True)
    await frontier.open(now=now)
    return frontier


async def redis_frontier(
    url: str,
    name: str,
    policy: Policy,
    member: Membership,
    say: Callable[[str], None],
    *,
    partitions: int = 1,
    ahead: int = 0,
) -> RedisFrontier:
    """Join the crawl of this name. Raises `UsageError` for what is no address of a Redis, and `StateError`.

    `say` hears that the server is waited for.
    """
    where = shown(url)

    async def patient(act: Callable[[], Awaitable[Any]]) -> Any:
        return await patiently(act, where, say)

    clients = await patient(lambda: asyncio.to_thread(clients_of, url))
    frontier = RedisFrontier(clients.loop, name, policy, member.worker, patient, partitions=partitions, ahead=ahead)
    await patient(lambda: check(clients.loop, where))
    member.crawl = await frontier.open(member.crawl)
    frontier.beat(clients.blocking)
    return frontier


async def _at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()
