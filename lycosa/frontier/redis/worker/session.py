"""One worker's session with a crawl in Redis: the partitions, the calls to them, their clocks."""

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
from lycosa.frontier.core.telemetry import RunProgress
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.refusals import ExpectedCrawl, StoredCrawl, refuse_other_crawl
from lycosa.frontier.redis.repair import deliver_lost_records, expire_unknown_workers
from lycosa.frontier.redis.shielded_calls import ShieldedCalls
from lycosa.frontier.redis.worker.calls import NO_LEASES, ExchangeRequest, PartitionCalls, Retry
from lycosa.frontier.redis.worker.partition import Partition, policy_arguments

REPAIR_EVERY_S = 3.0
"""How often an idle worker repairs records that would otherwise stay live for ever."""

DELIVER_EVERY_S, DELIVER_IDLE_S, DELIVER_COUNT = 2.0, 0.02, 200
"""Seconds between two deliveries of outboxes, by a busy and by an idle worker. If DELIVER_COUNT records wait for each
target on average, a worker delivers them at once."""

CRAWLS = "lycosa:crawls"
"""Key of the set with the names of all crawls on a Redis server."""

NAME_SHOWN = 40

NAME = re.compile(r"[^{}\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,200}")


def checked_crawl_name(name: str) -> str:
    """Raises `UsageError` unless the name can be used in keys and in lines of text."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= NAME_SHOWN else name[:NAME_SHOWN] + "..."
        expected = "use 1 to 200 characters, but no braces or control characters"
        raise UsageError(f"{shown!r} is not a valid crawl name: {expected}")
    return name


def key_of(crawl: str, number: int) -> str:
    """Return the key prefix of a partition, with its hash tag in braces."""
    return f"lycosa:{{{crawl}.{number}}}:"


class CrawlStatus(NamedTuple):
    """The numbers of hosts and workers of a crawl."""

    hosts: int
    workers: int


class Session:
    """One worker's session in a crawl of `spider`. Without a `worker` name it never joins; it only runs operations.

    With `callers_clock` (for simulations), the script uses the caller's time (`now`). `report` returns the last report
    of the worker. Raises `UsageError` for an invalid crawl name.
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
        """How many records had arrived in each partition when the crawl was found finished; empty if it is not."""
        self.calls = PartitionCalls(client, retry, lambda: repr(self._now) if callers_clock else "")
        self.partitions = [Partition(key_of(crawl, number), number) for number in range(partitions)]
        self.shielded = ShieldedCalls()
        self.first_partition_first = False
        """Whether the verbs for the first partition must arrive before any others."""
        self.has_begun = False
        """Whether this worker created the crawl."""
        self.rejoins = False
        """Whether this worker had expired and joins again: it continues the run of the crawl."""
        self.report: Callable[[], bytes] = bytes

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now, self._now_set_at = now, time.monotonic()

    async def open(self, policy: Mapping[str, float], known: str) -> str:
        """Join the crawl and return its number (random hexadecimal digits).

        With `known` "", any number is accepted, and a missing crawl is created. Raises `StateError` if the crawl is
        missing, incomplete or being deleted, or has another number of partitions, version, spider or `keep_done`.
        """
        crawl, whole, first, new = known, "", self.partitions[0], token_hex(8)
        session = f"{self.worker}#{token_hex(4)}"
        expected = ExpectedCrawl(self.crawl, len(self.partitions), self.spider, self.keep_done)
        for partition in self.partitions:
            partition.worker = first.worker
            # A missing partition of a complete crawl was lost: it is not created again.
            begins = "" if known or whole else crawl or new
            begin = (begins, len(self.partitions), partition.number, int(self.keep_done), self.spider)
            arguments = (session, *begin, *policy_arguments(policy), int(self.rejoins))
            _, *answer = await self.calls.run(partition, "join", *arguments)
            partition.worker, layout, *found = (part.decode() for part in answer)
            refuse_other_crawl(expected, StoredCrawl(*found), partition.number, crawl, layout)
            crawl, whole = found[0], whole or found[4]
        self.has_begun = crawl == new
        if not whole:
            await self.calls.run(first, "whole")
        return crawl

    async def leave(self) -> None:
        """Leave the crawl. The server queues leased and uncommitted records again."""
        await self.shielded.wait()
        _, status = await self.calls.run(self.partitions[0], "leave", self.report())
        self.partitions[0].update(*status)
        await self.announce_expired()

    def partition_of(self, host: str) -> Partition:
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[xxh3_64_intdigest(host.encode()) % len(self.partitions)]

    def token(self, lease: Lease) -> int:
        """`lease.token` also encodes the partition number."""
        return lease.token // len(self.partitions)

    async def query(self, command: str, partition: Partition, key: str, *arguments: Any) -> Any:
        """Run a read-only Redis command on a key of the partition."""
        method: Callable[..., Any] = getattr(self.calls.client, command)
        return await self.calls.retry(lambda: method(partition.key + key, *arguments))

    async def exchange(self, requests: Sequence[ExchangeRequest]) -> dict[Partition, int]:
        """Send the queued verbs of these partitions, and request leases. Return how many leases each granted.

        The exchange is completed even if the caller is cancelled.
        """
        return await self.shielded(self._exchange(requests))

    async def _exchange(self, requests: Sequence[ExchangeRequest]) -> dict[Partition, int]:
        first = self.partitions[0]
        if self.first_partition_first and any(each.partition is not first for each in requests):
            self.first_partition_first = False
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
        """Run an operation from outside the crawl. The session need not have joined."""
        return await self.calls.operate(partition, operation, *arguments)

    async def operate_all(self, operation: str, *arguments: Any) -> list[Any]:
        return await asyncio.gather(*(self.operate(each, operation, *arguments) for each in self.partitions))

    async def status(self) -> CrawlStatus:
        """The session need not have joined."""
        replies = await self.calls.status(self.partitions)
        self._compare_clocks(self.partitions)
        return CrawlStatus(sum(hosts for _, _, hosts, _ in replies), replies[0][3])

    async def send(self, partitions: Sequence[Partition] = ()) -> None:
        """Send the queued verbs of these partitions, by default of all."""
        waiting = [each for each in partitions or self.partitions if each.waiting_verbs]
        if waiting:
            await self.exchange([ExchangeRequest(each, always=False) for each in waiting])

    def waiting_since(self) -> float:
        """A monotonic time before which no queued verb was added; 0 if none is queued."""
        return min((each.exchanged_at for each in self.partitions if each.waiting_verbs), default=0.0)

    async def refresh(self) -> None:
        """Exchange with all partitions without requesting leases."""
        await self.exchange([ExchangeRequest(each, NO_LEASES) for each in self.partitions])

    async def deliver(self, *, idle: bool = True) -> None:
        """Deliver records from outboxes: to the partitions for which this worker has added some, else to all others.

        Does nothing until enough records wait, or enough time has passed since the last delivery: DELIVER_IDLE_S if the
        worker is `idle`, else DELIVER_EVERY_S.
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
        """Tell the other partitions which workers expired, then tell the first one that the others know."""
        first, *others = self.partitions
        for worker, commit in first.expired.items():
            for partition in others:
                await self.calls.run(partition, "expire", worker, commit)
            await self.calls.run(first, "expired_everywhere", worker)

    async def totals(self, report: bytes) -> dict[str, int]:
        await self.calls.run(self.partitions[0], "beat", report)
        totals = await self.query("hgetall", self.partitions[0], Key.TOTALS)
        return _counts([part for pair in totals.items() for part in pair])

    async def progress(self, report: bytes) -> RunProgress:
        _, time_, run_at, item_at, pages, totals, before = await self.calls.run(self.partitions[0], "progress", report)
        now, base = float(time_), _counts(before)
        counts = {name: count - base.get(name, 0) for name, count in _counts(totals).items()}
        pages_at_item = int(pages or 0) - base.get("pages", 0)
        return RunProgress(now - float(run_at or now), now - float(item_at or now), pages_at_item, counts)

    def is_live(self) -> bool:
        return any(partition.live for partition in self.partitions)

    async def is_finished(self) -> bool:
        """Call it after an exchange with all partitions.

        If the crawl seems finished, all partitions are checked again: see `frontier.core.finish`. A failover may lose
        records, or keep them live for ever; this method repairs both. A finished crawl stays finished until a record
        arrives.
        """
        arrived = [each.arrived for each in self.partitions]
        if self._finished_at == arrived and not self.is_live() and not self.partitions[0].expired:
            return True
        self._finished_at = []
        if self.is_live() or not await self._seems_finished():
            await self._repair_if_due()
            return False
        if await deliver_lost_records(self.calls, self.partitions) and not await self._seems_finished():
            return False
        self._finished_at = [each.arrived for each in self.partitions]
        return True

    async def _repair_if_due(self) -> None:
        if len(self.partitions) > 1 and time.monotonic() >= self._repaired_at + REPAIR_EVERY_S:
            self._repaired_at = time.monotonic()
            await expire_unknown_workers(self.calls, self.partitions)
            await self.announce_expired()

    async def _seems_finished(self) -> bool:
        detector = TerminationDetector(len(self.partitions))
        result = RoundResult.AGAIN
        while result is RoundResult.AGAIN:
            await self.refresh()
            # The records of expired workers may not be back in the queues of other partitions yet: count them as live.
            expired = bool(self.partitions[0].expired)
            statuses = {each.number: PartitionStatus(each.live + expired, each.arrived) for each in self.partitions}
            result = detector.round(statuses)
        return result is RoundResult.FINISHED

    @property
    def is_full(self) -> bool:
        """Whether any server had reached its maxmemory at the last status."""
        return any(partition.is_full for partition in self.partitions)

    def total(self, state: str) -> int:
        return sum(partition.counts.get(state, 0) for partition in self.partitions)


def _counts(flat: Sequence[bytes]) -> dict[str, int]:
    """Decode a flat reply: name, count, name, count ..."""
    return {name.decode(errors="replace"): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
