from __future__ import annotations

import re
from typing import Any

import pytest

from lycosa.storage.core.torrents.deny import DenyRules
from lycosa.storage.core.torrents.rules import read_rules
from lycosa.storage.core.torrents.words import hashed_word


def reason(data: dict[str, Any], *names: str) -> str:
    compile_pattern = lambda pattern: re.compile(pattern, re.MULTILINE)  # noqa: E731
    return DenyRules([(read_rules(data), compile_pattern)]).reason_against(names)


WORDS = {"deny": [{"reason": "listed", "words": ["bad thing"], "patterns": ["^spam [0-9]+$"]}]}
COMBINED = {
    "words": {
        "one": {"hashed": [hashed_word("alpha")]},
        "two": {"words": ["beta"]},
        "harmless": {"words": ["gamma"]},
    },
    "deny": [{"reason": "both", "all": ["one", "two"], "unless": ["harmless"]}],
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["A Bad.Thing"], "listed"),
        (["fine", "folder/bad thing.mkv"], "listed"),
        (["bad", "thing"], ""),
        (["spam 12"], "listed"),
        (["fine", "spam 12"], "listed"),
        (["more spam 12"], ""),
        (["fine"], ""),
    ],
)
def test_a_rule_matches_words_and_patterns_within_one_name(names: list[str], expected: str):
    assert reason(WORDS, *names) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["alpha beta"], "both"),
        (["alpha", "beta"], ""),
        (["x", "alpha/some beta.txt"], "both"),
        (["alpha beta gamma"], ""),
        (["gamma", "alpha beta"], "both"),
    ],
)
def test_lists_are_combined_within_one_name(names: list[str], expected: str):
    assert reason(COMBINED, *names) == expected


def test_the_first_rule_that_matches_gives_the_reason():
    rules = {"deny": [{"reason": "first", "words": ["one"]}, {"reason": "second", "words": ["one", "two"]}]}
    assert reason(rules, "one two") == "first"
    assert reason(rules, "two") == "second"
