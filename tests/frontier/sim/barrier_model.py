"""A model of one partition of a shared crawl, for `test_barrier`. It neither uses Redis nor imports the package.

A call is one atomic step. It carries the name of a worker, which is never reused, and a number; a call with an unknown
or expired name, or with an old number, changes nothing. Names are `SLOT#K`: a slot stands for the worker's files, which
survive a kill. `mutant` names a deliberate defect.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

SILENT_S, UNWATCHED_MAX_S = 2.0, 1.0
SLICE_MAX = 3
RETRY_S = 1.5
UNKNOWN = "unknown"
"""The answer to an expired worker: it gives up what it has not committed, and joins again."""

Children = dict[int, list[int]]
"""URL -> the URLs on its page."""


@dataclass
class Partition:
    """Termination detection reads `live` and `arrived`; `committed` counts the commits of each URL."""

    number: int
    partitions: int
    graph: Children
    mutant: str = ""
    queue: deque[int] = field(default_factory=deque)
    delayed: list[tuple[float, int]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    last_heard: dict[str, float] = field(default_factory=dict)
    leased: dict[str, dict[int, int]] = field(default_factory=dict)
    uncommitted: dict[str, dict[int, int]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    positions: Counter[str] = field(default_factory=Counter)
    committed: Counter[int] = field(default_factory=Counter)
    outboxes: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    last: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    failed: set[int] = field(default_factory=set)
    arrived: int = 0
    tokens: int = 0
    watched_at: float = 0.0
    committed_at: float = 0.0

    def home(self, url: int) -> int:
        return url % self.partitions

    @property
    def live(self) -> int:
        """Number of unfinished URLs that the partition reports."""
        counts = {
            "uncommitted": sum(map(len, self.uncommitted.values())),
            "outbox": sum(map(len, self.outboxes.values())),
            "delayed": len(self.delayed),
        }
        counts.pop(self.mutant.removeprefix("not counted: "), 0)
        return len(self.queue) + sum(map(len, self.leased.values())) + sum(counts.values())

    @property
    def is_finished(self) -> bool:
        """Whether nothing is live, and all known URLs are committed."""
        live = self.queue, self.delayed, *self.leased.values(), *self.uncommitted.values(), *self.outboxes.values()
        return not any(live) and self.seen == self.committed.keys()

    def call(self, now: float, name: str, number: int, verb: str, *arguments: Any) -> Any:
        """Do one step and return its answer, or None for a repeated call."""
        if verb == "open":
            self.watch(now)
            return self.open(now, *arguments)
        if name not in self.last_heard and self.mutant != "no fence":
            return UNKNOWN
        if verb != "beat" and number <= self.numbers.get(name, 0) and self.mutant != "repeats are applied":
            return None
        self.numbers[name] = max(number, self.numbers.get(name, 0))
        if self.mutant == "may expire the caller":  # half of the call of an expired worker would count
            self.watch(now)
        self.last_heard[name] = now
        self.watch(now)
        while self.delayed and self.delayed[0][0] <= now:
            self.queue.append(heapq.heappop(self.delayed)[1])
        return getattr(self, verb)(now, name, *arguments)

    def watch(self, now: float) -> None:
        """Expire silent workers. Time without any call to the partition does not count."""
        unwatched_s, self.watched_at = now - self.watched_at, now
        if unwatched_s > UNWATCHED_MAX_S:
            self.last_heard = {name: min(now, at + unwatched_s) for name, at in self.last_heard.items()}
        for name in [name for name, at in self.last_heard.items() if at < now - SILENT_S]:
            self.expire(name)

    def expire(self, name: str) -> None:
        del self.last_heard[name]
        for urls in (self.leased.pop(name, {}), self.uncommitted.pop(name, {})):
            self.queue.extendleft(urls.values())

    def open(self, now: float, slot: str) -> tuple[str, int]:
        """Join. The previous worker of the slot expires, so that its position is final."""
        for name in [name for name in self.last_heard if name.partition("#")[0] == slot]:
            if self.mutant != "two workers of a slot":
                self.expire(name)
        self.names[slot] += 1
        name = f"{slot}#{self.names[slot]}"
        self.last_heard[name] = now
        return name, self.positions[slot]

    def beat(self, now: float, name: str) -> None:
        """Only record the call of the worker."""

    def add(self, url: int) -> None:
        if url not in self.seen:
            self.seen.add(url)
            self.queue.append(url)

    def push(self, now: float, name: str, url: int) -> bool:
        """Add a URL from outside."""
        self.arrived += 1
        self.add(url)
        return True

    def lease(self, now: float, name: str, limit: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Lease URLs, and return the partitions whose outboxes have entries."""
        leases = []
        while self.queue and len(leases) < limit:
            self.tokens += 1
            leases.append((self.tokens, self.queue.popleft()))
        self.leased.setdefault(name, {}).update(leases)
        return leases, [to for to, box in self.outboxes.items() if box]

    def ack(self, now: float, name: str, token: int) -> bool:
        """Move a leased URL to the uncommitted ones, and add its children in the same step."""
        url = self.leased.get(name, {}).pop(token, None)
        if url is None:
            return False
        self.uncommitted.setdefault(name, {})[token] = url
        for child in self.graph[url]:
            home = self.home(child)
            if home == self.number:
                self.add(child)
            else:
                self.last[home] += 1
                self.outboxes.setdefault(home, deque()).append((self.last[home], child))
        return True

    def nack(self, now: float, name: str, token: int) -> bool:
        """Delay a failed URL for a retry."""
        url = self.leased.get(name, {}).pop(token, None)
        if url is None:
            return False
        self.failed.add(url)
        heapq.heappush(self.delayed, (now + RETRY_S, url))
        return True

    def commit(self, now: float, name: str, position: int) -> bool:
        self.committed.update(self.uncommitted.pop(name, {}).values())
        self.positions[name.partition("#")[0]] = position
        self.committed_at = now
        return True

    def outbox(self, now: float, name: str, to: int) -> list[tuple[int, int]]:
        return list(self.outboxes.get(to, ()))[:SLICE_MAX]

    def forward(self, now: float, name: str, source: int, entries: list[tuple[int, int]]) -> int:
        """Take entries of another partition. Return the number up to which all have arrived."""
        for number, url in entries:
            if number > self.taken[source] or self.mutant == "numbers not compared":
                if self.mutant != "numbers not compared":
                    assert number == self.taken[source] + 1, "an entry was skipped"
                self.taken[source] = number
                self.arrived += 1
                self.add(url)
        return self.taken[source]

    def trim(self, now: float, name: str, to: int, upto: int) -> bool:
        box = self.outboxes.get(to)
        while box and box[0][0] <= upto:
            box.popleft()
        return True

    def read(self, now: float, name: str) -> tuple[int, int]:
        return self.live, self.arrived
