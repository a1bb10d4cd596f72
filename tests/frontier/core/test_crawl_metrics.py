"""Metrics in the text format of Prometheus, read back by its own parser (F8)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from lycosa.core.metrics import Metric, exposition
from lycosa.frontier.core.crawl_metrics import STATS_MAX, WORKERS_MAX, metrics_of
from lycosa.frontier.core.telemetry import COUNTS, STAT_PREFIX, STATES, CrawlView, WorkerReport, WorkerView

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


def parsed(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the values by name and labels; every name occurs once."""
    families = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in families}) == len(families)
    return {
        sample.name: {tuple(sorted(each.labels.items())): each.value for each in family.samples}
        for family in families
        for sample in family.samples
    }


@given(TEXT, st.dictionaries(st.sampled_from(["a", "b_c"]), TEXT), st.floats(), TEXT)
def test_written_metrics_can_be_scraped(help_text, labels, value, other):
    text = exposition([Metric("lycosa_x_bytes", "gauge", help_text, [(labels, value), ({"d": other}, 1)])])
    (family,) = text_string_to_metric_families(text.decode())
    first, second = family.samples
    assert (family.name, family.type) == ("lycosa_x_bytes", "gauge")
    assert (first.labels, second.labels) == (labels, {"d": other})
    assert first.value == value or (math.isnan(first.value) and math.isnan(value))
    assert text.endswith(b"\n")


def test_help_is_one_line():
    text = exposition([Metric("lycosa_x", "gauge", "a\\b\nc", [({}, 2)])])
    assert text == b"# HELP lycosa_x a\\\\b\\nc\n# TYPE lycosa_x gauge\nlycosa_x 2\n"


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [("lycosa x", "gauge", "a"), ("lycosa_x", "counter", "a"), ("x_total", "gauge", "a"), ("x", "gauge", "a-b")],
)
def test_an_invalid_name_is_refused(name, kind, label):
    with pytest.raises(ValueError, match="is not a valid name of a"):
        exposition([Metric(name, kind, "", [({label: "x"}, 1)])])


def worker(number: int, state: str = "crawling") -> WorkerView:
    counts = dict.fromkeys(COUNTS, number)
    return WorkerView(f"w#{number}", state, 0.5, 3, WorkerReport("m", 1, "1.0", 9.0, state, "", 2, 64, 10**8, counts))


def test_a_crawl_as_metrics():
    totals = {"pages": 7, "cpu_ms": 1500, STAT_PREFIX + "retry/count": 4}
    crawl = CrawlView(
        'sh"op', 0.0, [worker(1), WorkerView("new#2", "waiting")], [worker(3, "lost")], totals, {"queued": 5}
    )
    found = parsed(exposition(metrics_of(crawl)))
    one, all_ = (("crawl", 'sh"op'), ("worker", "w#1")), (("crawl", 'sh"op'),)
    assert found["lycosa_pages_total"] == {all_: 7}
    assert found["lycosa_items_total"] == {all_: 0}
    assert found["lycosa_cpu_seconds_total"] == {all_: 1.5}
    assert found["lycosa_stat_total"] == {(*all_, ("stat", "retry/count")): 4}
    assert found["lycosa_frontier_urls"] == {(*all_, ("state", "queued")): 5}
    states = {dict(labels)["state"]: count for labels, count in found["lycosa_workers"].items()}
    assert states == {**dict.fromkeys(STATES, 0), "crawling": 1, "waiting": 1, "lost": 1}
    assert found["lycosa_worker_pages_total"] == {one: 1}
    assert found["lycosa_worker_resident_memory_bytes"] == {one: 1e8}
    assert found["lycosa_worker_info"] == {
        (("crawl", 'sh"op'), ("machine", "m"), ("version", "1.0"), ("worker", "w#1")): 1
    }


def test_the_metrics_of_a_single_worker_have_no_totals():
    found = parsed(exposition(metrics_of(CrawlView("shop", 0.0, [worker(1)]))))
    assert "lycosa_pages_total" not in found
    assert "lycosa_worker_pages_total" in found


def test_the_number_of_label_values_is_bounded():
    totals = {f"{STAT_PREFIX}{n}": n for n in range(STATS_MAX + 5)}
    crawl = CrawlView("shop", 0.0, [worker(n) for n in range(WORKERS_MAX + 5)], [], totals)
    found = parsed(exposition(metrics_of(crawl)))
    assert len(found["lycosa_worker_pages_total"]) == WORKERS_MAX
    assert len(found["lycosa_stat_total"]) == STATS_MAX
    assert sum(found["lycosa_workers"].values()) == WORKERS_MAX + 5
