"""Explanations, compared with the behaviour of the pool in random histories.

Exactly the proxies explained as next can be leased next; an obstacle that has an end no longer applies at its end.
"""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

from lycosa.proxies.core.explain import ELIGIBLE, ProxyVerdict, Why, explain_pool
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ANY, ProxyRequest, Wait
from lycosa.proxies.core.proxy import Proxy
from tests.conftest import PROVE
from tests.proxies.sim.proxy_steps import failure_context
from tests.proxies.sim.test_pool_history import TARGETS, History

HISTORIES = 400 if PROVE else 8
STEPS = 120
CHECK_EVERY = 6
"""Steps between two checks."""

REQUIRED = {Why.NEXT, Why.BEHIND, Why.DEARER, Why.SESSION, Why.COOLING, Why.DEAD, Why.AVOIDED, Why.TAGS, Why.SPARE}
"""Reasons that must occur in the histories."""


class ExplainedHistory(History):
    """A history with tags and prices, in which explanations are checked."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: set[Why] = set()
        self.add_varied()

    def add_varied(self) -> None:
        draw = self.random
        hosts = [f"10.0.0.{draw.randint(1, 20)}" for _ in range(draw.randint(1, 12))]
        tags, prices = [{}, {"country": "de"}], [0.0, 0.0, 4.0]
        self.pool.add(
            [Proxy("http", host, 8080, tags=draw.choice(tags), price_gb=draw.choice(prices)) for host in hosts],
            self.now,
        )
        if draw.random() < 0.3:
            self.pool.record(
                draw.choice(sorted(self.pool.proxies)), [Outcome(Blame.UNFIT, "alters pages")], self.now, 0.5
            )

    def acquire(self, target: str) -> None:
        """Lease without the checks of `History`, because these checks ignore tiers."""
        request = ProxyRequest(session=self.random.choice(["", "", "s1", "s2"]))
        answer = self.pool.acquire(target, self.now, [self.random.random()], request)
        if not isinstance(answer, Wait):
            (grant,) = answer
            self.leases[target, grant.token] = grant
            self.uses[target, grant.key] += 1

    def check_explanations(self) -> None:
        target = self.random.choice([*TARGETS, "new.example"])
        if self.random.random() < 0.2:
            self.pool.ban(target, self.random.choice(sorted(self.pool.proxies)), self.now)
        avoid = frozenset(self.random.sample(sorted(self.pool.proxies), min(2, len(self.pool.proxies))))
        german = {"country": "de"}
        requests = [
            ANY,
            ANY,
            ProxyRequest(german),
            ProxyRequest(avoid=avoid),
            ProxyRequest(session="s1"),
            ProxyRequest(german, "s2", avoid),
        ]
        request = self.random.choice(requests)
        verdicts = explain_pool(self.pool, target, request, self.now)
        self.seen |= {verdict.why for verdict in verdicts}
        assert sorted(verdict.key for verdict in verdicts) == sorted(self.pool.proxies), "each proxy has one verdict"
        self.check_next(target, request, verdicts)
        self.check_ends(target, request, verdicts)

    def check_next(self, target: str, request: ProxyRequest, verdicts: list[ProxyVerdict]) -> None:
        next_ones = {verdict.key for verdict in verdicts if verdict.why is Why.NEXT}
        count = len(next_ones) or 1
        lease = set()
        for number in range(count):
            answer = deepcopy(self.pool).acquire(target, self.now, [(number + 0.5) / count], request)
            lease |= set() if isinstance(answer, Wait) else {grant.key for grant in answer}
        assert lease == next_ones
        assert sum(verdict.share for verdict in verdicts) == pytest.approx(1.0 if next_ones else 0.0)

    def check_ends(self, target: str, request: ProxyRequest, verdicts: list[ProxyVerdict]) -> None:
        obstacles = [each for each in verdicts if each.until > self.now]
        if not obstacles:
            return
        one = self.random.choice(obstacles)
        afterwards = {each.key: each for each in explain_pool(deepcopy(self.pool), target, request, one.until)}[one.key]
        permanent = {Why.TAGS, Why.AVOIDED} if request.session else set()
        assert afterwards.why in ELIGIBLE | permanent or afterwards.until > one.until
        just_before = explain_pool(deepcopy(self.pool), target, request, one.until - 1e-3)
        if one.until - 1e-3 > self.now:
            assert {each.key: each for each in just_before}[one.key].why not in ELIGIBLE


def test_explanations_match_the_behaviour_of_the_pool() -> None:
    seen: set[Why] = set()
    count = 0
    while count < HISTORIES or not seen >= REQUIRED:
        assert count < 10 * HISTORIES, f"these did not occur: {REQUIRED - seen}"
        count += 1
        seed = random.randrange(1 << 32)
        history = ExplainedHistory(seed)
        for number in range(STEPS):
            with failure_context("history", seed, "step", number, history.policy):
                if number % (5 * CHECK_EVERY) == 0:
                    history.add_varied()
                history.step()
                if number % CHECK_EVERY == 0:
                    history.check_explanations()
        seen |= history.seen


def test_an_explanation_changes_nothing() -> None:
    pool = GlobalPool(lambda _: History(1).policy)
    pool.add([Proxy("http", "10.0.0.1", 80)], 0.0)
    pool.health[next(iter(pool.proxies))].record(Outcome(Blame.PROXY, "refused"), 0.0, 1.0)
    before = deepcopy(pool.__dict__["health"]), dict(pool.targets)
    explain_pool(pool, "a.example", ANY, 0.0)
    assert (pool.health, dict(pool.targets)) == before
