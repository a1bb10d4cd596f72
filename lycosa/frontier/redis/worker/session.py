"""What one worker has with a crawl in Redis: its partitions, its calls to them, its idea of their clocks."""

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
from lycosa.frontier.redis.refusals import Found, Wanted, refuse
from lycosa.frontier.redis.repair import bring_again, tell_of_strangers
from lycosa.frontier.redis.shielded_calls import Unbroken
from lycosa.frontier.redis.worker.partition import Partition, policy_pairs
from lycosa.frontier.redis.worker.wire import NOTHING, Asked, Patiently, Wire

MEND_EVERY_S = 3.0
"""How often a worker with nothing to do looks for what nobody will ever end."""

FORWARD_S, HUNGRY_S, WORTH = 2.0, 0.02, 200
"""Outboxes are brought over after so long, sooner when there is no other work, or when so many wait for each target."""

CRAWLS = "lycosa:crawls"
"""The set of the names of all crawls in a Redis."""

NAME_SHOWN = 40
"""Characters of a name that is none."""

NAME = re.compile(r"[^{}\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,200}")


def checked_crawl(name: str) -> str:
    """Return the name of a crawl, if it can be part of a key and of a line. Raises `UsageError`."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= NAME_SHOWN else name[:NAME_SHOWN] + "..."
        raise UsageError(f"{shown!r} is no name of a crawl: give a --crawl-name of at most 200 characters, no braces")
    return name


def key_of(crawl: str, number: int) -> str:
    """Return what the keys of a partition begin with."""
    return f"lycosa:{{{crawl}.{number}}}:"


class Outlook(NamedTuple):
    """What there is beside the counts."""

    hosts: int
    workers: int


class Session:
    """One worker in one crawl, which is one of `spider`.

    Raises `UsageError` for a crawl that cannot be called so. With `callers_clock`, in simulations, the script goes by
    the caller's. `report` makes what the worker tells at its end.
    """

    def __init__(
        self,
        client: Any,
        crawl: str,
        worker: str,
        patiently: Patiently,
        partitions: int,
        *,
        callers_clock: bool,
        spider: str = "",
        keeps_done: bool = False,
    ) -> None:
        self.crawl = checked_crawl(crawl)
        self.keeps_done = keeps_done
        self.worker = worker
        self.spider = spider
        self.callers_clock = callers_clock
        self._now = self._seen = self._forwarded_at = 0.0
        self._mended_at = time.monotonic()
        self._over: list[int] = []
        self.wire = Wire(client, patiently, lambda: repr(self._now) if callers_clock else "")
        self.partitions = [Partition(key_of(crawl, number), number) for number in range(partitions)]
        self._unbroken = Unbroken()
        self.first_first = False
        """Whether the first partition is to hear what waits for it before the others hear anything."""
        self.begun = False
        """Whether it began the crawl when it joined."""
        self.report: Callable[[], bytes] = bytes

    @property
    def now(self) -> float:
        """What the caller's clock showed last."""
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now, self._seen = now, time.monotonic()

    async def open(self, policy: Mapping[str, float], known: str) -> str:
        """Join the crawl: the one that is known, "" to begin it if there is none. Return which one it is.

        Raises `StateError` when it is not there any more, in pieces, otherwise divided, of another version or spider.
        """
        crawl, whole, first, new = known, "", self.partitions[0], token_hex(8)
        wanted = Wanted(self.crawl, len(self.partitions), self.spider, self.keeps_done)
        for partition in self.partitions:
            partition.worker = first.worker
            begins = "" if known or whole else crawl or new
            divided = (begins, len(self.partitions), partition.number)
            told = (self.worker, *divided, int(self.keeps_done), self.spider, *policy_pairs(policy))
            _, *answer = await self.wire.run(partition, "open", *told)
            partition.worker, layout, *found = (part.decode() for part in answer)
            refuse(wanted, Found(*found), partition.number, crawl, layout)
            crawl, whole = found[0], whole or found[4]
        self.begun = crawl == new
        if not whole:
            await self.wire.run(first, "whole")
        return crawl

    async def leave(self) -> None:
        """Give everything back that is not committed, and be gone."""
        await self._unbroken.ended()
        _, told = await self.wire.run(self.partitions[0], "leave", self.report())
        self.partitions[0].heard(*told)
        await self.tell_of_the_gone()

    def of(self, host: str) -> Partition:
        """Return the partition of a host key."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[xxh3_64_intdigest(host.encode()) % len(self.partitions)]

    def token(self, lease: Lease) -> int:
        """Return the number by which its partition knows the lease: a lease's token holds the partition's, too."""
        return lease.token // len(self.partitions)

    async def ask(self, command: str, partition: Partition, name: str, *arguments: Any) -> Any:
        """Read something with a command of the client."""
        method: Callable[..., Any] = getattr(self.wire.client, command)
        return await self.wire.patiently(lambda: method(partition.key + name, *arguments))

    async def exchange(self, asked: Sequence[Asked]) -> dict[Partition, int]:
        """Send what waits for these partitions, and ask for records. Return how many each of them lent.

        It is lent, and said, also when our task is cancelled meanwhile.
        """
        return await self._unbroken(self._exchange(asked))

    async def _exchange(self, asked: Sequence[Asked]) -> dict[Partition, int]:
        first = self.partitions[0]
        if self.first_first and any(each.partition is not first for each in asked):
            self.first_first = False
            await self.wire.exchange([Asked(first, NOTHING)])
        lent = await self.wire.exchange(asked)
        self._compare_clocks(lent)
        return lent

    def _compare_clocks(self, heard: Iterable[Partition]) -> None:
        if self._now and not self.callers_clock:
            ahead_s = self._now - self._seen
            for partition in heard:
                partition.compare(partition.exchanged_at + ahead_s, time.monotonic() + ahead_s)

    async def read(self, partition: Partition, command: str, *arguments: Any) -> Any:
        """Run a command of `frontier/redis/lua/listing.lua`, for which one need not have joined."""
        return await self.wire.read(partition, command, *arguments)

    async def read_all(self, command: str, *arguments: Any) -> list[Any]:
        """Run it in all partitions."""
        return await asyncio.gather(*(self.read(each, command, *arguments) for each in self.partitions))

    async def outlook(self) -> Outlook:
        """Ask all partitions how they are, whoever asks. Return how many hosts and workers there are."""
        told = await self.wire.outlook(self.partitions)
        self._compare_clocks(self.partitions)
        return Outlook(sum(hosts for _, _, hosts, _ in told), told[0][3])

    async def send(self, partitions: Sequence[Partition] = ()) -> None:
        """Send what waits, for all or for these partitions."""
        waiting = [each for each in partitions or self.partitions if each.waiting]
        if waiting:
            await self.exchange([Asked(each, always=False) for each in waiting])

    def waits_since(self) -> float:
        """Return the time, by the monotonic clock, before which nothing of what waits began to wait; 0 for nothing."""
        return min((each.exchanged_at for each in self.partitions if each.waiting), default=0.0)

    async def look(self) -> None:
        """Ask all partitions how they are."""
        await self.exchange([Asked(each, NOTHING) for each in self.partitions])

    async def forward(self, *, hungry: bool = True) -> None:
        """Bring what is in our outboxes to where it belongs; when nothing of ours is there, what is in any.

        It may wait until it is worth it, not so long when we are `hungry`.
        """
        now = time.monotonic()
        if self.callers_clock or (hungry and now >= self._forwarded_at + HUNGRY_S):
            enough = 1
        else:
            enough = 1 if now >= self._forwarded_at + FORWARD_S else WORTH * (len(self.partitions) - 1)
        full = [source for source in self.partitions if source.counts.get("outgoing", 0) >= enough > 0]
        if full:
            self._forwarded_at = now
        for source in full:
            ours, source.outgoing = source.outgoing, set()  # more are added meanwhile
            targets = ours or {each.number for each in self.partitions} - {source.number}
            await asyncio.gather(*(self.wire.forward(source, self.partitions[number]) for number in targets))

    async def tell_of_the_gone(self) -> None:
        """Tell the other partitions which workers were given up, and the first that they know."""
        first, *others = self.partitions
        for worker, commit in first.gone.items():
            for partition in others:
                await self.wire.run(partition, "gone", worker, commit)
            await self.wire.run(first, "known", worker)

    async def totals(self) -> dict[str, int]:
        """Return what the workers have reported in all, by name of the counter."""
        found = await self.ask("hgetall", self.partitions[0], "wt")
        return {name.decode(errors="replace"): int(count) for name, count in found.items()}

    def is_live(self) -> bool:
        """Tell whether anything is not done for good, as far as the partitions told last."""
        return any(partition.live for partition in self.partitions)

    async def is_over(self) -> bool:
        """Look at all partitions, and once more if that may be the end. See `frontier.core.finish`.

        All of them were just asked. Something may be missing, or never end, for a replica took over one of them: then
        it is mended first. What was over still is, when nothing has arrived since.
        """
        arrived = [each.arrived for each in self.partitions]
        if self._over == arrived and not self.is_live() and not self.partitions[0].gone:
            return True
        self._over = []
        if self.is_live() or not await self._seems_over():
            await self._mend_sometimes()
            return False
        if await bring_again(self.wire, self.partitions) and not await self._seems_over():
            return False
        self._over = [each.arrived for each in self.partitions]
        return True

    async def _mend_sometimes(self) -> None:
        if len(self.partitions) > 1 and time.monotonic() >= self._mended_at + MEND_EVERY_S:
            self._mended_at = time.monotonic()
            await tell_of_strangers(self.wire, self.partitions)
            await self.tell_of_the_gone()

    async def _seems_over(self) -> bool:
        barrier = TerminationDetector(len(self.partitions))
        verdict = RoundResult.AGAIN
        while verdict is RoundResult.AGAIN:
            await self.look()
            gone = bool(self.partitions[0].gone)  # what they had may not be back in the other partitions
            readings = {each.number: PartitionStatus(each.live + gone, each.arrived) for each in self.partitions}
            verdict = barrier.round(readings)
        return verdict is RoundResult.FINISHED

    @property
    def is_full(self) -> bool:
        """Whether a server has reached its maxmemory, as its partition told last."""
        return any(partition.full for partition in self.partitions)

    def total(self, name: str) -> int:
        """Return a count of all partitions, as they told it last."""
        return sum(partition.counts.get(name, 0) for partition in self.partitions)
