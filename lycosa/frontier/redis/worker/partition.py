"""One partition as a worker sees it: verbs that wait for the next exchange, and what the last one told."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.redis.lanes import encode, fingerprint_of, lane_of

COUNTED = {"q": "queued", "l": "leased", "d": "delayed", "a": "done", "x": "dead", "u": "uncommitted", "o": "outgoing"}

SHIFTS = 50
"""Exchanges by which our clock is compared with that of the server."""

LEAP_S = 5.0
"""A clock that is so far from where it was has been set."""

LIVE = ("queued", "leased", "delayed", "uncommitted", "outgoing")


class Told(NamedTuple):
    """What the partition says to a claim: when to ask again (0: it has its turn), the address of the host and until
    when that is known; whether the host keeps a pause between two starts."""

    at: float
    address: str = ""
    known_until: float = 0.0
    paced: bool = False


class Partition:
    """`due` is when something can be lent (0: now; None: never, as far as is known here), in the script's time.

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
        self.at = 0.0
        self.worker = ""
        self._verbs: list[Any] = []
        self.ending: set[int] = set()
        """Tokens of leases that have ended here, and of which the server does not know."""
        self.gone: dict[str, int] = {}
        """Workers that were given up, with their last commit."""
        self.acked = False
        self.waiting = 0
        self.exchanged_at = self.heard_at = 0.0
        """When the last exchange was sent, and the last that was answered, by the monotonic clock."""
        self.turns: dict[int, Told | None] = {}
        """Claims that ask whether it is their turn, and what they are told."""
        self.full = False
        """The server has reached its maxmemory."""
        self.shift_s = 0.0
        """What the script's clock is ahead of ours, at least, as it last looked."""
        self.shift_max_s = 0.0
        """What it is ahead at most."""
        self._shifts: deque[tuple[float, float]] = deque(maxlen=SHIFTS)

    @property
    def words(self) -> int:
        """Arguments that wait for the next exchange."""
        return len(self._verbs)

    def compare(self, sent: float, now: float) -> None:
        """Our clock showed `sent` when the question went, and shows `now`: the script looked at its own in between.

        Either may be far away, where the loop is busy: so the nearest of several count.
        """
        shift, most = self.at - now, self.at - sent
        if self._shifts and (shift < self.shift_s - LEAP_S or shift > self.shift_max_s + LEAP_S):
            self._shifts.clear()
        self._shifts.append((shift, most))
        self.shift_s = max(least for least, _ in self._shifts)
        self.shift_max_s = min(most for _, most in self._shifts)

    def end(self, verb: str, token: int, *arguments: Any) -> None:
        """Let the end of a lease go with the next exchange."""
        self.ending.add(token)
        self.add(verb, token, *arguments)

    def add(self, verb: str, *arguments: Any) -> None:
        """Let a verb go with the next exchange. A float is a time by our clock, and told by that of the script."""
        self._verbs.append(verb)
        self._verbs += (repr(each + self.shift_s) if isinstance(each, float) else each for each in arguments)
        self.waiting += 1

    def take(self) -> list[Any]:
        """Return the verbs that wait, their number first."""
        verbs, self._verbs = [self.waiting, *self._verbs], []
        self.waiting = 0
        self.ending = set()
        return verbs

    def heard(self, due: bytes, counts: list[bytes], arrived: bytes, at: bytes, gone: list[bytes], full: int) -> None:
        """Note what an exchange told."""
        self.due = float(due) if due else None
        self.at = float(at)
        self.arrived = int(arrived)
        self.full = bool(full)
        self.gone = {who.decode(): int(commit) for who, commit in zip(gone[::2], gone[1::2], strict=True)}
        self.counts = dict.fromkeys(COUNTED.values(), 0)
        self.segments = {}
        for field, count in zip(counts[::2], counts[1::2], strict=True):
            kind, _, segment = field.decode().partition("|")
            self.segments.setdefault(segment, dict.fromkeys(COUNTED.values(), 0))[COUNTED[kind]] += int(count)
            self.counts[COUNTED[kind]] += int(count)

    def heard_of_turns(self, turns: list[list[Any]]) -> None:
        """Note what an exchange said to claims that still want to know."""
        for claim, at, address, until, paced in turns:
            if int(claim) in self.turns:
                self.turns[int(claim)] = Told(float(at), address.decode(), float(until), bool(paced))

    @property
    def live(self) -> int:
        """Records that are not done for good."""
        return sum(self.counts.get(name, 0) for name in LIVE)


def pushed(record: UrlRecord, shift_s: float) -> tuple[Any, ...]:
    """Return the arguments of a record to be pushed; `shift_s` is what the script's clock is ahead of ours."""
    due = record.not_before + shift_s if record.not_before > 0 else 0
    return fingerprint_of(record), record.host, lane_of(record), repr(due), encode(record)


def policy_pairs(policy: Mapping[str, float]) -> list[Any]:
    """Return the arguments that tell a policy."""
    return [len(policy), *(part for name, value in policy.items() for part in (name, repr(value)))]
