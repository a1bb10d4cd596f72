"""The last leases of a target, with the reason for each proxy."""

from __future__ import annotations

import pytest

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool import choices as module
from lycosa.proxies.core.pool.choices import CHOICES_MAX, Choices, LeaseChoice
from lycosa.proxies.core.pool.target import ProxyRequest


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (LeaseChoice(1.0, "", ProxyRequest(), 0.0, "p", drawn_from=1_234), "drawn from 1,234"),
        (LeaseChoice(1.0, "", ProxyRequest(session="c"), 0.0, "p"), "bound to its session"),
        (
            LeaseChoice(1.0, "", ProxyRequest({"country": "de"}, "c"), 2.04, "p", drawn_from=3, rebound=True),
            "drawn from 3 with country=de, because its session's proxy is not available, waited 2.0 s",
        ),
        (
            LeaseChoice(1.0, "", ProxyRequest(avoid=frozenset("ab")), 0.01, "p", drawn_from=1),
            "drawn from 1, not counting 2 excluded by the request",
        ),
        (LeaseChoice(1.0, "", ProxyRequest(), 30.0, refusal="no proxy is free"), "no proxy is free"),
    ],
)
def test_the_reason_of_a_choice_as_text(choice: LeaseChoice, text: str) -> None:
    assert choice.why() == text


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([], "not used"),
        ([Outcome()], "successful"),
        ([Outcome(), Outcome(Blame.SITE, "403"), Outcome(Blame.NOBODY, "404")], "403 (site)"),
        ([Outcome(Blame.NOBODY)], "works"),
        ([Outcome(), Outcome(Blame.NOBODY, "404")], "404 (nobody)"),
    ],
)
def test_the_result_of_a_choice_as_text(outcomes: list[Outcome], result: str) -> None:
    choice = LeaseChoice(1.0, "", ProxyRequest(), 0.0, "p", 1)
    choice.end(outcomes)
    assert choice.result == result
    choice.end(outcomes, in_time=False)
    assert choice.result == "released too late"


def test_the_last_choices_of_a_target_are_kept_and_can_be_read_by_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TARGETS_MAX", 2)
    now = [0.0]
    choices = Choices(lambda: now[0])
    for number in range(CHOICES_MAX + 5):
        now[0] += 1
        choices.add("a", ProxyRequest(), now[0] - 0.5, "ann" if number % 2 else "bob")
    last = choices.of("a")
    assert [each.at for each in last[:2]] == [CHOICES_MAX + 5, CHOICES_MAX + 4]
    assert (len(last), last[0].waited_s) == (CHOICES_MAX, 0.5)
    assert {each.client for each in choices.of("a", "ann")} == {"ann"}
    choices.add("b", ProxyRequest(), 0.0)
    choices.add("a", ProxyRequest(), 0.0)
    choices.add("c", ProxyRequest(), 0.0)
    assert (choices.of("b"), len(choices.of("a")), len(choices.of("c"))) == ([], CHOICES_MAX, 1)
