"""A frontier that many workers share, in Redis: see `lua/base.lua` for what is kept where.

What a worker reports (done, failed, blocked...) waits here and goes to the server with the next `lease`, `push`,
`commit` or `stats`: one round trip for all of it. What is done counts at once, and is taken back if the worker dies
before its next `commit`. Leases end with their worker, not with time: `expire` is about our own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import msgspec

from lycosa.core.errors import StateError
from lycosa.core.frontier import Event, Policy, State, expire, fail, give_up
from lycosa.core.model import FrontierStats, HostFacts, Kind, Lease, Row, UrlRecord, Validators
from lycosa.core.workbench import Claim, Host
from lycosa.frontiers.redis.connection import check, clients_of, patiently, shown
from lycosa.frontiers.redis.heart import Heart
from lycosa.frontiers.redis.known import Known
from lycosa.frontiers.redis.lanes import decode, encode, question
from lycosa.frontiers.redis.partition import Partition, policy_pairs, pushed
from lycosa.frontiers.redis.scripts import run

EXPIRED = "lease expired"
POLL_S = 0.05
"""How often is asked for work while other workers may make some."""

VERBS_MAX = 1000
"""Reports that wait; with more they are sent at once."""

DELAY_MAX_S = 3600.0

Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]

_facts = msgspec.msgpack.Decoder(HostFacts).decode


class RedisFrontier:
    """See `ports.Frontier`; every method here is documented there. Make it with `redis_frontier`.

    `clock` is the time of callers, who pass it as `now`, when the script is to use that too: in simulations.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        policy: Policy,
        worker: str,
        patiently: Patiently,
        *,
        clock: Callable[[], float] = time.time,
        callers_clock: bool = False,
    ) -> None:
        self._client = client
        self._patiently = patiently
        self._clock = clock
        self._serial = 0
        self.heart: Heart | None = None
        self._exchanging = asyncio.Lock()
        self._policy = policy
        self._name = worker
        self._callers_clock = callers_clock
        self._now = self._shift_s = 0.0
        self._partition = Partition(f"lycosa:{{{name}.0}}:")
        self._known = Known()
        self._held: dict[int, Lease] = {}
        self._claims: dict[int, Claim] = {}
        self._claimed = self._offered = self._added = 0
        self._facts: dict[str, HostFacts] = {}

    async def open(self, now: float = 0.0) -> None:
        """Join the crawl."""
        policy, self._now = self._policy, now
        said = await self._run(
            "open",
            self._name,
            *policy_pairs(
                {
                    "delay": policy.delay_s,
                    "places": policy.concurrency_per_host,
                    "robots": int(policy.robots),
                    "robots_ttl": policy.robots_ttl_s,
                    "resolves": int(policy.resolves),
                    "ip_delay": policy.delay_per_ip_s,
                    "ip_places": policy.concurrency_per_ip,
                    "slack": 0,
                }
            ),
        )
        self._partition.worker = said[1].decode()

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        for record in records:
            self._partition.add("+", *pushed(record, self._shift_s))
            self._remember(record)
        added, _ = await self._exchange(0)
        self._offered += len(records)
        self._added += added
        return added

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Ask what was pushed from here lately."""
        return self._known.among(segment, fingerprints)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now."""
        self._now = now
        _, leases = await self._exchange(limit)
        return leases

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
        arguments: list[Any] = [lease.token, reason, int(contacted), len(children)]
        for child in children:
            arguments += pushed(child, self._shift_s)
            self._remember(child)
        self._offered += len(children)
        self._partition.add("a", *arguments)
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
        self._partition.add("n", lease.token, int(contacted), again, reason, encode(record))
        await self._settled(lease)
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        """Give back untouched."""
        if not self._give_back(lease, now):
            return False
        self._partition.add("r", lease.token, "")
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
        self._partition.add("b", host, repr(until + self._shift_s))

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line."""
        if holder is not None and holder.token in self._held:
            self._partition.add("o", holder.token)
        self._claimed += 1
        return Claim(Host(key=host), wake, self._claimed)

    async def turn(self, claim: Claim, now: float) -> float:
        """Ask for the turn."""
        if claim.granted:
            return 0.0
        self._now = now
        if self._partition.waiting:
            await self._exchange(0)
        _, at, address = await self._run("turn", claim.stamp, claim.host.key, "")
        if float(at) > 0:
            return float(at) - self._shift_s
        claim.granted, claim.address = True, address.decode()
        return 0.0

    async def unclaim(self, claim: Claim, now: float) -> None:
        """End it."""
        self._now = now
        if claim.granted:
            claim.granted = False
            self._partition.add("u", claim.stamp)

    def wants_address(self, host: str, now: float) -> bool:
        """Ask."""
        return self._policy.resolves

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Throttle."""
        self._partition.add("t", host, repr(min(max(0.0, delay_s), DELAY_MAX_S)))

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        found = self._facts.get(host)
        if found is None:
            data = await self._client.hget(self._partition.key + "f", host)
            found = _facts(data) if data is not None else None
        return found

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self._now = now
        fetched, since = repr(facts.robots_at + self._shift_s), repr(now + self._shift_s)
        self._partition.add("f", host, fetched, since, repr(facts.crawl_delay_s), encode(facts))
        await self._exchange(0)

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self._now = now
        self._partition.add("i", host, address, repr(until + self._shift_s))

    def next_ready(self, now: float) -> float | None:
        """As far as the last exchange told; while others have work, soon."""
        due = self._partition.due
        if due is not None:
            return due - self._shift_s if due else 0.0
        counts = self._partition.counts
        others = counts.get("leased", 0) + counts.get("uncommitted", 0) - len(self._held)
        return now + POLL_S if others > 0 and not self._callers_clock else None

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        fields = [part for name, position in positions.items() for part in (f"{self._name}/{name}", position)]
        self._partition.add("c", len(positions), *fields)
        await self._exchange(0)

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        found = await self._client.hgetall(self._partition.key + "p")
        mine = f"{self._name}/"
        told = ((name.decode(), int(position)) for name, position in found.items())
        return {name.removeprefix(mine): position for name, position in told if name.startswith(mine)}

    async def stats(self) -> FrontierStats:
        """Count."""
        await self._exchange(0)
        reasons, dead = await self._reasons("y"), await self._reasons("z")
        counts = {name: count for name, count in self._partition.counts.items() if name != "uncommitted"}
        return FrontierStats(**counts, reasons=reasons, dead_reasons=dead, offered=self._offered, added=self._added)

    async def segment_states(self) -> dict[str, str]:
        """Return the state of each segment."""
        found = await self._client.hgetall(self._partition.key + "g")
        return {name.decode(): state.decode() for name, state in found.items()}

    async def segment_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of each segment."""
        await self._exchange(0)
        return self._partition.segments

    async def reasons_by_segment(self, name: str) -> dict[str, dict[str, int]]:
        """Return why the URLs of each segment are done ("y") or dead ("z")."""
        found = await self._client.hgetall(self._partition.key + name)
        reasons: dict[str, dict[str, int]] = {}
        for field, count in found.items():
            segment, _, reason = field.decode().partition("\n")
            reasons.setdefault(segment, {})[reason] = int(count)
        return reasons

    async def dead_rows(self) -> AsyncIterator[Row]:
        """Yield what is dead."""
        async for _, data in self._client.hscan_iter(self._partition.key + "e"):
            at, _, reason, record = data.split(b"\n", 3)
            yield Row(State.DEAD, decode(record), float(at), reason.decode())

    async def sleeping_rows(self) -> AsyncIterator[Row]:
        """Yield what sleeps."""
        async for member, due in self._client.zscan_iter(self._partition.key + "d"):
            record = decode(member.split(b"\n", 2)[2])
            yield Row(State.RETRY if record.attempts else State.DELAYED, record, float(due))

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        found: list[tuple[UrlRecord, str]] = []
        async for row in self.dead_rows():
            found.append((row.record, row.reason))
            if len(found) >= limit:
                break
        return found

    @property
    def identity(self) -> tuple[str, str]:
        """The key of our partition, and our name in it."""
        return self._partition.key, self._partition.worker

    async def close(self) -> None:
        """Leave; what is not committed goes back."""
        if self.heart is not None:
            await asyncio.to_thread(self.heart.stop)
        with suppress(StateError):  # we were not there any more, or the server is not: others take over
            await self._run("leave")
        await self._client.aclose()

    # ----------------------------------------------------------------------------------------------------------------

    async def _run(self, command: str, *arguments: Any) -> list[Any]:
        now = repr(self._now) if self._callers_clock else ""
        key, worker = self._partition.key, self._partition.worker
        said = await self._patiently(lambda: run(self._client, key, now, command, worker, *arguments))
        if said[0] == b"unknown":
            raise StateError(f"worker {worker} was silent for too long: others go on with its URLs; start it again")
        return said

    async def _exchange(self, limit: int) -> tuple[int, list[Lease]]:
        async with self._exchanging:
            self._serial += 1
            said = await self._run("exchange", self._serial, *self._partition.take(), limit)
        _, added, refused, lent, (due, counts, arrived, at) = said
        if not self._callers_clock:
            self._shift_s = float(at) - self._clock()
        self._partition.heard(due, counts, arrived)
        if refused:
            raise StateError(f"{len(refused)} leases were not ours any more")
        return added, [self._lent(each) for each in lent if int(each[0]) not in self._held]

    def _lent(self, said: list[Any]) -> Lease:
        token, kind, host, data, address, attempts = said
        what = Kind(int(kind))
        record = decode(data) if what is Kind.PAGE else question(host.decode(), what, int(attempts), data)
        lease = Lease(int(token), record, self._now + self._policy.lease_s, address.decode())
        self._held[lease.token] = lease
        return lease

    def _give_back(self, lease: Lease, now: float) -> bool:
        self._now = now
        return self._held.pop(lease.token, None) is not None

    async def _settled(self, lease: Lease) -> None:
        """A question holds up its host: it is answered at once."""
        if lease.record.kind != Kind.PAGE or self._partition.waiting >= VERBS_MAX:
            await self._exchange(0)

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
            self._partition.add("r", lease.token, encode(overdue))
        else:
            await self.nack(lease, EXPIRED, None, now)

    def _remember(self, record: UrlRecord) -> None:
        if not record.dont_filter:
            self._known.add(record.segment, record.fingerprint)

    async def _reasons(self, name: str) -> dict[str, int]:
        found = await self._client.hgetall(self._partition.key + name)
        reasons: dict[str, int] = {}
        for field, count in found.items():
            reason = field.decode().partition("\n")[2]
            reasons[reason] = reasons.get(reason, 0) + int(count)
        return reasons


async def simulated_frontier(client: Any, name: str, policy: Policy, now: float) -> RedisFrontier:
    """Join a crawl by the clock of the callers, with no heart."""
    frontier = RedisFrontier(client, name, policy, "worker", _at_once, callers_clock=True)
    await frontier.open(now)
    return frontier


async def redis_frontier(url: str, name: str, policy: Policy, worker: str, say: Callable[[str], None]) -> RedisFrontier:
    """Join the crawl of this name. Raises `UsageError` for what is no address of a Redis, and `StateError`.

    `say` hears that the server is waited for.
    """
    clients, where = clients_of(url), shown(url)

    async def patient(act: Callable[[], Awaitable[Any]]) -> Any:
        return await patiently(act, where, say)

    frontier = RedisFrontier(clients.loop, name, policy, worker, patient)
    await patient(lambda: check(clients.loop, where))
    await frontier.open()
    frontier.heart = Heart(clients.blocking, *frontier.identity)
    return frontier


async def _at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()
