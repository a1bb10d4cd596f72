"""A pool that tells each change of itself, so that it can be played again: the journal of a pool that is kept.

What is told are decisions (these proxies were lent, this target was forgotten), not questions, and all that was chance
or policy when they were made. So a pool to which the same records are applied is the same, whatever would be decided
today. What only time does (leases that are overdue, rests that end) is not told: it happens again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import islice

import msgspec

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import GlobalPool, note_filled
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, TargetPool, Wait
from lycosa.proxies.core.proxy import Proxy


class JournalRecord(msgspec.Struct, array_like=True):
    """A change."""

    def apply(self, pool: GlobalPool) -> None:
        """Make it again. Raises `KeyError` or `ValueError` when it does not belong here."""
        raise NotImplementedError


class AddRecord(JournalRecord, tag=1):
    """Proxies, new or changed."""

    now: float
    proxies: list[Proxy]
    unchecked: bool = False

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.add(self.proxies, self.now, unchecked=self.unchecked)


class RemoveRecord(JournalRecord, tag=2):
    """A proxy is gone."""

    now: float
    key: str

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.remove(self.key, self.now)


class BeginTargetRecord(JournalRecord, tag=3):
    """A target that is new, and how its proxies are used."""

    target: str
    policy: TargetPolicy

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.begin(self.target, self.policy)


class ForgetTargetRecord(JournalRecord, tag=4):
    """A target is gone."""

    target: str

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.forget(self.target)


class FillRecord(JournalRecord, tag=5):
    """A target was filled up for a kind of wish, with these."""

    now: float
    target: str
    kind: list[tuple[str, str]]
    keys: list[str]

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        its = pool.targets[self.target]
        for key in self.keys:
            its.learn(key, pool.facts(key), self.now)
        note_filled(its, frozenset(self.kind))


class GrantRecord(JournalRecord, tag=6):
    """These were lent, with tokens from `token` on."""

    now: float
    target: str
    token: int
    keys: list[str]
    until: float
    session: str = ""

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.targets.move_to_end(self.target)
        grants = pool.targets[self.target].lend_again(self.keys, self.now, self.until, self.session)
        if grants[0].token != self.token:
            raise ValueError(f"the lease {grants[0].token} of {self.target} was {self.token}")


class RenewRecord(JournalRecord, tag=7):
    """A lease ends later."""

    now: float
    target: str
    token: int
    lease_s: float

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.targets[self.target].renew(self.token, self.now, self.lease_s)


class ReleaseRecord(JournalRecord, tag=8):
    """A lease was returned, perhaps too late."""

    now: float
    target: str
    token: int
    outcomes: list[Outcome]
    draw: float

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.release(self.target, self.token, self.outcomes, self.now, self.draw)


class OutcomesRecord(JournalRecord, tag=9):
    """What was heard of a proxy as such, beside leases."""

    now: float
    key: str
    outcomes: list[Outcome]
    draw: float

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.hear(self.key, self.outcomes, self.now, self.draw)


class BanRecord(JournalRecord, tag=10):
    """A ban by hand."""

    now: float
    target: str
    key: str
    until: float | None
    reason: str

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.ban(self.target, self.key, self.now, self.until, self.reason)


class UnbanRecord(JournalRecord, tag=11):
    """Bans and rests were lifted."""

    now: float
    target: str
    key: str

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.unban(self.target, self.key, self.now)


class ReviveRecord(JournalRecord, tag=12):
    """A check has found a proxy well."""

    now: float
    key: str
    exit_ip: str

    def apply(self, pool: GlobalPool) -> None:
        """See `JournalRecord`."""
        pool.revive(self.key, self.now, self.exit_ip)


AnyRecord = (
    AddRecord
    | RemoveRecord
    | BeginTargetRecord
    | ForgetTargetRecord
    | FillRecord
    | GrantRecord
    | RenewRecord
    | ReleaseRecord
    | OutcomesRecord
    | BanRecord
    | UnbanRecord
    | ReviveRecord
)
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyRecord).decode

ADDED_MAX = 1_000
"""Proxies in one record."""

TOLD = [field.name for field in fields(Proxy)]
"""What a proxy is told with; two of one key may differ in tags and prices."""


class RecordedPool(GlobalPool):
    """A pool whose changes go to `write`, packed, one by one, before the caller hears of them.

    What `write` raises the caller gets, and the pool has changed all the same: then it has to be kept as a whole before
    anything else is told.
    """

    def __init__(self, policy_of: Callable[[str], TargetPolicy]) -> None:
        super().__init__(policy_of)
        self.write: Callable[[bytes], None] | None = None

    def add(self, proxies: Iterable[Proxy], now: float, *, unchecked: bool = False) -> int:
        """See `GlobalPool`."""
        changed = [proxy for proxy in proxies if not _same(self.proxies.get(proxy.key), proxy)]
        if not changed:
            return 0
        added = 0
        for start in range(0, len(changed), ADDED_MAX):
            some = changed[start : start + ADDED_MAX]
            added += super().add(some, now, unchecked=unchecked)
            self._tell_of(AddRecord(now, some, unchecked))
        return added

    def remove_all(self, keys: Iterable[str], now: float) -> list[str]:
        """See `GlobalPool`."""
        gone = super().remove_all(keys, now)
        for key in gone:
            self._tell_of(RemoveRecord(now, key))
        return gone

    def acquire(
        self, target: str, now: float, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None
    ) -> list[Grant] | Wait:
        """See `GlobalPool`."""
        grants = super().acquire(target, now, draws, request, lease_s)
        if not isinstance(grants, Wait):
            keys = [grant.key for grant in grants]
            self._tell_of(GrantRecord(now, target, grants[0].token, keys, grants[0].deadline, request.session))
        return grants

    def renew(self, target: str, token: int, now: float, lease_s: float | None = None) -> float | None:
        """See `GlobalPool`."""
        until = super().renew(target, token, now, lease_s)
        if until is not None:
            usual_s = self.targets[target].policy.lease_s
            self._tell_of(RenewRecord(now, target, token, usual_s if lease_s is None else lease_s))
        return until

    def release(self, target: str, token: int, outcomes: Sequence[Outcome], now: float, draw: float) -> str | None:
        """See `GlobalPool`."""
        its = self.targets.get(target)
        if its is None:
            return None
        key = its.release(token, outcomes, now, draw)
        if key is not None:
            super().hear(key, outcomes, now, draw)
        self._tell_of(ReleaseRecord(now, target, token, list(outcomes), draw))
        return key

    def hear(self, key: str, outcomes: Sequence[Outcome], now: float, draw: float) -> None:
        """See `GlobalPool`."""
        super().hear(key, outcomes, now, draw)
        self._tell_of(OutcomesRecord(now, key, list(outcomes), draw))

    def ban(self, target: str, key: str, now: float, until: float | None = None, reason: str = "by hand") -> bool:
        """See `GlobalPool`."""
        is_here = super().ban(target, key, now, until, reason)
        if is_here:
            self._tell_of(BanRecord(now, target, key, until, reason))
        return is_here

    def unban(self, target: str, key: str, now: float) -> bool:
        """See `GlobalPool`."""
        is_here = super().unban(target, key, now)
        if is_here:
            self._tell_of(UnbanRecord(now, target, key))
        return is_here

    def revive(self, key: str, now: float, exit_ip: str = "") -> None:
        """See `GlobalPool`."""
        super().revive(key, now, exit_ip)
        self._tell_of(ReviveRecord(now, key, exit_ip))

    def begin(self, name: str, policy: TargetPolicy) -> TargetPool:
        """See `GlobalPool`."""
        pool = super().begin(name, policy)
        self._tell_of(BeginTargetRecord(name, policy))
        return pool

    def forget(self, name: str) -> None:
        """See `GlobalPool`."""
        super().forget(name)
        self._tell_of(ForgetTargetRecord(name))

    def _fill(self, pool: TargetPool, now: float, request: ProxyRequest) -> None:
        before = len(pool.members)
        super()._fill(pool, now, request)
        name = next(reversed(self.targets))  # the one that was just asked for
        joined = list(islice(pool.members, before, None))
        for start in range(0, max(1, len(joined)), ADDED_MAX):
            self._tell_of(FillRecord(now, name, sorted(request.kind), joined[start : start + ADDED_MAX]))

    def _tell_of(self, record: JournalRecord) -> None:
        if self.write is not None:
            self.write(encode(record))


def _same(known: Proxy | None, proxy: Proxy) -> bool:
    return known is not None and all(getattr(known, name) == getattr(proxy, name) for name in TOLD)
