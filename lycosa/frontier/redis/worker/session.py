"""One worker's session with a crawl in Redis: its partitions, its calls to them, their clocks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from lycosa.core.errors import UsageError
from lycosa.frontier.core.finish import PartitionStatus, RoundResult, TerminationDetector
from lycosa.frontier.core.model import Lease
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.refusals import ExpectedCrawl, StoredCrawl, refuse_other_crawl
from lycosa.frontier.redis.repair import deliver_lost_records, expire_unknown_workers
from lycosa.frontier.redis.shielded_calls import ShieldedCalls
from lycosa.frontier.redis.worker.calls import NO_LEASES, ExchangeRequest, PartitionCalls, Retry
from lycosa.frontier.redis.worker.partition import Partition, policy_arguments

REPAIR_EVERY_S = 3.0
"""How often a worker with nothing to do looks for work that nobody would ever end."""

DELIVER_EVERY_S, DELIVER_IDLE_S, DELIVER_COUNT = 2.0, 0.02, 200
"""Outboxes are delivered this often, more often by a worker without other work, or when so many records wait for each
target."""

CRAWLS = "lycosa:crawls"
"""The set of the names of all crawls in a Redis."""

NAME_SHOWN = 40
"""Characters of a bad name in a message."""

NAME = re.compile(r"[^{}\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,200}")


def checked_crawl_name(name: str) -> str:
    """Return the name of a crawl, if it can be part of a key and of a line. Raises `UsageError`."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= NAME_SHOWN else name[:NAME_SHOWN] + "..."
        raise UsageError(f"{shown!r} is not a crawl name: give a --crawl-name of at most 200 characters, no braces")
    return name


def key_of(crawl: str, number: int) -> str:
    """Return the prefix of the keys of a partition. The braces are its hash tag."""
    return f"lycosa:{{{crawl}.{number}}}:"


class CrawlStatus(NamedTuple):
    """How many hosts and workers a crawl has."""

    hosts: int
    workers: int


