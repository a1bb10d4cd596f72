"""The leases of one target, and the sessions that keep their proxy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict

SESSIONS_MAX = 100_000
"""Beyond this number, the least recently used session of a target is forgotten."""

OUTDATED_FACTOR, OUTDATED_MIN = 4, 64
"""A renewal leaves the old deadline in the heap. The heap is rebuilt when it has more than OUTDATED_FACTOR deadlines
per lease, plus OUTDATED_MIN."""

TOKENS_PER_S = 1e6


@dataclass(slots=True)
class LeaseEntry:
    """The lease of the proxy `key`."""

    token: int
    key: str
    deadline: float
    session: str


class SessionEntry(NamedTuple):
    """A session, which keeps the proxy `key` until `until`."""

    session: str
    key: str
    until: float


class LeaseTable:
    """Leases by token. A token is the time in microseconds, or the last token plus one if that is greater.

    Tokens are never used twice, even after a crash: a late release never ends a newer lease.
    """

    def __init__(self, first_token: int = 0) -> None:
        self._entries: dict[int, LeaseEntry] = {}
        self._deadlines: list[tuple[float, int]] = []
        self.token = first_token
        """The last token."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[LeaseEntry]:
        return list(self._entries.values())

    def restore(self, token: int, entries: Iterable[LeaseEntry]) -> None:
        self.token = token
        for entry in entries:
            self._add(entry)

    def start(self, key: str, deadline: float, session: str, now: float) -> int:
        self.token = max(self.token + 1, int(now * TOKENS_PER_S))
        self._add(LeaseEntry(self.token, key, deadline, session))
        return self.token

    def renew(self, token: int, deadline: float) -> bool:
        """Return False if the lease has ended."""
        entry = self._entries.get(token)
        if entry is not None:
            entry.deadline = deadline
            self._add(entry)
        return entry is not None

    def end(self, token: int) -> LeaseEntry | None:
        """Return the lease; None if it had ended before."""
        return self._entries.pop(token, None)

    def end_all_of(self, key: str) -> None:
        self._entries = {token: entry for token, entry in self._entries.items() if entry.key != key}

    def pop_overdue(self, now: float) -> Sequence[str]:
        """End the overdue leases. Return one proxy key for each."""
        if not self._deadlines or self._deadlines[0][0] > now:
            return ()  # the usual case
        keys = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            keys.append(self._entries.pop(heappop(self._deadlines)[1]).key)
        return keys

    def deadlines(self) -> dict[str, float]:
        """Return the earliest deadline of each leased proxy."""
        first: dict[str, float] = {}
        for entry in self._entries.values():
            first[entry.key] = min(entry.deadline, first.get(entry.key, entry.deadline))
        return first

    def next_deadline(self) -> float | None:
        while self._deadlines:
            deadline, token = self._deadlines[0]
            entry = self._entries.get(token)
            if entry is not None and entry.deadline == deadline:
                return deadline
            heappop(self._deadlines)
        return None

    def _add(self, entry: LeaseEntry) -> None:
        self._entries[entry.token] = entry
        heappush(self._deadlines, (entry.deadline, entry.token))
        if len(self._deadlines) > OUTDATED_FACTOR * len(self._entries) + OUTDATED_MIN:
            self._deadlines = sorted((each.deadline, each.token) for each in self._entries.values())


class Sessions:
    """The proxy of each session. A session loses its proxy after `sticky_s` seconds without use."""

    def __init__(self, sticky_s: float) -> None:
        self.sticky_s = sticky_s
        self._entries: RecentDict[str, SessionEntry] = RecentDict(SESSIONS_MAX)

    def entries(self) -> list[SessionEntry]:
        """Return all sessions, the least recently used one first."""
        return list(self._entries.values())

    def restore(self, entries: Iterable[SessionEntry]) -> None:
        self._entries.update((each.session, each) for each in entries)

    def key(self, session: str, now: float) -> str | None:
        entry = self._entries.get(session)
        if entry is not None and entry.until > now:
            return entry.key
        self._entries.pop(session, None)
        return None

    def bind(self, session: str, key: str, now: float) -> None:
        self._entries[session] = SessionEntry(session, key, now + self.sticky_s)
