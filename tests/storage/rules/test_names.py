"""The built-in rules, tested on the labelled names in names.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lycosa.storage.rules.rule_files import make_inspector
from tests.storage.rules.records import record_named

LABELLED = Path(__file__).with_name("names.txt")
FIELDS = ("type", "category", "resolution", "year", "season", "episode", "languages")
WRONG_MAX = {
    "type": 0.03,
    "category": 0.06,
    "resolution": 0.01,
    "year": 0.01,
    "season": 0.01,
    "episode": 0.01,
    "languages": 0.03,
}
INSPECTOR = make_inspector()


def labels() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for line in LABELLED.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            *values, name = line.split("|", len(FIELDS))
            found.append((name, dict(zip(FIELDS, values, strict=True))))
    return found


def described(name: str) -> dict[str, str]:
    facts = INSPECTOR.inspect(record_named(name)).record.content
    assert facts is not None, f"{name} is refused"
    numbers = {field: str(getattr(facts, field) or "") for field in ("category", "resolution", "year")}
    places = {field: "" if (value := getattr(facts, field)) is None else str(value) for field in ("season", "episode")}
    return {"type": facts.type.name.lower(), **numbers, **places, "languages": ",".join(facts.languages)}


@pytest.mark.parametrize("field", FIELDS)
def test_the_rules_read_names_as_a_person_does(field: str):
    labelled = labels()
    assert len(labelled) >= 200
    found = [(name, expected[field], described(name)[field]) for name, expected in labelled]
    wrong = [f"{name}: {field} is {got!r}, not {expected!r}" for name, expected, got in found if got != expected]
    assert len(wrong) <= WRONG_MAX[field] * len(labelled), "\n".join(wrong)
