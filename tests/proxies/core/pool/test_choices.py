"""The last choices of proxies for a target, in words (issue 6: "why a proxy was chosen or refused")."""

from __future__ import annotations

import pytest

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool import choices as module
from lycosa.proxies.core.pool.choices import EACH_MAX, Choice, Choices
from lycosa.proxies.core.pool.target import ProxyRequest


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(1.0, "", ProxyRequest(), 0.0, "p", among=1_234), "drawn among 1,234"),
        (Choice(1.0, "", ProxyRequest(session="c"), 0.0, "p"), "its session has it"),
        (
            Choice(1.0, "", ProxyRequest({"country": "de"}, "c"), 2.04, "p", among=3, rebound=True),
            "drawn among 3 with country=de, since its session can have its own no more, waited 2.0 s",
        ),
        (
            Choice(1.0, "", ProxyRequest(avoid=frozenset("ab")), 0.01, "p", among=1),
            "drawn among 1, without 2 excluded by the request",
        ),
        (Choice(1.0, "", ProxyRequest(), 30.0, refused="no proxy is free"), "no proxy is free"),
    ],
)
def test_words(choice: Choice, words: str) -> None:
    assert choice.why() == words


@pytest.mark.parametrize(
    ("outcomes", "came"),
    [
        ([], "not used"),
        ([Outcome()], "went well"),
        ([Outcome(), Outcome(Blame.SITE, "403"), Outcome(Blame.NOBODY, "404")], "403 (site)"),
        ([Outcome(Blame.NOBODY)], "it works"),
        ([Outcome(), Outcome(Blame.NOBODY, "404")], "404 (nobody)"),
    ],
)
def test_what_came_of_it(outcomes: list[Outcome], came: str) -> None:
    choice = Choice(1.0, "", ProxyRequest(), 0.0, "p", 1)
    choice.ended(outcomes)
    assert choice.came == came
    choice.ended(outcomes, in_time=False)
    assert choice.came == "given back too late"


def test_the_last_ones_are_remembered_for_those_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TARGETS_MAX", 2)
    now = [0.0]
    choices = Choices(lambda: now[0])
    for number in range(EACH_MAX + 5):
        now[0] += 1
        choices.note("a", ProxyRequest(), now[0] - 0.5, "ann" if number % 2 else "bob")
    told = choices.of("a")
    assert [each.at for each in told[:2]] == [EACH_MAX + 5, EACH_MAX + 4]
    assert (len(told), told[0].waited_s) == (EACH_MAX, 0.5)
    assert {each.by for each in choices.of("a", "ann")} == {"ann"}
    choices.note("b", ProxyRequest(), 0.0)
    choices.note("a", ProxyRequest(), 0.0)
    choices.note("c", ProxyRequest(), 0.0)
    assert (choices.of("b"), len(choices.of("a")), len(choices.of("c"))) == ([], EACH_MAX, 1)
