"""One partition as a worker sees it: verbs that wait for the next exchange, and the status of the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.redis.lanes import encode, fingerprint_of, lane_of

STATES = ("queued", "leased", "delayed", "done", "dead", "uncommitted", "outgoing")
"""What a partition counts."""

LIVE = ("queued", "leased", "delayed", "uncommitted", "outgoing")

CLOCK_SAMPLES = 50
"""Exchanges by which our clock is compared with that of the server."""

CLOCK_SET_S = 5.0
"""A clock that differs by so much from what it was has been set."""


class StartAnswer(NamedTuple):
    """The answer to a claim: when to ask again (0: it may start), and what is known of its host.

    `has_delay`: the host keeps a delay between two starts.
    """

    at: float
    address: str = ""
    address_until: float = 0.0
    has_delay: bool = False


class Partition:
    """`due` is when something can be leased (0: now; None: never, as far as is known), in the script's time.

    `outgoing` are the partitions to which records may wait in its outbox.
    """

    def __init__(self, key: str, number: int) -> None:
        self.key = key
        self.number = number
        self.serial = 0
        self.outgoing: set[int] = set()
        self.due: float | None = None
        self.counts: dict[str, int] = {}
        self.segments: dict[str, dict[str, int]] = {}
        self.arrived = 0
        self.time = 0.0
        """The script's clock, as of the last status."""
        self.worker = ""
        self._verbs: list[Any] = []
        self.ending: set[int] = set()
        """Tokens of leases that have ended here while the server does not know it yet."""
        self.expired: dict[str, int] = {}
        """Workers that were given up, with their last commits."""
        self.has_acked = False
        self.waiting_verbs = 0
        self.exchanged_at = self.answered_at = 0.0
        """When the last exchange was sent, and the last one that was answered, in monotonic seconds."""
        self.starts: dict[int, StartAnswer | None] = {}
        """Claims that ask whether they may start, with the answers that have come."""
        self.is_full = False
        """The server has reached its maxmemory."""
        self.clock_ahead_s = 0.0
        """How much the script's clock is ahead of ours, at least."""
        self.clock_ahead_max_s = 0.0
        """The same at most."""
        self._clock_samples: deque[tuple[float, float]] = deque(maxlen=CLOCK_SAMPLES)

    @property
    def waiting_arguments(self) -> int:
        """Arguments of the verbs that wait for the next exchange."""
        return len(self._verbs)

    def compare_clocks(self, sent: float, now: float) -> None:
        """Our clock showed `sent` before the call, and `now` after it; the script read its own in between.

        Either may be far off while the loop is busy, so the narrowest bounds of several calls count.
        """
        least, most = self.time - now, self.time - sent
        was_set = least < self.clock_ahead_s - CLOCK_SET_S or most > self.clock_ahead_max_s + CLOCK_SET_S
        if self._clock_samples and was_set:
            self._clock_samples.clear()
        self._clock_samples.append((least, most))
        self.clock_ahead_s = max(least for least, _ in self._clock_samples)
        self.clock_ahead_max_s = min(most for _, most in self._clock_samples)

    def end_lease(self, verb: str, token: int, *arguments: Any) -> None:
        """Add a verb that ends a lease."""
        self.ending.add(token)
        self.add(verb, token, *arguments)

    def add(self, verb: str, *arguments: Any) -> None:
        """Let a verb go with the next exchange. A float is a time of our clock, sent as one of the script's."""
        self._verbs.append(verb)
        self._verbs += (repr(each + self.clock_ahead_s) if isinstance(each, float) else each for each in arguments)
        self.waiting_verbs += 1

    def take_verbs(self) -> list[Any]:
        """Return the verbs that wait, after their number, and forget them."""
        verbs, self._verbs = [self.waiting_verbs, *self._verbs], []
        self.waiting_verbs = 0
        self.ending = set()
        return verbs

    def update(
        self, due: bytes, counts: list[bytes], arrived: bytes, time: bytes, expired: list[bytes], full: int
    ) -> None:
        """Take the status that the script returned."""
        self.due = float(due) if due else None
        self.time = float(time)
        self.arrived = int(arrived)
        self.is_full = bool(full)
        self.expired = expired_workers(expired)
        self.counts = dict.fromkeys(STATES, 0)
        self.segments = {}
        for field, count in zip(counts[::2], counts[1::2], strict=True):
            state, _, segment = field.decode().partition("|")
            self.segments.setdefault(segment, dict.fromkeys(STATES, 0))[state] += int(count)
            self.counts[state] += int(count)

    def update_starts(self, answers: list[list[Any]]) -> None:
        """Take the answers to claims that still ask."""
        for claim, at, address, until, has_delay in answers:
            if int(claim) in self.starts:
                self.starts[int(claim)] = StartAnswer(float(at), address.decode(), float(until), bool(has_delay))

    @property
    def live(self) -> int:
        """Records that are not done for good."""
        return sum(self.counts.get(state, 0) for state in LIVE)


def expired_workers(flat: list[bytes]) -> dict[str, int]:
    """Return expired workers with their last commits."""
    return {worker.decode(): int(commit) for worker, commit in zip(flat[::2], flat[1::2], strict=True)}


def pushed(record: UrlRecord, clock_ahead_s: float) -> tuple[Any, ...]:
    """Return the arguments of a pushed record; `clock_ahead_s` is how much the script's clock is ahead of ours."""
    due = record.not_before + clock_ahead_s if record.not_before > 0 else 0
    return fingerprint_of(record), record.host, lane_of(record), repr(due), encode(record)


def policy_arguments(policy: Mapping[str, float]) -> list[Any]:
    """Return the arguments of a policy: how many fields, name and value of each."""
    return [len(policy), *(part for name, value in policy.items() for part in (name, repr(value)))]