class Session:
    """One worker in one crawl of `spider`; without a worker, one that only operates from outside.

    With `callers_clock`, in simulations, the script uses the time of the caller (`now`). `report` makes the last report
    of the worker. Raises `UsageError` for a bad crawl name.
    """

    def __init__(
        self,
        client: Any,
        crawl: str,
        worker: str,
        retry: Retry,
        partitions: int,
        *,
        callers_clock: bool,
        spider: str = "",
        keep_done: bool = False,
    ) -> None:
        self.crawl = checked_crawl_name(crawl)
        self.keep_done = keep_done
        self.worker = worker
        self.spider = spider
        self.callers_clock = callers_clock
        self._now = self._now_set_at = self._delivered_at = 0.0
        self._repaired_at = time.monotonic()
        self._finished_at: list[int] = []
        """What had arrived in each partition when the crawl was found finished; empty when it was not."""
        self.calls = PartitionCalls(client, retry, lambda: repr(self._now) if callers_clock else "")
        self.partitions = [Partition(key_of(crawl, number), number) for number in range(partitions)]
        self._shielded = ShieldedCalls()
        self.first_goes_first = False
        """What waits for the first partition must arrive before anything reaches the others."""
        self.has_begun = False
        """True when this worker began the crawl."""
        self.report: Callable[[], bytes] = bytes

    @property
    def now(self) -> float:
        """The last time of the caller's clock."""
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now, self._now_set_at = now, time.monotonic()

    async def open(self, policy: Mapping[str, float], known: str) -> str:
        """Join the crawl with this number, "" for any, also a new one. Return its number.

        Raises `StateError` when it is missing, incomplete, differently divided, of another version or spider.
        """
        crawl, whole, first, new = known, "", self.partitions[0], token_hex(8)
        expected = ExpectedCrawl(self.crawl, len(self.partitions), self.spider, self.keep_done)
        for partition in self.partitions:
            partition.worker = first.worker
            # A partition of a crawl that was complete is never made again: it was lost.
            begins = "" if known or whole else crawl or new
            begin = (begins, len(self.partitions), partition.number, int(self.keep_done), self.spider)
            _, *answer = await self.calls.run(partition, "join", self.worker, *begin, *policy_arguments(policy))
            partition.worker, layout, *found = (part.decode() for part in answer)
            refuse_other_crawl(expected, StoredCrawl(*found), partition.number, crawl, layout)
            crawl, whole = found[0], whole or found[4]
        self.has_begun = crawl == new
        if not whole:
            await self.calls.run(first, "whole")
        return crawl

    async def leave(self) -> None:
        """Give back everything that is not committed, and leave the crawl."""
        await self._shielded.wait()
        _, status = await self.calls.run(self.partitions[0], "leave", self.report())
        self.partitions[0].update(*status)
        await self.announce_expired()

    def partition_of(self, host: str) -> Partition:
        """Return the partition of a host key."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[xxh3_64_intdigest(host.encode()) % len(self.partitions)]

    def token(self, lease: Lease) -> int:
        """Return the token by which its partition knows a lease: `lease.token` holds the partition's number, too."""
        return lease.token // len(self.partitions)

    async def query(self, command: str, partition: Partition, key: str, *arguments: Any) -> Any:
        """Read something with a command of the client."""
        method: Callable[..., Any] = getattr(self.calls.client, command)
        return await self.calls.retry(lambda: method(partition.key + key, *arguments))

    async def exchange(self, requests: Sequence[ExchangeRequest]) -> dict[Partition, int]:
        """Send what waits for these partitions, and ask for leases. Return how many each has granted.

        The exchange is completed even if the caller is cancelled meanwhile.
        """
        return await self._shielded(self._exchange(requests))

    async def _exchange(self, requests: Sequence[ExchangeRequest]) -> dict[Partition, int]:
        first = self.partitions[0]
        if self.first_goes_first and any(each.partition is not first for each in requests):
            self.first_goes_first = False
            await self.calls.exchange([ExchangeRequest(first, NO_LEASES)])
        granted = await self.calls.exchange(requests)
        self._compare_clocks(granted)
        return granted

    def _compare_clocks(self, partitions: Iterable[Partition]) -> None:
        if self._now and not self.callers_clock:
            offset_s = self._now - self._now_set_at
            for partition in partitions:
                partition.compare_clocks(partition.exchanged_at + offset_s, time.monotonic() + offset_s)

    async def operate(self, partition: Partition, operation: str, *arguments: Any) -> Any:
        """Run an operation from outside, for which the session need not have joined."""
        return await self.calls.operate(partition, operation, *arguments)

    async def operate_all(self, operation: str, *arguments: Any) -> list[Any]:
        """Run it in all partitions."""
        return await asyncio.gather(*(self.operate(each, operation, *arguments) for each in self.partitions))

    async def status(self) -> CrawlStatus:
        """Update the status of all partitions; the session need not have joined."""
        replies = await self.calls.status(self.partitions)
        self._compare_clocks(self.partitions)
        return CrawlStatus(sum(hosts for _, _, hosts, _ in replies), replies[0][3])

    async def send(self, partitions: Sequence[Partition] = ()) -> None:
        """Send what waits, for these partitions or for all."""
        waiting = [each for each in partitions or self.partitions if each.waiting_verbs]
        if waiting:
            await self.exchange([ExchangeRequest(each, always=False) for each in waiting])

    def waiting_since(self) -> float:
        """Return a time (monotonic) before which none of the waiting verbs was added; 0 when none wait."""
        return min((each.exchanged_at for each in self.partitions if each.waiting_verbs), default=0.0)

    async def refresh(self) -> None:
        """Exchange with all partitions, without asking for leases."""
        await self.exchange([ExchangeRequest(each, NO_LEASES) for each in self.partitions])

    async def deliver(self, *, idle: bool = True) -> None:
        """Deliver the outboxes that this worker has filled, or all outboxes of a partition when it has filled none.

        They may wait until it is worth it, less long when the worker is `idle`.
        """
        now = time.monotonic()
        if self.callers_clock or (idle and now >= self._delivered_at + DELIVER_IDLE_S):
            enough = 1
        else:
            enough = 1 if now >= self._delivered_at + DELIVER_EVERY_S else DELIVER_COUNT * (len(self.partitions) - 1)
        sources = [source for source in self.partitions if source.counts.get("outgoing", 0) >= enough > 0]
        if sources:
            self._delivered_at = now
        for source in sources:
            ours, source.outgoing = source.outgoing, set()  # more may be added meanwhile
            targets = ours or {each.number for each in self.partitions} - {source.number}
            await asyncio.gather(*(self.calls.deliver(source, self.partitions[number]) for number in targets))

    async def announce_expired(self) -> None:
        """Tell the other partitions which workers were given up, and then the first one that they know."""
        first, *others = self.partitions
        for worker, commit in first.expired.items():
            for partition in others:
                await self.calls.run(partition, "expire", worker, commit)
            await self.calls.run(first, "expired_everywhere", worker)

    async def totals(self) -> dict[str, int]:
        """Return the sums over all workers, by name of the counter."""
        totals = await self.query("hgetall", self.partitions[0], Key.TOTALS)
        return {name.decode(errors="replace"): int(count) for name, count in totals.items()}

    def is_live(self) -> bool:
        """Return True if any record is not done for good, as of the last status."""
        return any(partition.live for partition in self.partitions)

    async def is_finished(self) -> bool:
        """Look at all partitions, and again if that may be the end: see `frontier.core.finish`.

        Call it after an exchange with all of them. When a replica took over one of them, something may be missing or
        never end, and is repaired first. A finished crawl stays finished until something arrives.
        """
        arrived = [each.arrived for each in self.partitions]
        if self._finished_at == arrived and not self.is_live() and not self.partitions[0].expired:
            return True
        self._finished_at = []
        if self.is_live() or not await self._seems_finished():
            await self._repair_sometimes()
            return False
        if await deliver_lost_records(self.calls, self.partitions) and not await self._seems_finished():
            return False
        self._finished_at = [each.arrived for each in self.partitions]
        return True

    async def _repair_sometimes(self) -> None:
        if len(self.partitions) > 1 and time.monotonic() >= self._repaired_at + REPAIR_EVERY_S:
            self._repaired_at = time.monotonic()
            await expire_unknown_workers(self.calls, self.partitions)
            await self.announce_expired()

    async def _seems_finished(self) -> bool:
        detector = TerminationDetector(len(self.partitions))
        result = RoundResult.AGAIN
        while result is RoundResult.AGAIN:
            await self.refresh()
            # What expired workers held may not be back in the other partitions: that counts as live.
            expired = bool(self.partitions[0].expired)
            statuses = {each.number: PartitionStatus(each.live + expired, each.arrived) for each in self.partitions}
            result = detector.round(statuses)
        return result is RoundResult.FINISHED

    @property
    def is_full(self) -> bool:
        """True when a server has reached its maxmemory, as of the last status."""
        return any(partition.is_full for partition in self.partitions)

    def total(self, state: str) -> int:
        """Return a count over all partitions, as of the last status."""
        return sum(partition.counts.get(state, 0) for partition in self.partitions)
