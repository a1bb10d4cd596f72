"""`bench/torrent_rules.py` with few names."""

from __future__ import annotations

from tests.bench.conftest import programs


def test_the_benchmark_measures_rates_and_counts_refused_names():
    with programs("torrent_rules") as imported:
        bench = imported.torrent_rules
        assert min(bench.speeds(300).values()) > 0
        assert bench.refused(500).total() <= 5
