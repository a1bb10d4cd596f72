"""The pool in random histories: no double lease, exact counts, leases expire in time, bans apply to their target only.

After each step the invariants are checked by brute force, on all members of all targets.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool import pool as pool_module
from lycosa.proxies.core.pool.pool import PRICES_MAX, GlobalPool
from lycosa.proxies.core.pool.target import Grant, ProxyRequest, TargetPool, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyState, ProxyTargetState
from lycosa.proxies.core.proxy import Proxy
from tests.conftest import PROVE
from tests.proxies.sim.proxy_steps import failure_context

HISTORIES = 1000 if PROVE else 24
STEPS = 400
TARGETS = ("a.example", "b.example", "c.example")
BLAMES = [Blame.NONE] * 6 + [Blame.NOBODY, Blame.MISS, Blame.SITE, Blame.PROXY]


def proxies(count: int, **facts: object) -> list[Proxy]:
    return [Proxy("http", f"10.0.{number // 250}.{number % 250 + 1}", 8080, **facts) for number in range(count)]  # type: ignore[arg-type]


def is_free(pool: TargetPool, member: ProxyTargetState, now: float) -> bool:
    full = bool(pool.policy.concurrency) and member.lease_count >= pool.policy.concurrency
    unusable = member.banned or member.facts.dead or (member.half_open and member.lease_count > 0)
    return not full and not unusable and member.eligible_at <= now


class History:
    """A random history of a pool, with the expected leases and counts."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.now = 1_000_000.0
        self.policy = TargetPolicy(
            concurrency=draw.choice([1, 1, 2, 0]),
            delay_s=draw.choice([0.0, 0.5, 3.0]),
            lease_s=draw.choice([1.0, 5.0]),
            members=draw.choice([3, 8, 100]),
            cool_s=draw.choice([2.0, 20.0]),
            max_bans=draw.choice([0, 3]),
            guarded=draw.random() < 0.5,
        )
        self.pool = GlobalPool(lambda _: self.policy)
        self.pool.add(proxies(draw.randint(1, 20)), self.now)
        self.leases: dict[tuple[str, int], Grant] = {}
        self.uses: Counter[tuple[str, str]] = Counter()
        self.started: dict[tuple[str, str], float] = {}
        self.removed_leases: set[tuple[str, int]] = set()

    def is_over(self, target: str, grant: Grant) -> bool:
        return grant.deadline <= self.now or (target, grant.token) in self.removed_leases

    def step(self) -> None:
        self.now += self.random.choice([0.0, 0.01, 0.3, 2.0])
        act = self.random.choice([self.acquire] * 5 + [self.release] * 4 + [self.renew, self.change])
        act(self.random.choice(TARGETS))
        self.check()

    def acquire(self, target: str) -> None:
        session = self.random.choice(["", "", "s1", "s2"])
        count = 1 if session else self.random.choice([1, 1, 3])
        answer = self.pool.acquire(
            target, self.now, [self.random.random() for _ in range(count)], ProxyRequest(session=session)
        )
        if isinstance(answer, Wait):
            free = [member for member in self.members(target) if is_free(self.pool.targets[target], member, self.now)]
            assert session or len(free) < count, "no lease, although a proxy was free"
            assert answer.at is None or answer.at > self.now, "the caller would retry without a pause"
            return
        assert len({grant.key for grant in answer}) == count
        for grant in answer:
            gap_s = self.now - self.started.get((target, grant.key), 0.0)
            assert gap_s >= self.policy.delay_s - 1e-6
            self.started[target, grant.key] = self.now
            self.leases[target, grant.token] = grant
            self.uses[target, grant.key] += 1

    def release(self, target: str) -> None:
        tokens = [token for leased_target, token in self.leases if leased_target == target]
        if not tokens:
            return
        token = self.random.choice(tokens)
        grant = self.leases.pop((target, token))
        outcomes = [Outcome(self.random.choice(BLAMES), "x") for _ in range(self.random.choice([0, 1, 1, 1, 3]))]
        key = self.pool.release(target, token, outcomes, self.now, self.random.random())
        assert key == (None if self.is_over(target, grant) else grant.key)
        if key is not None:
            self.uses[target, key] += max(0, len(outcomes) - 1)
        assert self.pool.release(target, token, outcomes, self.now, 0.5) is None, "only once"

    def renew(self, target: str) -> None:
        for (leased_target, token), grant in list(self.leases.items()):
            if leased_target == target:
                until = self.pool.renew(target, token, self.now)
                assert (until is None) == self.is_over(target, grant)
                if until is not None:
                    self.leases[leased_target, token] = Grant(token, grant.key, until, grant.rebound, grant.drawn_from)

    def change(self, target: str) -> None:
        key = self.random.choice([*self.pool.proxies, "nobody"])
        change = self.random.randrange(7)
        if change == 0:
            self.pool.ban(target, key, self.now, self.random.choice([None, self.now + 3]))
        elif change == 1:
            self.pool.unban(target, key, self.now)
        elif change == 2 and key in self.pool.proxies:
            self.pool.revive(key, self.now, self.random.choice(["", "9.9.9.9"]))
        elif change == 3 and len(self.pool.proxies) > 1 and self.pool.remove(key, self.now):
            self.removed_leases |= {lease for lease, grant in self.leases.items() if grant.key == key}
            self.uses = Counter({member: count for member, count in self.uses.items() if member[1] != key})
            self.started = {member: at for member, at in self.started.items() if member[1] != key}
        elif change == 4:
            self.forget_dead(self.random.choice([0.0, 3.0]))
        else:
            self.pool.add(proxies(self.random.randint(1, 25)), self.now)

    def forget_dead(self, max_age_s: float) -> None:
        """Forget dead proxies, except leased ones."""
        for key in self.random.sample(sorted(self.pool.proxies), min(2, len(self.pool.proxies))):
            self.pool.record(key, [Outcome(Blame.UNFIT, "x")], self.now - self.random.choice([0.0, 4.0]), 0.5)
        dead = {
            key for key, health in self.pool.health.items() if health.dead and health.dead_at <= self.now - max_age_s
        }
        lease = {grant.key for (target, _), grant in self.leases.items() if not self.is_over(target, grant)}
        assert set(self.pool.forget_dead(max_age_s, self.now)) == dead - lease
        self.uses = Counter({member: count for member, count in self.uses.items() if member[1] not in dead - lease})
        self.started = {member: at for member, at in self.started.items() if member[1] not in dead - lease}

    def members(self, target: str) -> list[ProxyTargetState]:
        return list(self.pool.targets[target].members.values()) if target in self.pool.targets else []

    def check(self) -> None:
        lease_counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        for (target, _), grant in self.leases.items():
            lease_counts[target, grant.key] += not self.is_over(target, grant)
        for target, pool in self.pool.targets.items():
            pool.expire(self.now)
            for member in pool.members.values():
                assert member.lease_count == lease_counts[target, member.key], "more or fewer leases than callers have"
                assert not pool.policy.concurrency or member.lease_count <= pool.policy.concurrency
                assert member.uses == self.uses[target, member.key]
                assert not member.queued or is_free(pool, member, self.now)


