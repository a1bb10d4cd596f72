"""The log in JSON: an object a line (C1)."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

from lycosa.infra.json_log import FIELD_TEXT_MAX, FIELDS_MAX, JsonFormatter


def formatted(message: str, *args: Any, exc_info: Any = None, **fields: Any) -> dict[str, Any]:
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.WARNING, "shop.py", 7, message, args, exc_info, extra=fields
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_record_is_an_object_with_its_fields():
    line = formatted("slow: %s\nvery", "a", url="http://a/", status=200, spider="s", ratio=0.5, ok=True, none=None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line == {
        "level": "WARNING", "logger": "shop", "message": "slow: a\nvery", "url": "http://a/", "status": 200,
        "spider": "s", "ratio": 0.5, "ok": True, "none": None,
    }  # fmt: skip


def test_a_field_that_is_no_json_value_becomes_text():
    line = formatted("x", when={1}, broken="\udcff", much="x" * 20_000, endless=float("inf"))
    assert (line["when"], line["broken"], line["endless"]) == ("{1}", "\udcff", "inf")
    assert len(line["much"]) == FIELD_TEXT_MAX


def test_a_list_becomes_a_list_of_texts():
    assert formatted("x", names=["a", 1])["names"] == ["a", "1"]
    assert formatted("x", pair=("b", None))["pair"] == ["b", "None"]


def test_fields_do_not_replace_the_standard_keys_of_a_line_and_are_bounded():
    line = formatted("x", level=7, time="never", **{f"field{number}": number for number in range(100)})
    assert line["level"] == "WARNING"
    assert line["time"] != "never"
    assert len(line) <= FIELDS_MAX + 4


def test_a_traceback_is_a_field():
    try:
        int("mine")
    except ValueError:
        line = formatted("failed", exc_info=sys.exc_info())
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("invalid literal for int() with base 10: 'mine'")
