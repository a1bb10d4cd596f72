"""The stats of a run (C1) have Scrapy's methods and names.

All names are listed, the number of names is limited, and threads may count at the same time.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import lycosa
from lycosa.crawl.events.stats_collector import (
    LEFT_OUT,
    NAMES_MAX,
    STAT_NAMES,
    StatsCollector,
    counting_logs,
)
from tests.crawl.events.stat_names import unlisted_names

VERBS = {"inc_value", "set_value", "max_value", "min_value"}
PACKAGE = Path(lycosa.__file__).parent


def test_the_methods_of_the_collector_change_values_as_in_scrapy() -> None:
    stats = StatsCollector()
    assert stats.get_value("n") is None
    assert stats.get_value("n", 7) == 7
    stats.inc_value("n")
    stats.inc_value("n", 4)
    stats.inc_value("from", 1, start=10)
    assert stats.get_stats() == {"n": 5, "from": 11}
    stats.max_value("n", 3)
    stats.max_value("most", 3)
    stats.min_value("n", 4)
    stats.min_value("least", 8)
    stats.min_value("least", 9)
    assert stats.get_stats() == {"n": 4, "from": 11, "most": 3, "least": 8}
    stats.set_stats({"other": 1})
    stats.inc_value("other", spider=object())
    assert stats.get_value("other", spider=None) == 2
    stats.clear_stats()
    assert stats.get_stats() == {}


def test_begin_and_end_set_times_reason_and_rates() -> None:
    stats = StatsCollector()
    stats.begin(1_700_000_000.0)
    stats.inc_value("item_scraped_count", 30)
    stats.inc_value("response_received_count", 45)
    stats.end(1_700_000_090.0, "finished")
    values = stats.get_stats()
    assert values["start_time"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert values["finish_time"] == datetime.fromtimestamp(1_700_000_090, UTC)
    assert (values["elapsed_time_seconds"], values["finish_reason"]) == (90.0, "finished")
    assert (values["items_per_minute"], values["responses_per_minute"]) == (20.0, 30.0)
    assert unlisted_names(values) == []


@pytest.mark.parametrize("begun", [True, False])
def test_rates_need_an_elapsed_time(begun: bool) -> None:
    stats = StatsCollector()
    if begun:
        stats.begin(5.0)
    stats.end(5.0, "cancelled")
    assert "items_per_minute" not in stats.get_stats()
    assert stats.get_value("elapsed_time_seconds") == 0.0


def test_the_number_of_names_is_limited_but_listed_names_always_fit() -> None:
    stats = StatsCollector()
    for n in range(NAMES_MAX + 5):
        stats.inc_value(f"from/the/network/{n}")
    assert stats.get_value(LEFT_OUT) == 5
    stats.set_value("finish_reason", "finished")
    stats.inc_value("from/the/network/1")
    assert stats.get_value("finish_reason") == "finished"
    assert stats.get_value("from/the/network/1") == 2
    assert len(stats.get_stats()) == NAMES_MAX + 2


def test_concurrent_increments_are_all_counted() -> None:
    stats = StatsCollector()
    stats.inc_value("n", 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [stats.inc_value("n") for _ in range(20_000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert stats.get_value("n") == 80_000


def test_log_records_are_counted_by_level_within_the_block() -> None:
    stats = StatsCollector()
    log = logging.getLogger("some.spider")
    with counting_logs(stats, logging.WARNING):
        log.warning("one")
        log.warning("two")
        log.error("three")
        log.info("not counted")
    log.error("afterwards")
    assert stats.get_stats() == {"log_count/WARNING": 2, "log_count/ERROR": 1}


def test_the_dump_is_sorted_by_name() -> None:
    stats = StatsCollector()
    stats.inc_value("b")
    stats.inc_value("a")
    assert stats.dump() == "{'a': 1, 'b': 1}"


@pytest.mark.parametrize(
    "name", ["downloader/response_status_count/200", "log_count/ERROR", "retry/reason_count/a/b c"]
)
def test_names_with_a_value_in_place_of_a_placeholder_are_listed(name: str) -> None:
    assert unlisted_names([name]) == []


@pytest.mark.parametrize("name", ["downloader/response_status_count/", "item_scraped", "my/item_scraped_count"])
def test_names_that_only_resemble_a_listed_name_are_not_listed(name: str) -> None:
    assert unlisted_names([name]) == [name]


def names_set_in(source: str) -> list[str]:
    """Return the stat names in the code; placeholders of f-strings become {}."""
    return [
        text
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS and node.args
        if (text := name_of(node.args[0]))
    ]


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def unlisted_in(source: str) -> list[str]:
    """Return the names in the code that match no listed name, with anything in place of their {}."""
    return [
        name
        for name in names_set_in(source)
        if not any(re.fullmatch(".+".join(map(re.escape, name.split("{}"))), listed) for listed in STAT_NAMES)
    ]


def test_every_name_in_the_code_is_listed() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    assert "start_time" in {name for source in sources for name in names_set_in(source)}
    assert [name for source in sources for name in unlisted_in(source)] == []


def test_the_check_finds_unlisted_names() -> None:
    right = "stats.inc_value(f'httpcache/{what}')\nstats.inc_value(f'log_count/{level}')\nstats.inc_value(name)"
    wrong = "stats.inc_value(f'retry/reasons/{why}')\nself._stats.set_value('strat_time', 1)"
    assert unlisted_in(right) == []
    assert unlisted_in(wrong) == ["retry/reasons/{}", "strat_time"]


def test_every_name_has_a_meaning() -> None:
    assert all(meaning and not meaning.endswith(".") for meaning in STAT_NAMES.values())
