"""`bench/torrent_rules.py` with few names."""

from __future__ import annotations

from tests.bench.conftest import programs


def test_it_measures_rates_and_counts_what_is_refused():
    with programs("torrent_rules") as imported:
        bench = imported.torrent_rules
        assert min(bench.speeds(300).values()) > 0
        assert bench.refused(500).total() <= 5
