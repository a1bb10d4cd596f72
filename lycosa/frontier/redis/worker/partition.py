"""One partition as a worker sees it: verbs for the next exchange, and the status from the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.redis.lanes import encode, fingerprint_of, lane_of

STATES = ("queued", "leased", "delayed", "done", "dead", "uncommitted", "outgoing")

LIVE = ("queued", "leased", "delayed", "uncommitted", "outgoing")
"""Still to be fetched, committed, or delivered to another partition."""

CLOCK_SAMPLES = 50
"""Number of recent exchanges used to compare our clock with the script's."""

CLOCK_JUMP_S = 5.0
"""A larger change of the offset between the clocks means that one of them was set."""


class StartAnswer(NamedTuple):
    """The answer to a claim: when to ask again (0: it may start), and what is known about its host."""

    at: float
    address: str = ""
    address_until: float = 0.0
    has_delay: bool = False


class Partition:
    """One partition of a crawl.

    `due` is when a record can be leased, by the script's clock (0: now; None: no record is scheduled). `outgoing` are
    partitions for which its outboxes may have records.
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
        """The script's clock at the last status."""
        self.worker = ""
        self._verbs: list[Any] = []
        self.ending: set[int] = set()
        """Tokens of ended leases whose end has not been sent to the server yet."""
        self._sent_ending: set[int] = set()
        self.expired: dict[str, int] = {}
        """Expired workers and the numbers of their last commits."""
        self.has_acked = False
        self.server = ""
        """The id of the server that answered the last exchange."""
        self.required_server = ""
        """The id that the server must have to execute the queued verbs; "" if any server may."""
        self.is_undecided = False
        """Whether a commit that requires a server is queued, or sent and not confirmed."""
        self.waiting_verbs = 0
        self.exchanged_at = self.answered_at = 0.0
        """When the last exchange, and the last answered one, were sent (monotonic seconds)."""
        self.starts: dict[int, StartAnswer | None] = {}
        """Claims that have asked to start, and their answers, if any."""
        self.is_full = False
        """Whether the server has reached its maxmemory."""
        self.clock_ahead_s = 0.0
        """Lower bound of the script's clock minus our clock."""
        self.clock_ahead_max_s = 0.0
        """Upper bound of the script's clock minus our clock."""
        self._clock_samples: deque[tuple[float, float]] = deque(maxlen=CLOCK_SAMPLES)

    @property
    def waiting_arguments(self) -> int:
        return len(self._verbs)

    def compare_clocks(self, sent: float, now: float) -> None:
        """Narrow the bounds of the clock offset: our clock was at `sent` before a call, and at `now` after it.

        A busy event loop makes the bounds of a call wide, so the narrowest of the last CLOCK_SAMPLES calls count.
        """
        least, most = self.time - now, self.time - sent
        was_set = most < self.clock_ahead_s - CLOCK_JUMP_S or least > self.clock_ahead_max_s + CLOCK_JUMP_S
        if self._clock_samples and was_set:
            self._clock_samples.clear()
        self._clock_samples.append((least, most))
        self.clock_ahead_s = max(least for least, _ in self._clock_samples)
        self.clock_ahead_max_s = min(most for _, most in self._clock_samples)

    def end_lease(self, verb: str, token: int, *arguments: Any) -> None:
        self.ending.add(token)
        self.add(verb, token, *arguments)

    def add(self, verb: str, *arguments: Any) -> None:
        """Queue a verb for the next exchange. A float is a time of our clock, converted to the script's clock."""
        self._verbs.append(verb)
        self._verbs += (repr(each + self.clock_ahead_s) if isinstance(each, float) else each for each in arguments)
        self.waiting_verbs += 1

    def take_verbs(self) -> list[Any]:
        """Return and clear the queued verbs, preceded by the id of the required server and by their number."""
        verbs, self._verbs = [self.required_server, self.waiting_verbs, *self._verbs], []
        self.required_server, self.waiting_verbs = "", 0
        self._sent_ending, self.ending = self.ending, set()
        return verbs

    def refuse_verbs(self, verbs: list[Any], server: str) -> None:
        """Queue verbs again: the server has another id than the required one.

        They still require the former id, unless a commit has required another one meanwhile.
        """
        required, count, *rest = verbs
        self._verbs, self.waiting_verbs = [*rest, *self._verbs], count + self.waiting_verbs
        self.ending |= self._sent_ending
        self.serial -= 1
        self.server, self.required_server = server, self.required_server or required

    def update(
        self, due: bytes, counts: list[bytes], arrived: bytes, time: bytes, expired: list[bytes], full: int
    ) -> None:
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
        """Answers to claims that no longer wait are ignored."""
        for claim, at, address, until, has_delay in answers:
            if int(claim) in self.starts:
                self.starts[int(claim)] = StartAnswer(float(at), address.decode(), float(until), bool(has_delay))

    @property
    def live(self) -> int:
        return sum(self.counts.get(state, 0) for state in LIVE)


def expired_workers(flat: list[bytes]) -> dict[str, int]:
    """Return expired workers with the numbers of their last commits."""
    return {worker.decode(): int(commit) for worker, commit in zip(flat[::2], flat[1::2], strict=True)}


def push_arguments(record: UrlRecord, clock_ahead_s: float) -> tuple[Any, ...]:
    """Encode a record. The script's clock is `clock_ahead_s` ahead of ours."""
    due = record.not_before + clock_ahead_s if record.not_before > 0 else 0
    return fingerprint_of(record), record.host, lane_of(record), repr(due), encode(record)


def policy_arguments(policy: Mapping[str, float]) -> list[Any]:
    """The number of fields, then the name and value of each."""
    return [len(policy), *(part for name, value in policy.items() for part in (name, repr(value)))]
