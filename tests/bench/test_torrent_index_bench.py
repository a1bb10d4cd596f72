"""`bench/torrent_index.py`: its floors."""

from __future__ import annotations

import pytest

from tests.bench.conftest import programs


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("torrent_index") as imported:
        yield imported


def test_a_slow_or_large_index_does_not_meet_its_floors(bench):
    module = bench.torrent_index
    ours, theirs = module.Build("Lycosa", 61.0, 100.0, 901.0, 300.0), module.Build("Sphinx", 60.0, 90.0, 900.0, 70.0)
    few = module.verdicts(ours, theirs, 1000, names_only=True)
    many = module.verdicts(ours, theirs, module.LARGE, names_only=True)
    assert [each.holds for each in few] == [False, False]
    assert [each.holds for each in many] == [False, False, False, False]
    assert all(each.holds for each in module.verdicts(theirs, ours, module.LARGE, names_only=True))