@pytest.mark.parametrize("part", range(4))
def test_random_histories_keep_the_invariants(part: int) -> None:
    for _ in range(HISTORIES // 4):
        seed = random.randrange(1 << 32)
        history = History(seed)
        for number in range(STEPS):
            with failure_context("history", seed, "step", number, history.policy):
                history.step()


def lease_one(pool: GlobalPool, target: str, now: float, **request: object) -> Grant:
    answer = pool.acquire(target, now, [0.0], ProxyRequest(**request))  # type: ignore[arg-type]
    assert not isinstance(answer, Wait)
    return answer[0]


def new_pool(count: int, **policy: object) -> GlobalPool:
    pool = GlobalPool(lambda _: TargetPolicy(**policy))  # type: ignore[arg-type]
    pool.add(proxies(count), 0.0)
    return pool


def test_filling_a_target_does_not_reset_counts() -> None:
    """A proxy with 11 uses is leased while the target is refilled: after the release it has 12 uses, not 1."""
    pool = new_pool(1)
    for now in range(12):
        grant = lease_one(pool, "a.example", float(now))
        pool.add(proxies(1), float(now))
        pool.target("a.example", float(now)).filled.clear()
        assert isinstance(pool.acquire("a.example", float(now), [0.0]), Wait)
        pool.release("a.example", grant.token, [Outcome()], float(now), 0.0)
    assert pool.targets["a.example"].members[grant.key].uses == 12


def test_filling_a_target_keeps_the_order_of_use() -> None:
    """A proxy with 12 uses is not leased before one with 3 uses."""
    pool = new_pool(2)
    for session, uses in (("heavy", 3), ("light", 3), ("heavy", 9)):
        for _ in range(uses):
            grant = lease_one(pool, "a.example", 1.0, session=session)
            pool.release("a.example", grant.token, [Outcome()], 1.0, 0.0)
    counts = {key: member.uses for key, member in pool.targets["a.example"].members.items()}
    assert sorted(counts.values()) == [3, 12]
    assert counts[lease_one(pool, "a.example", 2.0).key] == 3


def test_filling_a_target_does_not_lease_a_leased_proxy_again() -> None:
    """A caller has the only proxy, so the target has no free one and is refilled from the global pool."""
    pool = new_pool(1)
    lease_one(pool, "a.example", 0.0)
    for now in (0.1, 1.0, 50.0):
        pool.target("a.example", now).filled.clear()
        assert isinstance(pool.acquire("a.example", now, [0.0]), Wait)
    assert lease_one(pool, "b.example", 1.0), "another target may lease the same proxy at the same time"


def test_a_ban_applies_to_one_target_and_a_failed_connection_to_all() -> None:
    pool = new_pool(1, cool_s=100.0)
    now = 1.0
    grant = lease_one(pool, "a.example", now)
    pool.release("a.example", grant.token, [Outcome(Blame.SITE, "403")], now, 0.5)
    assert isinstance(pool.acquire("a.example", now + 1, [0.0]), Wait)
    grant = lease_one(pool, "b.example", now)
    pool.release("b.example", grant.token, [Outcome(Blame.PROXY, "connection refused")], now, 1.0)
    assert isinstance(pool.acquire("b.example", now + 1, [0.0]), Wait)
    assert isinstance(pool.acquire("c.example", now + 1, [0.0]), Wait), "the proxy cannot be reached"


def test_after_a_ban_one_lease_is_on_trial() -> None:
    pool = new_pool(1, concurrency=5, cool_s=100.0)
    target, now = pool.target("a.example", 0.0), 1.0
    grant = lease_one(pool, "a.example", now)
    pool.release("a.example", grant.token, [Outcome(Blame.SITE, "429", rest_s=30.0)], now, 0.0)
    ((key, member),) = target.members.items()
    assert member.state(now) is ProxyState.COOLING
    assert pool.acquire("a.example", now, [0.0]) == Wait(31.0)
    assert member.state(32.0) is ProxyState.HALF_OPEN
    canary = lease_one(pool, "a.example", 32.0)
    assert isinstance(pool.acquire("a.example", 32.0, [0.0]), Wait), "one at a time"
    pool.release("a.example", canary.token, [Outcome(Blame.SITE, "429")], 33.0, 1.0)
    assert pool.acquire("a.example", 33.0, [0.0]) == Wait(233.0), "the second ban in a row: twice `cool_s`"
    canary = lease_one(pool, "a.example", 234.0)
    pool.release("a.example", canary.token, [Outcome()], 235.0, 0.0)
    assert [lease_one(pool, "a.example", 236.0).key for _ in range(5)] == [key] * 5


def test_proxies_with_one_exit_share_its_bans() -> None:
    pool = new_pool(3, cool_s=100.0)
    first, second, third = pool.proxies
    pool.revive(first, 0.0, "9.9.9.9")
    pool.revive(second, 0.0, "9.9.9.9")
    pool.ban("a.example", second, 0.0, 1.0)
    pool.ban("a.example", third, 0.0, 1.0)
    grant = lease_one(pool, "a.example", 0.5)
    pool.release("a.example", grant.token, [Outcome(Blame.SITE, "403")], 0.5, 1.0)
    assert [lease_one(pool, "a.example", 100.0).key, pool.acquire("a.example", 100.0, [0.0])] == [third, Wait(100.5)]


def test_a_proxy_has_an_exit_only_if_it_is_not_tagged_as_rotating() -> None:
    for word, exit_ip in (("yes", ""), ("no", "9.9.9.9")):
        pool = GlobalPool(lambda _: TargetPolicy())
        pool.add(proxies(1, tags={"rotating": word}), 0.0)
        (key,) = pool.proxies
        pool.revive(key, 0.0, "9.9.9.9")
        assert pool.facts(key).exit_ip == exit_ip


def test_the_number_of_targets_is_limited_after_their_leases_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "TARGETS_MAX", 3)
    pool = new_pool(1)
    for number in range(10):
        lease_one(pool, f"{number}.example", 1000.0 * number)
    assert len(pool.targets) == 3


