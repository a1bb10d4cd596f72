"""The leases of one target, and the sessions that keep their proxy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from lycosa.proxies.core.pool.target_state import ProxyTargetState

SESSIONS_MAX = 100_000
"""Sessions of a target; beyond that the least recently used one is forgotten."""

OUTDATED_FACTOR, OUTDATED_MIN = 4, 64
"""The heap is rebuilt when it holds more than so many deadlines for each lease: renewals leave old ones behind."""

TOKENS_PER_S = 1e6


class LeaseRecord(NamedTuple):
    """A lease as stores keep it."""

    token: int
    key: str
    deadline: float
    session: str


class SessionRecord(NamedTuple):
    """A session as stores keep it: it has the proxy `key` until then."""

    session: str
    key: str
    until: float


@dataclass(slots=True)
class LeaseEntry:
    """A lease in the table."""

    member: ProxyTargetState
    deadline: float
    session: str


class LeaseTable:
    """Leases by token, which is the time in microseconds, or the last token plus one.

    So a late release never hits the lease of somebody else, even after the leases were lost in a crash.
    """

    def __init__(self, first_token: int = 0) -> None:
        self._entries: dict[int, LeaseEntry] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._token = first_token

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def token(self) -> int:
        """The last token."""
        return self._token

    def records(self) -> list[LeaseRecord]:
        """Return all leases for a store."""
        entries = self._entries.items()
        return [LeaseRecord(token, entry.member.key, entry.deadline, entry.session) for token, entry in entries]

    def restore(self, token: int, records: Iterable[LeaseRecord], members: Mapping[str, ProxyTargetState]) -> None:
        """Take over the leases and the last token of a store."""
        self._token = token
        for record in records:
            self._entries[record.token] = LeaseEntry(members[record.key], record.deadline, record.session)
            self._push(record.deadline, record.token)

    def start(self, member: ProxyTargetState, deadline: float, session: str, now: float) -> int:
        """Return the token of a new lease."""
        self._token = max(self._token + 1, int(now * TOKENS_PER_S))
        self._entries[self._token] = LeaseEntry(member, deadline, session)
        self._push(deadline, self._token)
        return self._token

    def renew(self, token: int, deadline: float) -> bool:
        """Set another deadline. Return False when the lease is over."""
        entry = self._entries.get(token)
        if entry is not None:
            entry.deadline = deadline
            self._push(deadline, token)
        return entry is not None

    def end(self, token: int) -> LeaseEntry | None:
        """Return the lease that ends, None when it was over before."""
        return self._entries.pop(token, None)

    def end_all_of(self, member: ProxyTargetState) -> None:
        self._entries = {token: entry for token, entry in self._entries.items() if entry.member is not member}

    def pop_overdue(self, now: float) -> Sequence[ProxyTargetState]:
        """End the leases whose deadline has passed. Return the member of each."""
        if not self._deadlines or self._deadlines[0][0] > now:
            return ()  # the usual case
        members = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            members.append(self._entries.pop(heappop(self._deadlines)[1]).member)
        return members

    def deadlines(self) -> dict[str, float]:
        """Return the first deadline of each leased proxy, by its key."""
        first: dict[str, float] = {}
        for entry in self._entries.values():
            first[entry.member.key] = min(entry.deadline, first.get(entry.member.key, entry.deadline))
        return first

    def next_deadline(self) -> float | None:
        while self._deadlines:
            deadline, token = self._deadlines[0]
            entry = self._entries.get(token)
            if entry is not None and entry.deadline == deadline:
                return deadline
            heappop(self._deadlines)
        return None

    def _push(self, deadline: float, token: int) -> None:
        heappush(self._deadlines, (deadline, token))
        if len(self._deadlines) > OUTDATED_FACTOR * len(self._entries) + OUTDATED_MIN:
            self._deadlines = sorted((entry.deadline, token) for token, entry in self._entries.items())


class Sessions:
    """The proxy of each session. A session that is not used for `sticky_s` seconds loses it."""

    def __init__(self, sticky_s: float) -> None:
        self.sticky_s = sticky_s
        self._keys: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def records(self) -> list[SessionRecord]:
        """Return all sessions for a store, the least recently used one first."""
        return [SessionRecord(session, key, until) for session, (key, until) in self._keys.items()]

    def restore(self, records: Iterable[SessionRecord]) -> None:
        self._keys = OrderedDict((each.session, (each.key, each.until)) for each in records)

    def key(self, session: str, now: float) -> str | None:
        """Return the key of the proxy of a session."""
        key, until = self._keys.get(session, ("", 0.0))
        if until > now:
            return key
        self._keys.pop(session, None)
        return None

    def bind(self, session: str, key: str, now: float) -> None:
        """Give a session this proxy, and start its `sticky_s` anew."""
        self._keys[session] = (key, now + self.sticky_s)
        self._keys.move_to_end(session)
        if len(self._keys) > SESSIONS_MAX:
            self._keys.popitem(last=False)
