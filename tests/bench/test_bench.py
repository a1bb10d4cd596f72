"""`make bench`: its floors, tables and budgets are correct, and contenders that did different work are detected."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.bench.conftest import programs
from tests.conftest import ROOT


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("budget", "race", "report") as imported:
        yield imported


def run_of(bench, rate=100.0, peak_mb=100.0, digest="d", **others):
    figures = {"span_s": 8.0, "cpu_s": 9.0, "requests": 1000, "text_chars": 5000, "bytes": 30_000_000, **others}
    return bench.race.Run(pages=1000, wall_s=1000 / rate, peak_mb=peak_mb, digest=digest, **figures)


@pytest.mark.parametrize(
    ("durable", "memory", "scrapy", "peak_mb", "holds"),
    [
        (1200, 1300, 100, 200, [True, True, True]),
        (1199, 1300, 100, 200, [False, True, True]),
        (2000, 2601, 100, 200, [True, False, True]),
        (1200, 1300, 100, 200.1, [True, True, False]),
    ],
)
def test_verdicts_on_the_floors(bench, durable, memory, scrapy, peak_mb, holds):
    results = {
        "durable": [run_of(bench, durable, peak_mb)],
        "memory": [run_of(bench, memory)],
        "scrapy": [run_of(bench, scrapy)],
    }
    assert [each.holds for each in bench.report.verdicts(results)] == holds


def test_verdicts_use_the_median_speed_and_the_worst_memory(bench):
    durable = [run_of(bench, rate, peak_mb) for rate, peak_mb in ((900, 201), (1300, 50), (1400, 50))]
    verdicts = bench.report.verdicts({"durable": durable, "scrapy": [run_of(bench, 100)]})
    assert [each.holds for each in verdicts] == [True, False]
    assert "13.0 times" in verdicts[0].line


def test_a_floor_without_its_contenders_has_no_verdict(bench):
    assert len(bench.report.verdicts({"durable": [run_of(bench)]})) == 1
    assert bench.report.verdicts({"scrapy": [run_of(bench)]}) == []


def test_a_contender_that_fetched_other_pages_is_named(bench):
    results = {"durable": [run_of(bench)] * 2, "scrapy": [run_of(bench), run_of(bench, digest="other")]}
    assert [line.split()[0] for line in bench.report.differing(results)] == ["scrapy"]


def test_the_table_has_ratios_to_scrapy(bench):
    table = bench.report.table({"durable": [run_of(bench, 1500, cpu_s=0.9)], "scrapy": [run_of(bench, 100, cpu_s=9.0)]})
    assert "| **Lycosa**, durable frontier | 1,500 | 125 | 0.90 | 100 | 15.0 | 1/10.0 |" in table


def test_blocks_between_markers_are_replaced(bench, tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text("a\n<!-- bench:one -->\nold\n<!-- /bench:one -->\nz\n")
    for text in ("new", "newer"):
        bench.report.write(document, {"one": text})
        assert document.read_text() == f"a\n<!-- bench:one -->\n\n{text}\n\n<!-- /bench:one -->\nz\n"
    with pytest.raises(ValueError, match="two"):
        bench.report.write(document, {"two": ""})


def test_the_document_has_every_marker():
    document = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("about", "results", "floors", "checks", "budget"):
        assert document.count(f"<!-- bench:{name} -->\n") == document.count(f"<!-- /bench:{name} -->\n") == 1


def test_every_timed_part_exists(bench):
    for part in bench.budget.PARTS:
        owner, name = bench.budget.resolve(part)
        assert callable(getattr(owner, name)), part


def test_the_time_of_a_nested_part_is_subtracted_from_the_outer_one(bench):
    now = iter(range(100))  # every reading of the clock takes one second
    ledger = bench.budget.Ledger(lambda: float(next(now)))
    inner = ledger.timed(lambda: None, "inner")
    ledger.timed(lambda: (inner(), inner()), "outer")()
    assert ledger.spent == {"": 1.0, "outer": 3.0, "inner": 2.0}


def test_a_coroutine_is_timed_only_while_it_runs(bench):
    now = [0.0]
    ledger = bench.budget.Ledger(lambda: now[0])

    async def works(gate):
        now[0] += 1
        await gate.wait()
        now[0] += 2
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        now[0] += 4
        return "result"

    async def main():
        gate = asyncio.Event()
        task = asyncio.create_task(ledger.timed(works, "part")(gate))
        await asyncio.sleep(0)
        now[0] += 1000
        gate.set()
        return await task

    assert asyncio.run(main()) == "result"
    assert ledger.spent["part"] == 7.0


def test_the_parts_of_the_budget_add_up_to_the_time_of_the_process(bench):
    times = {"spent": {bench.budget.PARSE: 3.0, "": 9.0}, "cpu_started_s": 1.0, "cpu_ended_s": 11.0, "clocks_s": 0.5}
    parts = {part.name: part.micros for part in bench.budget.rows(times, 12.0, 1000)}
    assert sum(parts.values()) == pytest.approx(11.5 / 1000 * 1e6)
    assert parts[bench.budget.START] == pytest.approx(2000)
    assert parts[bench.budget.LOOP] == pytest.approx(6500)


PEER = """
import json, sys, urllib.request
items, start = sys.argv[1:]
fields = {fields}
with open(items, "w") as file:
    for name in {fetched}:
        url = start.rpartition("/")[0] + "/" + name
        urllib.request.urlopen(url).read()
    for name in {written}:
        url = start.rpartition("/")[0] + "/" + name
        print(json.dumps(dict.fromkeys(fields, "") | {{"url": url}}), file=file)
sys.exit({code})
"""


@pytest.mark.nginx
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"written": ["a.html"]}, "differ in 1 pages"),
        ({"fetched": ["a.html", "b.html", "b.html"]}, "differ in 1 pages"),
        ({"written": ["a.html", "b.html", "b.html"]}, "1 pages twice"),
        ({"written": []}, "no items"),
        ({"fields": ["url", "text"]}, "other fields"),
        ({"code": 7}, "ended with 7"),
    ],
)
def test_a_peer_that_does_different_work_gives_no_result(bench, tmp_path, monkeypatch, changes, complaint):
    from tests.servers.nginx import serve

    if complaint and "differ in" in complaint:  # the log never becomes complete
        monkeypatch.setattr(bench.race, "LOG_MAX_S", 1.5)
    site = tmp_path / "site"
    site.mkdir()
    for name in ("a.html", "b.html"):
        (site / name).write_text("<p>text")
    both = ["a.html", "b.html"]
    peer = tmp_path / "peer.py"
    parameters = {"fields": sorted(bench.race.FIELDS), "fetched": both, "written": both, "code": 0, **changes}
    peer.write_text(PEER.format(**parameters))
    log = tmp_path / "access.log"
    log.touch()
    with serve(site, log=False, extra=f'access_log "{log}" json;') as server:
        core = min(os.sched_getaffinity(0))
        track = bench.race.Track(server.url, ["a.html"], Path(log), core, tmp_path)
        contender = bench.race.Contender("peer", "", (str(peer),))
        if complaint is None:
            ballast = b"x" * (256 << 20)  # memory of this process must not count
            run = track.run(contender)
            del ballast
            assert (run.pages, run.requests, run.bytes) == (2, 2, 14)
            assert 1 < run.peak_mb < 200
            assert run.cpu_s > 0
            assert json.dumps(run.as_dict())
        else:
            with pytest.raises(bench.race.BadRun, match=complaint):
                track.run(contender)