def test_a_target_is_filled_in_one_pass_even_if_many_proxies_cool_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, passes = new_pool(500, members=10), []
    for key in list(pool.proxies)[:490]:
        pool.record(key, [Outcome(Blame.PROXY, "down")], 0.0, 0.5)
    monkeypatch.setattr(pool, "nearest", lambda: passes.append(1) or GlobalPool.nearest(pool))
    assert lease_one(pool, "a.example", 1.0)
    assert sum(member.usable for member in pool.targets["a.example"].members.values()) == 10
    lease_one(pool, "a.example", 1.0)
    assert len(passes) == 1


def test_changes_to_many_proxies_touch_affected_members_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million proxies and ten thousand targets a loop over both would take hours."""
    pool = new_pool(1_000, members=2)
    for number in range(100):
        lease_one(pool, f"{number}.example", 1.0)
    calls: Counter[str] = Counter()

    def count_calls(kind: type, name: str) -> None:
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *args, **options: calls.update([name]) or method(*args, **options))

    for kind, name in ((GlobalPool, "facts"), (TargetPool, "expire"), (TargetPool, "learn"), (TargetPool, "forget")):
        count_calls(kind, name)
    known = list(pool.proxies.values())
    pool.add([replace(known[-1], price_gb=1.0)], 2.0)
    assert calls == {"facts": 2, "learn": 200}, "all tiers have changed, so each target updates its members"
    calls.clear()
    assert len(pool.remove_all([each.key for each in known[1:]], 3.0)) == 999
    assert calls == {"expire": 100, "forget": 200}


def test_the_number_of_prices_is_limited() -> None:
    pool = GlobalPool(lambda _: TargetPolicy())
    pool.add((Proxy("http", "10.0.0.1", port, price_gb=float(port)) for port in range(1, 60_001)), 0.0)
    tiers = [pool.facts(key).tier for key in pool.proxies]
    assert tiers == sorted(tiers), "cheaper proxies always come first"
    assert tiers[-1] == PRICES_MAX - 1
    assert len(pool.prices()) == PRICES_MAX


def test_a_session_keeps_its_proxy_until_the_proxy_is_lost() -> None:
    pool = new_pool(20, sticky_s=60.0, cool_s=1000.0)
    keys = set()
    for now in range(0, 200, 20):
        grant = lease_one(pool, "a.example", float(now), session="s")
        pool.release("a.example", grant.token, [Outcome()], float(now), 0.5)
        keys.add(grant.key)
        other = lease_one(pool, "a.example", float(now))
        pool.release("a.example", other.token, [Outcome()], float(now), 0.5)
    assert len(keys) == 1, "each use extends the session"
    grant = lease_one(pool, "a.example", 200.0, session="s")
    pool.release("a.example", grant.token, [Outcome(Blame.SITE, "403")], 200.0, 1.0)
    after = lease_one(pool, "a.example", 201.0, session="s")
    assert (after.rebound, after.key != grant.key) == (True, True)


def test_proxies_that_cost_nothing_are_used_as_long_as_they_work() -> None:
    pool = GlobalPool(lambda _: TargetPolicy(cool_s=100.0))
    cheap, dear = proxies(2)[0], Proxy("http", "10.9.9.9", 1, price_gb=4.0)
    pool.add([dear, cheap], 0.0)
    grant = lease_one(pool, "a.example", 0.0)
    assert grant.key == cheap.key
    assert isinstance(pool.acquire("a.example", 0.0, [0.0]), Wait), "the cheap proxy is busy, but working"
    pool.release("a.example", grant.token, [Outcome(Blame.SITE, "403")], 1.0, 1.0)
    assert lease_one(pool, "a.example", 2.0).key == dear.key


def test_better_proxies_are_used_more_and_all_are_used() -> None:
    """5,000 uses of ten proxies: one has a tenth of the latency, and one fails half of the time."""
    pool = new_pool(10)
    near, flaky, *others = pool.proxies
    rng, used = random.Random(4), Counter[str]()
    for number in range(5000):
        now = float(number)
        grant = pool.acquire("a.example", now, [rng.random()])[0]  # type: ignore[index]
        used[grant.key] += 1
        works = grant.key != flaky or rng.random() < 0.5
        outcome = Outcome(Blame.NONE if works else Blame.MISS, "", None, 0.1 if grant.key == near else 1.0)
        pool.release("a.example", grant.token, [outcome], now, 0.0)
        if not works:
            pool.targets["a.example"].unban(grant.key, now)
    mean = sum(used[key] for key in others) / len(others)
    assert used[near] > 1.4 * mean
    assert 0 < used[flaky] < 0.6 * mean


@pytest.mark.parametrize("guarded", [True, False])
def test_bans_do_not_cascade(*, guarded: bool) -> None:
    """15 of 50 proxies are banned at 20 requests per second: the guard keeps the use of the others as it was before."""
    pool = new_pool(50, cool_s=10_000.0, guarded=guarded)
    rng = random.Random(7)
    pool.target("a.example", 0.0)
    banned: set[str] = set()

    def uses(begin: float, end: float) -> Counter[str]:
        used, now = Counter[str](), begin
        while now < end:
            now += 0.05
            answer = pool.acquire("a.example", now, [rng.random()])
            if isinstance(answer, Wait):
                continue
            used[answer[0].key] += 1
            is_banned = answer[0].key in banned
            outcome = Outcome(Blame.SITE, "403") if is_banned else Outcome(latency_s=0.1)
            pool.release("a.example", answer[0].token, [outcome], now, 1.0)
        return used

    before = uses(0.0, 200.0)
    banned |= {*list(pool.proxies)[::3]} - {*list(pool.proxies)[45:]}
    uses(200.0, 300.0)
    after = uses(300.0, 500.0)
    assert len(banned) == 15
    ratio = (sum(after.values()) / 35) / (sum(before.values()) / 50)
    increase_max = max(after[key] / before[key] for key in after if key not in banned)
    assert (ratio <= 1.02, increase_max <= 1.2) == (guarded, guarded), (ratio, increase_max)
    assert not guarded or ratio > 0.9


@pytest.mark.parametrize("success", [Outcome(latency_s=0.1), Outcome(Blame.NOBODY)], ids=["pages", "tunnels"])
@pytest.mark.parametrize("has_worked", [False, True])
def test_a_proxy_banned_from_the_start_does_not_slow_down_the_others(success: Outcome, *, has_worked: bool) -> None:
    """The loss of a proxy that never worked sets no limit for the others, since it had no load that could shift to
    them: a crawl that starts slowly can speed up. If the proxy has worked before its ban, the guard limits the others
    to their rate so far.
    """
    pool = new_pool(10, cool_s=10_000.0)
    bad, now, served = proxies(11)[-1], 0.0, 0
    if has_worked:
        pool.add([bad], now)
    for number in range(400):
        now += 1.0 if number < 100 else 0.05
        if number == 80 and not has_worked:
            pool.add([bad], now)
        answer = pool.acquire("a.example", now, [0.0])
        if isinstance(answer, Wait):
            continue
        served += number >= 200
        banned = answer[0].key == bad.key and number >= 80
        outcome = Outcome(Blame.SITE, "403") if banned else success
        pool.release("a.example", answer[0].token, [outcome], now, 1.0)
    assert pool.targets["a.example"].members[bad.key].bans == 1
    assert (served == 200) is not has_worked


def test_failures_fade_while_only_tunnels_are_used() -> None:
    """A tunnel shows no response of the site: tunnels bring the cost back to that of a new proxy, but not below it."""
    member = ProxyTargetState("k", ProxyFacts(), 0.0)
    new = member.cost()
    member.count_response(False)
    assert member.cost() > 2 * new
    for _ in range(200):
        member.count_response(None)
    assert member.cost() == pytest.approx(new, rel=0.01)
    assert (member.good, member.bad) == (0, 1)
