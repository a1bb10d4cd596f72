"""One partition of a shared crawl as its contract tells it, for `test_barrier`; no Redis, and nothing of the package.

A call is one atomic step. It carries the name of a worker, which is never used twice, and a number; a call of a name
that is not known (any more), or whose number is not new, changes nothing. Names are `SLOT#K`: a slot is what survives a
kill, a worker's files. `wrong` names what is broken on purpose.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

SILENT_S, AWAY_S = 2.0, 1.0
SLICE_MAX = 3
RETRY_S = 1.5
UNKNOWN = "unknown"
"""What a worker is told that was buried: it gives up what it has not committed, and joins anew."""

Children = dict[int, list[int]]
"""URL -> the URLs on its page."""


@dataclass
class Partition:
    """`live` and `arrived` are what the barrier reads; `committed` is how often each URL was committed."""

    number: int
    partitions: int
    graph: Children
    wrong: str = ""
    queue: deque[int] = field(default_factory=deque)
    asleep: list[tuple[float, int]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    heard: dict[str, float] = field(default_factory=dict)
    leased: dict[str, dict[int, int]] = field(default_factory=dict)
    uncommitted: dict[str, dict[int, int]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    positions: Counter[str] = field(default_factory=Counter)
    committed: Counter[int] = field(default_factory=Counter)
    outboxes: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    last: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    tried: set[int] = field(default_factory=set)
    arrived: int = 0
    tokens: int = 0
    here_at: float = 0.0
    done_at: float = 0.0

    def home(self, url: int) -> int:
        return url % self.partitions

    @property
    def live(self) -> int:
        """What the partition tells."""
        counts = {
            "uncommitted": sum(map(len, self.uncommitted.values())),
            "outbox": sum(map(len, self.outboxes.values())),
            "asleep": len(self.asleep),
        }
        counts.pop(self.wrong.removeprefix("not counted: "), 0)
        return len(self.queue) + sum(map(len, self.leased.values())) + sum(counts.values())

    @property
    def is_over(self) -> bool:
        """What is true: nothing is live, and all that is known is committed."""
        live = self.queue, self.asleep, *self.leased.values(), *self.uncommitted.values(), *self.outboxes.values()
        return not any(live) and self.seen == self.committed.keys()

    def call(self, now: float, name: str, number: int, verb: str, *arguments: Any) -> Any:
        """Do one step, and return its answer; None when the call was heard before."""
        if verb == "open":
            self.watch(now)
            return self.open(now, *arguments)
        if name not in self.heard and self.wrong != "no fence":
            return UNKNOWN
        if verb != "beat" and number <= self.numbers.get(name, 0) and self.wrong != "repeats are heard":
            return None
        self.numbers[name] = max(number, self.numbers.get(name, 0))
        if self.wrong == "may bury who talks":  # half of whose call would count
            self.watch(now)
        self.heard[name] = now
        self.watch(now)
        while self.asleep and self.asleep[0][0] <= now:
            self.queue.append(heapq.heappop(self.asleep)[1])
        return getattr(self, verb)(now, name, *arguments)

    def watch(self, now: float) -> None:
        """Bury who was silent; a silence of everybody is nobody's."""
        away, self.here_at = now - self.here_at, now
        if away > AWAY_S:
            self.heard = {name: min(now, at + away) for name, at in self.heard.items()}
        for name in [name for name, at in self.heard.items() if at < now - SILENT_S]:
            self.bury(name)

    def bury(self, name: str) -> None:
        del self.heard[name]
        for urls in (self.leased.pop(name, {}), self.uncommitted.pop(name, {})):
            self.queue.extendleft(urls.values())

    def open(self, now: float, slot: str) -> tuple[str, int]:
        """Join: whoever had the slot before is buried, so that its position is final."""
        for name in [name for name in self.heard if name.partition("#")[0] == slot]:
            if self.wrong != "two heirs":
                self.bury(name)
        self.names[slot] += 1
        name = f"{slot}#{self.names[slot]}"
        self.heard[name] = now
        return name, self.positions[slot]

    def beat(self, now: float, name: str) -> None:
        """Nothing but to be heard."""

    def enter(self, url: int) -> None:
        if url not in self.seen:
            self.seen.add(url)
            self.queue.append(url)

    def push(self, now: float, name: str, url: int) -> bool:
        """Take a URL from outside."""
        self.arrived += 1
        self.enter(url)
        return True

    def lease(self, now: float, name: str, limit: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Lend, and tell for which partitions something waits."""
        lent = []
        while self.queue and len(lent) < limit:
            self.tokens += 1
            lent.append((self.tokens, self.queue.popleft()))
        self.leased.setdefault(name, {}).update(lent)
        return lent, [to for to, box in self.outboxes.items() if box]

    def ack(self, now: float, name: str, token: int) -> bool:
        """Done, for now; the children in the same step."""
        url = self.leased.get(name, {}).pop(token, None)
        if url is None:
            return False
        self.uncommitted.setdefault(name, {})[token] = url
        for child in self.graph[url]:
            home = self.home(child)
            if home == self.number:
                self.enter(child)
            else:
                self.last[home] += 1
                self.outboxes.setdefault(home, deque()).append((self.last[home], child))
        return True

    def nack(self, now: float, name: str, token: int) -> bool:
        """Failed: once more, later."""
        url = self.leased.get(name, {}).pop(token, None)
        if url is None:
            return False
        self.tried.add(url)
        heapq.heappush(self.asleep, (now + RETRY_S, url))
        return True

    def commit(self, now: float, name: str, position: int) -> bool:
        self.committed.update(self.uncommitted.pop(name, {}).values())
        self.positions[name.partition("#")[0]] = position
        self.done_at = now
        return True

    def outbox(self, now: float, name: str, to: int) -> list[tuple[int, int]]:
        return list(self.outboxes.get(to, ()))[:SLICE_MAX]

    def forward(self, now: float, name: str, source: int, entries: list[tuple[int, int]]) -> int:
        """Take what another partition sends; return the number up to which all of it has come."""
        for number, url in entries:
            if number > self.taken[source] or self.wrong == "numbers not compared":
                if self.wrong != "numbers not compared":
                    assert number == self.taken[source] + 1, "an entry was passed over"
                self.taken[source] = number
                self.arrived += 1
                self.enter(url)
        return self.taken[source]

    def trim(self, now: float, name: str, to: int, upto: int) -> bool:
        box = self.outboxes.get(to)
        while box and box[0][0] <= upto:
            box.popleft()
        return True

    def read(self, now: float, name: str) -> tuple[int, int]:
        return self.live, self.arrived
