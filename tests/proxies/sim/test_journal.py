"""The journal of a pool: replayed on an image, it gives the same pool, in random histories.

The histories and invariants are those of the pool in memory. At random steps the pool is replaced by one that is
restored from the image and the journal, as a new process would restore it.
"""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from lycosa.proxies.core import pool_image
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool import journal
from lycosa.proxies.core.pool.pool import RECORD_MAX, TARGETS_MAX, GlobalPool
from lycosa.proxies.core.pool.target import ProxyRequest, Wait
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.pool_image import Image, image_of, pool_of
from tests.conftest import PROVE
from tests.proxies.sim.proxy_steps import failure_context
from tests.proxies.sim.test_pool_history import STEPS, TARGETS, History, lease_one, proxies

HISTORIES = 400 if PROVE else 18


class StoredHistory(History):
    """A history whose pool is stored and restored."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        known = self.pool.proxies.values()
        self.restarts = 0
        self.store(GlobalPool(lambda _: self.policy))
        self.pool.add(known, self.now)

    def store(self, pool: GlobalPool) -> None:
        self.image, self.records = pool_image.encode(image_of(pool)), []
        pool.journal = self.records.append
        self.pool = pool

    def step(self) -> None:
        super().step()
        if self.random.random() < 0.05:
            self.restart()

    def restart(self) -> None:
        restored = restore(self.image, self.records, self.policy)
        assert state_of(restored, self.now) == state_of(self.pool, self.now)
        self.restarts += 1
        if self.random.random() < 0.5:
            self.store(restored)
        else:  # continue the same journal
            restored.journal = self.records.append
            self.pool = restored


def restore(image: bytes, records: list[bytes], policy: TargetPolicy) -> GlobalPool:
    pool = pool_of(pool_image.decode(image), lambda _: policy)
    for record in records:
        pool.replay(journal.decode(record))
    return pool


def state_of(pool: GlobalPool, now: float) -> Image:
    """Return the state of a pool, with expirations up to now applied."""
    for target in pool.targets.values():
        target.expire(now)
        target.promote_due(now)
    image = pool_image.decode(pool_image.encode(image_of(pool)))
    for target in image.targets:
        target.sessions = [each for each in target.sessions if each.until > now]
        for member in target.members:  # when queued again, it starts at the virtual time at the earliest
            member.rank = member.rank if member.queued else max(member.rank, target.virtual_time)
        target.members.sort(key=lambda member: member.key)
        target.filled.sort()
    image.targets.sort(key=lambda target: target.name)
    return msgspec.to_builtins(image)


@pytest.mark.parametrize("part", range(3))
def test_restarts_do_not_change_the_pool_in_random_histories(part: int) -> None:
    restarts = 0
    for _ in range(HISTORIES // 3):
        seed = random.randrange(1 << 32)
        history = StoredHistory(seed)
        for number in range(STEPS):
            with failure_context("history", seed, "step", number, history.policy):
                history.step()
        restarts += history.restarts
    assert restarts > HISTORIES


def test_every_kind_of_record_is_written_and_replayed() -> None:
    kinds: set[type] = set()
    for seed in range(3):
        history = StoredHistory(seed)
        for _ in range(STEPS):
            history.step()
            kinds |= {type(journal.decode(each)) for each in history.records[-3:]}
    rare = {journal.OutcomesRecord, journal.ForgetTargetRecord}
    assert kinds >= set(journal.JournalRecord.__subclasses__()) - rare


def test_each_change_of_a_pool_is_recorded() -> None:
    """A new public method of `GlobalPool` needs a record, or belongs to the lists below."""
    reads = {"target", "nearest", "facts", "prices", "restore", "replay"}
    in_other_records = {"acquire", "forget_dead", "remove_all"}  # recorded as GrantRecord and RemoveRecord
    methods = {name for name, value in vars(GlobalPool).items() if callable(value) and name[0] != "_"}
    assert methods - reads - in_other_records == {each.method for each in journal.JournalRecord.__subclasses__()}


def new_pool(count: int, **policy: object) -> tuple[GlobalPool, bytes, list[bytes]]:
    pool = GlobalPool(lambda _: TargetPolicy(**policy))  # type: ignore[arg-type]
    records: list[bytes] = []
    image = pool_image.encode(image_of(pool))
    pool.journal = records.append
    pool.add(proxies(count), 0.0)
    return pool, image, records


def test_changes_without_a_lease_are_recorded() -> None:
    pool, image, records = new_pool(2)
    (first, second) = pool.proxies
    pool.record(first, [Outcome(Blame.PROXY, "refused")], 1.0, 1.0)
    pool.revive(second, 2.0, "9.9.9.9")
    restored = restore(image, records, TargetPolicy())
    assert restored.health == pool.health
    assert restored.health[second].exit_ip == "9.9.9.9"


def test_tokens_of_a_forgotten_target_are_never_used_again() -> None:
    pool, image, records = new_pool(1)
    for _ in range(5):
        grant = lease_one(pool, "first.example", 1.0)
        pool.release("first.example", grant.token, [], 1.0, 0.0)
    for number in range(TARGETS_MAX):
        pool.target(f"{number}.example", 2.0)
    assert "first.example" not in pool.targets
    for each in (pool, restore(image, records, TargetPolicy())):
        assert lease_one(each, "first.example", 3.0).token > grant.token
        assert each.release("first.example", grant.token, [], 3.0, 0.0) is None, "the token is not used again"


def test_a_target_with_leases_is_not_forgotten() -> None:
    pool, *_ = new_pool(1)
    for number in range(TARGETS_MAX):
        lease_one(pool, f"{number}.example", 1.0)
    assert lease_one(pool, "more.example", 2.0)
    assert len(pool.targets) == TARGETS_MAX + 1


def test_a_changed_policy_applies_after_a_restart() -> None:
    pool, image, records = new_pool(2, concurrency=2, sticky_s=1000.0)
    lease = lease_one(pool, "a.example", 1.0, session="s")
    assert lease_one(pool, "a.example", 1.0, session="s").key == lease.key
    restored = restore(image, records, TargetPolicy())
    restored.targets["a.example"].set_policy(replace(TargetPolicy(), concurrency=1), 2.0)
    assert lease_one(restored, "a.example", 2.0).key != lease.key
    assert isinstance(restored.acquire("a.example", 2.0, [0.0]), Wait)
    assert restored.targets["a.example"].members[lease.key].state(2.0) is ProxyState.LEASED


def test_a_lease_waits_for_the_cheaper_tier_after_a_restart() -> None:
    pool, image, records = new_pool(1)
    pool.add([replace(proxies(2)[1], price_gb=4.0)], 0.0)
    lease_one(pool, "a.example", 1.0)
    restored = restore(pool_image.encode(image_of(restore(image, records, TargetPolicy()))), [], TargetPolicy())
    assert isinstance(restored.acquire("a.example", 1.0, [0.0], ProxyRequest()), Wait), (
        "the cheaper proxy is busy, but working"
    )


def test_records_that_do_not_fit_the_pool_are_refused() -> None:
    pool, image, records = new_pool(1)
    for target in TARGETS:
        lease_one(pool, target, 1.0)
    with pytest.raises(KeyError):
        restore(image, records[:1] + records[2:], TargetPolicy())
    repeated = [*records, records[-1]]
    with pytest.raises(ValueError, match=r"^the lease of c\.example has token \d+, but \d+ in the journal$"):
        restore(image, repeated, TargetPolicy())


def test_many_proxies_that_join_are_split_into_several_records() -> None:
    pool, image, records = new_pool(3 * RECORD_MAX + 1, members=10)
    for key in pool.proxies:
        pool.record(key, [Outcome(Blame.PROXY, "down")], 1.0, 0.5)
    assert isinstance(pool.acquire("a.example", 2.0, [0.5]), Wait)
    fills = [each for each in map(journal.decode, records) if isinstance(each, journal.FillRecord)]
    assert [len(each.keys) for each in fills] == [RECORD_MAX] * 3 + [1]
    assert state_of(restore(image, records, TargetPolicy(members=10)), 2.0) == state_of(pool, 2.0)
