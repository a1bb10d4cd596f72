"""`bench/records.py`: floors, table, and a small run."""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.conftest import programs


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("records") as imported:
        yield imported.records


AT = {"rate": 3000.4, "cpu_us": 250.4, "get_ms": 0.111, "get_99_ms": 2.0, "check_ms": 3.0, "check_99_ms": 4.0}


@pytest.mark.parametrize(
    ("each", "state", "holds"), [(600, 1000, [True, True]), (601, 999, [False, True]), (600, 1001, [True, False])]
)
def test_the_sizes_of_a_record_and_of_the_whole_state_have_limits(bench, each, state, holds):
    runs = {"sqlite": {**AT, "bytes": each}, "postgresql": {**AT, "bytes": 2000}}
    assert [verdict.holds for verdict in bench.verdicts(runs, {"all": state})] == holds
    lines = bench.table(runs, 1_000_000).splitlines()
    assert lines[4] == f"| sqlite | 3,000 | 250 | {each} | 0.11 (2.00) | 3.0 (4.0) |"


def test_a_small_store_is_measured(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figures = asyncio.run(bench.measure("sqlite", 300))
    assert figures["rate"] > 0
    assert figures["bytes"] > 300
    state = asyncio.run(bench.measure_state(100))
    assert state["all"] > state["torrents.sqlite: torrents"] > 300
    assert list(tmp_path.iterdir()) == []
