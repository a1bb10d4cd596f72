"""Why a proxy is leased or not: the texts of verdicts, and shared exits. tests/proxies/sim has the other tests."""

from __future__ import annotations

import pytest

from lycosa.proxies.core.explain import ProxyVerdict, Why, explain_pool, verdict_text
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.pool.target_state import SAME_EXIT, ProxyState
from lycosa.proxies.core.proxy import Proxy

SITE = "a.example"


def format_time(at: float) -> str:
    return f"<{at:g}>"


def test_a_ban_explains_all_proxies_with_the_same_exit() -> None:
    pool = GlobalPool(lambda _: TargetPolicy(cool_s=100.0))
    pool.add([Proxy("http", f"10.0.0.{number}", 80) for number in range(3)], 0.0)
    banned, same_exit, other = pool.proxies
    for key in (banned, same_exit):
        pool.revive(key, 0.0, "9.9.9.9")
    (grant,) = pool.acquire(SITE, 0.0, [0.0], ProxyRequest(avoid=frozenset({same_exit, other})))  # type: ignore[misc]
    pool.release(SITE, grant.token, [Outcome(Blame.SITE, "429", rest_s=50.0)], 0.0, 0.0)
    verdicts = {each.key: each for each in explain_pool(pool, SITE, ANY, 1.0)}
    assert (verdicts[banned].why, verdicts[banned].reason) == (Why.COOLING, "429")
    assert (verdicts[same_exit].why, verdicts[same_exit].until, verdicts[same_exit].reason) == (
        Why.EXIT,
        50.0,
        "429" + SAME_EXIT,
    )
    assert (verdicts[other].why, verdicts[other].share) == (Why.NEXT, 1.0)
    assert verdict_text(verdicts[same_exit], format_time) == "cools down until <50>: 429, at the same exit"


def test_a_verdict_has_the_weight_of_the_proxy() -> None:
    """A proxy that fails half of the time is used a quarter as often as one that never fails (see `cost`)."""
    pool = GlobalPool(lambda _: TargetPolicy())
    pool.add([Proxy("http", f"10.0.0.{number}", 80) for number in range(2)], 0.0)
    good, _ = pool.proxies
    for now in range(60):
        others = set(pool.proxies) - {good}
        (grant,) = pool.acquire(SITE, float(now), [0.0], ProxyRequest(avoid=frozenset({good} if now % 2 else others)))  # type: ignore[misc]
        blame = Blame.NONE if grant.key == good or now % 4 == 1 else Blame.MISS
        pool.release(SITE, grant.token, [Outcome(blame)], float(now), 0.0)
    weights = {each.key: each.weight for each in explain_pool(pool, SITE, ANY, 100.0)}
    assert 0.85 < weights.pop(good) < 1
    assert 0.15 < weights.popitem()[1] < 0.35


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (ProxyVerdict("k", Why.NEXT, ProxyState.READY, place=1, share=0.125), "may be leased next (12% chance)"),
        (
            ProxyVerdict("k", Why.NEXT, ProxyState.HALF_OPEN, place=1, share=1.0),
            "may be leased next (100% chance), on trial after a cool-down",
        ),
        (
            ProxyVerdict("k", Why.BEHIND, ProxyState.READY, place=22, joins=True),
            "ready, 22nd in the order of use, joins with the next lease",
        ),
        (ProxyVerdict("k", Why.BEHIND, ProxyState.READY, place=11), "ready, 11th in the order of use"),
        (ProxyVerdict("k", Why.LEASED, ProxyState.LEASED, 9.0), "leased: its lease ends <9>"),
        (ProxyVerdict("k", Why.COOLING, ProxyState.COOLING, 9.0, reason="403"), "cools down until <9> (403)"),
        (
            ProxyVerdict("k", Why.BANNED, ProxyState.BANNED, reason="by hand"),
            "banned until someone lifts the ban (by hand)",
        ),
        (ProxyVerdict("k", Why.DEAD, ProxyState.DEAD), "dead until a check finds it working"),
        (
            ProxyVerdict("k", Why.DEAD, ProxyState.DEAD, reason="alters pages"),
            "dead until a check finds it working (alters pages)",
        ),
        (ProxyVerdict("k", Why.TAGS, ProxyState.READY), "lacks the requested tags (country=de)"),
    ],
)
def test_each_verdict_is_explained_in_one_line(verdict: ProxyVerdict, text: str) -> None:
    assert verdict_text(verdict, format_time, tags="country=de") == text


def test_each_verdict_has_its_own_text() -> None:
    assert len({verdict_text(ProxyVerdict("k", why, ProxyState.READY, 5.0), format_time) for why in Why}) == len(Why)
