from __future__ import annotations

from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.core.torrents.rules import read_rules


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"denies": []}, "unknown field `denies`"),
        ({"test": [{"name": "x", "kind": "y"}]}, "unknown field `kind`, in `test[0]`"),
        ({"deny": [{"reason": 3, "words": ["a"]}]}, "Expected `str`, got `int`, in `deny[0].reason`"),
        ({"deny": [{"words": ["a"]}]}, "a rule needs a reason, in `deny[0]`"),
        ({"deny": [{"reason": "r"}]}, "a rule needs either words"),
        (
            {"deny": [{"reason": "r", "words": ["a"], "all": ["x"]}], "words": {"x": {}}},
            "a rule needs either words",
        ),
        ({"deny": [{"reason": "r", "all": ["x"]}]}, "there is no list [words.x], in `deny[0]`"),
        ({"words": {"x": {"file": "../etc/passwd"}}}, "write its name without a folder, in `words.x`"),
        ({"content": [{"type": "movie"}]}, "'movie' is not a type: write one of unknown, video"),
        ({"languages": {"xx": ["word"]}}, "'xx' is not a known language: write one of en, zh"),
        ({"category": [{"number": 1, "type": "nothing"}]}, "'nothing' is not a type"),
    ],
)
def test_a_mistake_is_named_with_its_place(data: dict[str, Any], message: str):
    with pytest.raises(UsageError) as caught:
        read_rules(data)
    assert message in str(caught.value)
