"""The frontier benchmark: its workload is as specified, every contender completes a small run, and lost URLs are
detected (issue 3, Proof; F3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from lycosa.app.crawl.workers import GC_THRESHOLD
from lycosa.core.url import canonicalize, host_key
from tests.bench.conftest import programs
from tests.conftest import PROVE, ROOT

URLS = 20_000
SLOW_S = 0.2
"""Peers that do not finish are stopped after this time."""

OURS = ["lycosa", "interpreted", "memory", "lmdb", "sqlite"] + (
    ["lycosa-sync", "lmdb-sync", "sqlite-sync"] if PROVE else []
)
PEERS = ["scrapy", "crawlee"] + (["scrapy-sqlite"] if PROVE else [])

PACKAGES = {"scrapy": "scrapy", "crawlee": "sqlalchemy"}


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("cycle", "frontier", "workload", "report", "race") as imported:
        yield imported


def run(tmp_path, *arguments):
    """Run the benchmark. Return its exit code, its output, its errors, and its figures."""
    figures = tmp_path / "figures.json"
    options = ["--folder", str(tmp_path), "--json", str(figures), "--limit", str(SLOW_S), *arguments]
    command = [sys.executable, str(ROOT / "bench" / "frontier.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr, json.loads(figures.read_text())


def test_two_fifths_of_the_pushed_urls_are_duplicates(bench):
    workload = bench.workload.Workload(3_000)
    known: set[str] = set()
    pushed = 0
    for batch in workload.batches():
        assert len(batch.pages) == bench.workload.BATCH
        fresh = {page.url for page in batch.pages} - known
        assert len(fresh) == batch.new
        known |= fresh
        pushed += len(batch.pages)
    assert (len(known), pushed) == (3_000, 5_000)
    assert [page for batch in workload.batches() for page in batch.pages][:100] == [
        page for batch in bench.workload.Workload(3_000).batches() for page in batch.pages
    ][:100]


def test_pages_are_canonical_and_hosts_follow_zipf(bench):
    workload = bench.workload.Workload(URLS)
    pages = [workload.page(number) for number in range(URLS)]
    assert all(page == (canonicalize(page.url), host_key(page.url)) for page in pages)
    assert len({page.url for page in pages}) == URLS
    assert 45 <= workload.mean_length() <= 60
    hosts = [count for _, count in Counter(page.host for page in pages).most_common()]
    assert hosts[0] / URLS == pytest.approx(1 / 9.79, rel=0.1)  # 9.79 is the 10,000th harmonic number
    assert hosts[0] / hosts[9] == pytest.approx(10, rel=0.3)


def test_rates_are_computed_for_tenths_of_a_run(bench):
    assert bench.cycle.rates([(10, 1.0)] * 10 + [(10, 2.0)] * 10) == [10.0] * 5 + [5.0] * 5
    assert bench.cycle.rates([(100, 4.0)]) == [25.0]


def test_the_garbage_collector_has_the_threshold_of_a_crawl(bench):
    assert bench.cycle.GC_THRESHOLD == GC_THRESHOLD


@pytest.mark.parametrize("key", OURS)
def test_a_frontier_completes_all_phases(tmp_path, key):
    arguments = ("--only", key, "--urls", str(URLS), "--pending", "5000", "--limit", "60")
    code, out, err, [figures] = run(tmp_path, *arguments)
    assert code == 0, err
    cycle, pending = figures["cycle"], figures["pending"]
    assert cycle["urls"] == URLS
    assert cycle["count"] == pytest.approx(URLS / 0.6, abs=50)
    assert cycle["wall_s"] > 0
    assert cycle["cpu_s"] > 0
    assert cycle["peak_mb"] >= cycle["base_mb"]
    if key != "memory":
        assert cycle["disk"] / cycle["urls"] > 20
        assert cycle["killed"]["forgotten"] == cycle["closed"]["forgotten"] == 0
        assert pending["killed"]["leases"] == pending["closed"]["leases"] == 50
        assert pending["drain"]["count"] == pending["urls"] == 5000
    assert f"| {pending['urls']:,} |" in out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("frontier-")], "the state is removed"


@pytest.mark.parametrize("key", PEERS)
def test_a_peer_runs_until_the_time_limit(tmp_path, key):
    package = PACKAGES[key.partition("-")[0]]
    if find_spec(package) is None:  # only installed for `make bench`
        pytest.skip(f"{package} is not installed (scripts/venv bench)")
    phases = () if PROVE else ("--phase", "cycle")
    code, out, err, [figures] = run(tmp_path, "--only", key, "--urls", str(URLS), "--pending", "1000", *phases)
    assert code == 0, err
    assert "failed" not in out
    assert 0 < figures["cycle"]["urls"] <= URLS
    assert figures["cycle"]["count"] == pytest.approx(figures["cycle"]["urls"] / 0.6, abs=50)
    if PROVE:  # Scrapy's queue is lost by kill -9, as the docstring of bench/peers/frontier_scrapy.py says
        assert figures["pending"]["killed"]["leases"] == (0 if key.startswith("scrapy") else 50)


def test_every_contender_is_tested(bench):
    tested = {*OURS, *PEERS} if PROVE else {*OURS, *PEERS, "lycosa-sync", "lmdb-sync", "sqlite-sync", "scrapy-sqlite"}
    assert {each.key for each in bench.frontier.CONTENDERS} == tested


def test_a_contender_that_did_not_finish_is_not_run_with_more_urls(bench):
    runs = []

    def fake_run(contender, urls):
        runs.append((contender.key, urls))
        return bench.frontier.Result(contender.key, urls, {"cut": contender.key == "crawlee"}, {})

    contenders = [each for each in bench.frontier.CONTENDERS if each.key in {"lmdb", "crawlee"}]
    results = bench.frontier.measure(fake_run, contenders, [10, 100])
    assert runs == [("lmdb", 10), ("crawlee", 10), ("lmdb", 100)]
    assert [(each.key, each.size) for each in results] == [
        ("lmdb", 10),
        ("crawlee", 10),
        ("lmdb", 100),
        ("crawlee", 100),
    ]


def test_several_sizes_are_run_and_a_profile_is_printed(tmp_path):
    arguments = (
        "--only",
        "memory",
        "--phase",
        "cycle",
        "--urls",
        "600",
        "--urls",
        "1_200",
        "--profile",
        "--limit",
        "60",
    )
    code, out, err, figures = run(tmp_path, *arguments)
    assert code == 0, err
    assert [each["cycle"]["urls"] for each in figures] == [600, 1200]
    assert "**600 URLs**" in out
    assert "**1,200 URLs**" in out
    assert "Ordered by: internal time" in err


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("pass", ""),
        ("async def commit(self): pass", "forgotten': 50"),
        ("async def ack(self, leases, now): await super().ack(leases[1:], now)", "left': 50"),
        ("async def push(self, batch): return await super().push(batch[1:])", "29 URLs of a batch counted as new"),
        ("async def lease(self, limit, now): return (await super().lease(limit, now))[1:]", "were leased and acked"),
    ],
)
def test_a_frontier_that_loses_urls_gives_no_result(bench, tmp_path, monkeypatch, capfd, change, complaint):
    peers = tmp_path / "peers"
    peers.mkdir()
    (peers / "lossy.py").write_text(f"from frontier_lmdb import Peer as Lmdb\nclass Peer(Lmdb):\n    {change}\n")
    monkeypatch.setenv("PYTHONPATH", f"{peers}:{os.environ.get('PYTHONPATH', '')}")
    options = {"folder": tmp_path, "phase": ["cycle"], "limit": 0, "commit_acks": 256, "commit_every": 0.1}
    racing = bench.frontier.Bench(SimpleNamespace(**options, profile=False))
    result = racing.run(bench.frontier.Contender("lossy", "", "lossy"), 3_000)
    assert bool(result.problem) == bool(complaint)
    assert complaint in capfd.readouterr().err


def test_lost_pending_urls_give_no_result(bench, tmp_path, monkeypatch, capfd):
    peers = tmp_path / "peers"
    peers.mkdir()
    (peers / "lossy.py").write_text(
        "from frontier_lmdb import Peer as Lmdb\n"
        "class Peer(Lmdb):\n"
        "    async def open(self):\n"
        "        await super().open()\n"
        "        await self.ack(await super().lease(1, 0), 0)\n"
        "        await self.commit()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{peers}:{os.environ.get('PYTHONPATH', '')}")
    options = {"folder": tmp_path, "phase": ["pending"], "pending": 1_000, "limit": 0, "commit_acks": 256}
    racing = bench.frontier.Bench(SimpleNamespace(**options, commit_every=0.1, profile=False))
    assert racing.run(bench.frontier.Contender("lossy", "", "lossy"), 1_000).problem
    assert "997 of 1,000 pending URLs are left after kill -9" in capfd.readouterr().err


def figures_of(speed=200_000, slope=1.0, peak_mb=100, archived=100, lease_s=0.5, urls=10_000_000):
    opened = {"lease_s": lease_s, "leases": 50}
    both = {"count": urls, "wall_s": urls / speed, "cpu_s": 1.0, "rates": [100.0, 100.0 * slope], "peak_mb": peak_mb}
    return both | {"urls": urls, "disk": archived * urls, "cut": False, "killed": opened, "closed": opened}


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, []),
        ({"speed": 149_000}, ["pushed URLs/s"]),
        ({"peak_mb": 401}, ["MB of anonymous memory"]),
        ({"archived": 121}, ["per archived URL"]),
        ({"lease_s": 2.1}, ["s to a first lease"]),
        ({"urls": 100_000_000, "speed": 90_000, "peak_mb": 2_400, "slope": 0.61}, []),
        ({"urls": 100_000_000, "slope": 0.59}, ["of the speed at the start"]),
        ({"urls": 100_000_000, "peak_mb": 2_501}, ["MB of anonymous memory"]),
        ({"urls": 1_000_000, "speed": 1}, []),
    ],
)
def test_verdicts_on_the_floors(bench, change, failing):
    figures = figures_of(**change)
    verdicts = bench.frontier.verdicts([bench.frontier.Result("lycosa", figures["urls"], figures, {})])
    failed = [each.line for each in verdicts if not each.holds]
    assert len(failed) == len(failing)
    assert all(part in line for part, line in zip(failing, failed, strict=True))
    assert bool(verdicts) == (figures["urls"] >= 10_000_000)


def test_verdicts_on_the_floors_of_pending_urls(bench):
    pending = figures_of(urls=1_000_000, archived=351, lease_s=2.5)
    verdicts = bench.frontier.verdicts([bench.frontier.Result("lycosa", 10_000_000, {}, pending)])
    assert [each.holds for each in verdicts] == [False, False]


def test_the_table_has_the_speed_relative_to_the_peers(bench):
    results = [
        bench.frontier.Result("lycosa", 1000, figures_of(urls=1000), {}),
        bench.frontier.Result("sqlite", 1000, figures_of(speed=50_000, urls=1000), {}),
        bench.frontier.Result("crawlee", 1000, {}, {}, "cycle ended with 1"),
    ]
    table = bench.frontier.cycle_table(results, 1000).splitlines()
    assert len({line.count("|") for line in table if line.startswith("|")}) == 1
    assert next(line for line in table if line.startswith("| SQLite")).endswith("| 4.0 x |")
    assert "| crawlee, its SQL queue | failed |" in "\n".join(table)


def test_the_document_has_every_marker():
    document = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("about", "cycle", "pending", "floors"):
        counts = [document.count(f"<!-- {slash}bench:frontier-{name} -->\n") for slash in ("", "/")]
        assert counts == [1, 1], name
