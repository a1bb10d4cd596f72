"""What one worker has with a crawl in Redis: its partitions, its calls to them, its idea of their clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from xxhash import xxh3_64_intdigest

from lycosa.core.barrier import Barrier, Reading, Verdict
from lycosa.core.errors import StateError
from lycosa.frontiers.redis.partition import Partition, policy_pairs
from lycosa.frontiers.redis.wire import Asked, Patiently, Wire

SHIFTS = 50
"""Exchanges by which our clock is compared with that of the server."""


class Session:
    """One worker in one crawl. `now` is what the caller's clock showed last, `shift_s` what the script's is ahead.

    With `callers_clock`, in simulations, the script goes by the caller's.
    """

    def __init__(
        self, client: Any, crawl: str, worker: str, patiently: Patiently, partitions: int, *, callers_clock: bool
    ) -> None:
        self.crawl = crawl
        self.worker = worker
        self.callers_clock = callers_clock
        self.now = self.shift_s = 0.0
        self.wire = Wire(client, patiently, lambda: repr(self.now) if callers_clock else "")
        self.partitions = [Partition(f"lycosa:{{{crawl}.{number}}}:", number) for number in range(partitions)]
        self._shifts: deque[float] = deque(maxlen=SHIFTS)

    async def open(self, policy: Mapping[str, float], known: str) -> str:
        """Join the crawl: the one that is known, "" to begin it if there is none. Return which one it is.

        Raises `StateError` when it is not there any more, or otherwise divided.
        """
        crawl, parts = "" if known else token_hex(8), len(self.partitions)
        for partition in self.partitions:
            partition.worker = self.partitions[0].worker
            told = (self.worker, crawl, parts, partition.number, *policy_pairs(policy))
            _, *answer = await self.wire.run(partition, "open", *told)
            partition.worker, found, divided = (part.decode() for part in answer)
            self._check(known, found, divided)
            crawl = "" if known else found
        return known or crawl

    def _check(self, known: str, found: str, divided: str) -> None:
        if known and found != known:
            what = "another has its name" if found else "the server has lost it"
            raise StateError(f"the crawl {self.crawl!r} that this worker took part in is gone: {what}")
        if int(divided) != len(self.partitions):
            many = f"has {divided} partitions, not {len(self.partitions)}"
            raise StateError(f"the crawl {self.crawl!r} {many}: set partitions={divided}")

    async def leave(self) -> None:
        """Give everything back that is not committed, and be gone."""
        _, told = await self.wire.run(self.partitions[0], "leave")
        self.partitions[0].heard(*told)
        await self.tell_of_the_gone()

    def of(self, host: str) -> Partition:
        """Return the partition of a host key."""
        if len(self.partitions) == 1:
            return self.partitions[0]
        return self.partitions[xxh3_64_intdigest(host.encode()) % len(self.partitions)]

    async def ask(self, command: str, partition: Partition, name: str, *arguments: Any) -> Any:
        """Read something with a command of the client."""
        method: Callable[..., Any] = getattr(self.wire.client, command)
        return await self.wire.patiently(lambda: method(partition.key + name, *arguments))

    async def exchange(self, asked: Sequence[Asked]) -> dict[Partition, list[Any]]:
        """Send what waits for these partitions, and ask for records. Return what each of them lent."""
        lent = await self.wire.exchange(asked)
        if asked and not self.callers_clock:
            # The answer was on its way, and waited for a busy loop: the largest difference is the nearest.
            self._shifts.append(asked[0].partition.at - time.time())
            self.shift_s = max(self._shifts)
        return lent

    async def send(self) -> None:
        """Send what waits."""
        await self.exchange([Asked(each) for each in self.partitions if each.waiting])

    async def look(self) -> None:
        """Ask all partitions how they are."""
        await self.exchange([Asked(each) for each in self.partitions])

    async def forward(self) -> None:
        """Bring what is in our outboxes to where it belongs; when nothing of ours is there, what is in any."""
        for source in self.partitions:
            if source.counts.get("outgoing"):
                others = {each.number for each in self.partitions} - {source.number}
                for number in source.outgoing or others:
                    await self.wire.forward(source, self.partitions[number])
            source.outgoing = set()

    async def tell_of_the_gone(self) -> None:
        """Tell the other partitions which workers were given up, and the first that they know."""
        first, *others = self.partitions
        for worker, commit in first.gone.items():
            for partition in others:
                await self.wire.run(partition, "gone", worker, commit)
            await self.wire.run(first, "known", worker)

    async def is_over(self) -> bool:
        """Look at all partitions, and once more if that may be the end. See `core.barrier`."""
        barrier = Barrier(len(self.partitions))
        verdict = Verdict.AGAIN
        while verdict is Verdict.AGAIN:
            await self.look()
            gone = bool(self.partitions[0].gone)  # what they had may not be back in the other partitions
            readings = {each.number: Reading(each.live + gone, each.arrived) for each in self.partitions}
            verdict = barrier.round(readings)
        return verdict is Verdict.FINISHED

    def total(self, name: str) -> int:
        """Return a count of all partitions, as they told it last."""
        return sum(partition.counts.get(name, 0) for partition in self.partitions)
