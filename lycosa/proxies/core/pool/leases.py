"""The leases of one target, and the sessions that keep their proxy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from lycosa.proxies.core.pool.target_state import ProxyTargetState

SESSIONS_MAX = 100_000
"""Sessions of a target that are remembered; the one that was used longest ago is forgotten."""

OUTDATED_FACTOR, OUTDATED_MIN = 4, 64
"""Outdated deadlines are cleared away when there are more than so many for each lease."""

TOKENS_PER_S = 1e6


class KeptLease(NamedTuple):
    """A lease as it is kept elsewhere."""

    token: int
    key: str
    deadline: float
    session: str


class KeptSession(NamedTuple):
    """A session as it is kept elsewhere: it has the proxy `key` until then."""

    session: str
    key: str
    until: float


@dataclass(slots=True)
class LeaseEntry:
    """A lease under way."""

    member: ProxyTargetState
    deadline: float
    session: str


class LeaseTable:
    """Leases by token, which is the time in microseconds, or one more than the last.

    So a late return meets nobody else's lease, not even when what was known of the leases was lost meanwhile.
    """

    def __init__(self, first_token: int = 0) -> None:
        self._held: dict[int, LeaseEntry] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._token = first_token

    def __len__(self) -> int:
        return len(self._held)

    @property
    def token(self) -> int:
        """The token that was given last."""
        return self._token

    def kept(self) -> list[KeptLease]:
        """Return all of them, for who keeps them elsewhere."""
        return [KeptLease(token, held.member.key, held.deadline, held.session) for token, held in self._held.items()]

    def restore(self, token: int, leases: Iterable[KeptLease], members: Mapping[str, ProxyTargetState]) -> None:
        """Have the leases that were kept, and go on counting tokens."""
        self._token = token
        for lease in leases:
            self._held[lease.token] = LeaseEntry(members[lease.key], lease.deadline, lease.session)
            self._remember(lease.deadline, lease.token)

    def begin(self, member: ProxyTargetState, deadline: float, session: str, now: float) -> int:
        """Return the token of a new lease."""
        self._token = max(self._token + 1, int(now * TOKENS_PER_S))
        self._held[self._token] = LeaseEntry(member, deadline, session)
        self._remember(deadline, self._token)
        return self._token

    def renew(self, token: int, deadline: float) -> bool:
        """Set another deadline. False when the lease is over."""
        held = self._held.get(token)
        if held is not None:
            held.deadline = deadline
            self._remember(deadline, token)
        return held is not None

    def end(self, token: int) -> LeaseEntry | None:
        """Return the lease that ends, None when it was over before."""
        return self._held.pop(token, None)

    def end_of(self, member: ProxyTargetState) -> None:
        """End all of a pair."""
        self._held = {token: held for token, held in self._held.items() if held.member is not member}

    def overdue(self, now: float) -> Sequence[ProxyTargetState]:
        """End what was not returned in time; return the pair of each."""
        if not self._deadlines or self._deadlines[0][0] > now:
            return ()  # as nearly always
        members = []
        while (deadline := self.next_at()) is not None and deadline <= now:
            members.append(self._held.pop(heappop(self._deadlines)[1]).member)
        return members

    def deadlines(self) -> dict[str, float]:
        """Return, by the key of a proxy that is lent, when the first of its leases ends."""
        first: dict[str, float] = {}
        for held in self._held.values():
            first[held.member.key] = min(held.deadline, first.get(held.member.key, held.deadline))
        return first

    def next_at(self) -> float | None:
        """Return the first deadline."""
        while self._deadlines:
            deadline, token = self._deadlines[0]
            held = self._held.get(token)
            if held is not None and held.deadline == deadline:
                return deadline
            heappop(self._deadlines)
        return None

    def _remember(self, deadline: float, token: int) -> None:
        heappush(self._deadlines, (deadline, token))
        if len(self._deadlines) > OUTDATED_FACTOR * len(self._held) + OUTDATED_MIN:
            self._deadlines = sorted((held.deadline, token) for token, held in self._held.items())


class Sessions:
    """Which proxy a session has, until it was not used for `sticky_s` (seconds)."""

    def __init__(self, sticky_s: float) -> None:
        self.sticky_s = sticky_s
        self._keys: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def kept(self) -> list[KeptSession]:
        """Return all of them, the one first that was used longest ago."""
        return [KeptSession(session, key, until) for session, (key, until) in self._keys.items()]

    def restore(self, sessions: Iterable[KeptSession]) -> None:
        """Have the sessions that were kept."""
        self._keys = OrderedDict((each.session, (each.key, each.until)) for each in sessions)

    def key(self, session: str, now: float) -> str | None:
        """Return the key of its proxy."""
        key, until = self._keys.get(session, ("", 0.0))
        if until > now:
            return key
        self._keys.pop(session, None)
        return None

    def bind(self, session: str, key: str, now: float) -> None:
        """It has this proxy from now on."""
        self._keys[session] = (key, now + self.sticky_s)
        self._keys.move_to_end(session)
        if len(self._keys) > SESSIONS_MAX:
            self._keys.popitem(last=False)
