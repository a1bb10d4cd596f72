"""`bench/shared.py`: floors and tables of shared frontiers, and its child processes (C3)."""

from __future__ import annotations

import argparse

import pytest

from tests.bench.conftest import programs
from tests.conftest import ROOT


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("shared", "shared_crawls", "shared_cycle") as imported:
        yield imported


def cycled(trips: float):
    return {
        "urls": 1000,
        "wall_s": 0.5,
        "cpu_s": 0.05,
        "server_cpu_s": 0.04,
        "trips": trips,
        "in_bytes": 3e5,
        "out_bytes": 2e5,
    }


def crawled(bench, rate: float, workers: int = 1, digest: str = "d"):
    return bench.shared_crawls.Crawled(
        pages=1000,
        workers=workers,
        span_s=1000 / rate / workers,
        cpu_s=1.5,
        server_cpu_s=0.05,
        trips=100,
        seen_bytes=9.0,
        digest=digest,
        bytes=34_000_000,
    )


@pytest.mark.parametrize(("trips", "holds"), [(24.0, True), (24.2, False)])
def test_the_round_trips_of_a_crawl_have_a_limit(bench, trips, holds):
    assert [each.holds for each in bench.shared.cycle_verdicts({"crawl": [cycled(trips)]})] == [holds]
    assert bench.shared.cycle_verdicts({"batch-50": [cycled(1000.0)]}) == []


def test_the_table_of_the_cycle_has_figures_per_url(bench):
    table = bench.shared.cycle_table({"crawl": [cycled(20.0), cycled(24.0), cycled(500.0)]})
    assert table.splitlines()[-1].endswith("| 2,000 | 50 | 40 | 1.20 | 300 | 200 |")


@pytest.mark.parametrize(("each", "holds"), [(15.0, True), (15.1, False)])
def test_the_memory_at_ten_million_urls_has_a_limit(bench, each, holds):
    full = bench.shared.FULL
    sizes = {"1000000": 99_000_000, str(full): int(each * full)}
    verdicts = bench.shared.memory_verdicts({"seen": {"sizes": sizes}})
    assert [verdict.holds for verdict in verdicts] == [holds]
    assert bench.shared.memory_verdicts({"seen": {"sizes": {"1000000": 99_000_000}}}) == []


@pytest.mark.parametrize(("lycosa_rate", "scrapy_rate", "holds"), [(800, 80, True), (799, 80, False)])
def test_crawls_with_the_same_number_of_workers_are_compared(bench, lycosa_rate, scrapy_rate, holds):
    found = {"lycosa-2": [crawled(bench, lycosa_rate, 2)], "scrapy-redis-2": [crawled(bench, scrapy_rate, 2)]}
    assert [verdict.holds for verdict in bench.shared.crawls_verdicts(found)] == [holds]
    assert bench.shared.crawls_verdicts({"lycosa-2": found["lycosa-2"]}) == []


def test_the_table_of_crawls_has_ratios_to_scrapy_redis(bench):
    found = {"lycosa-1": [crawled(bench, 800)], "lycosa-2": [crawled(bench, 600, 2)]}
    found |= {"scrapy-redis-1": [crawled(bench, 40)], "scrapy-redis-2": [crawled(bench, 50, 2)]}
    rows = {line.split(" | ")[0]: line for line in bench.shared.crawls_table(found).splitlines()}
    assert "| 1 | 800 | 1.50 | 0.05 | 5.0 | 9 | 20.0 |" in bench.shared.crawls_table(found)
    assert "| 2 | 600 | 1.50 | 0.05 | 5.0 | 9 | 12.0 |" in bench.shared.crawls_table(found)
    assert rows["| scrapy-redis"].endswith("| 1.0 |")


def test_the_document_has_every_marker():
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for name in ("cycle", "memory", "about", "crawls", "floors"):
        assert text.count(f"<!-- bench:shared-{name} -->\n") == text.count(f"<!-- /bench:shared-{name} -->\n") == 1


def test_the_crawled_pages_are_described(bench):
    pytest.importorskip("scrapy_redis", reason="needs the peers: scripts/venv bench")
    found = {"lycosa-1": [crawled(bench, 800)]}
    assert "1,000 pages of 34.0 kB on average; one run each" in bench.shared_crawls.about(found)


@pytest.mark.redis
@pytest.mark.parametrize("drive", ["batch-50", "crawl", "polite"])
def test_every_url_goes_through_the_cycle_once(bench, drive):
    parameters = bench.shared.DRIVES[drive]._asdict() | {"urls": 200}
    parameters |= {"hosts": 100, "delay_s": 0.1} if parameters["hosts"] else {}
    del parameters["name"]
    figures = bench.shared._step(**parameters)
    assert figures["urls"] == 200
    assert figures["trips"] > 0
    assert figures["server_cpu_s"] >= 0


@pytest.mark.redis
def test_an_interrupted_filling_continues(bench, tmp_path):
    options = argparse.Namespace(keep=tmp_path, seen=[1_000], limit=0.0)
    first = bench.shared._fill(options)
    options.seen = [1_000, 3_000]
    second = bench.shared._fill(options)
    assert (first["done"], second["done"], second["urls"]) == (1_000, 3_000, 2_000)
    assert set(second["sizes"]) == {"1000", "3000"}
