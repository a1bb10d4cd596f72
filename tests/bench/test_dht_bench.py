"""`bench/dht.py`: floors and tables."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest

from lycosa.dht.core.metadata.info import read_info
from tests.bench.conftest import programs
from tests.servers.seeders import canned


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("dht", "dht_metadata") as imported:
        yield imported


def run(rate: float):
    return {name: {"rate": rate, "cpu_us": 250.4, "peak_mb": 40.0} for name in ("lycosa", "libtorrent")}


@pytest.mark.parametrize(("rate", "holds"), [(500, True), (499, False)])
def test_metadata_fetches_have_a_floor(bench, rate, holds):
    runs = [run(9e9), run(rate), run(1)]
    assert [each.holds for each in bench.dht.verdicts(runs)] == [holds]
    table = bench.dht.table(runs, SimpleNamespace(size=20_000, fetches=4000))
    assert table.splitlines()[-2:] == [f"| {name} | {rate:,} | 250 | 40 |" for name in ("lycosa", "libtorrent")]


def test_each_peer_has_an_address_of_its_own(bench):
    assert len({bench.dht_metadata.address(number) for number in range(100_000)}) == 100_000


@pytest.mark.parametrize("size", [200, 1000, 16_384, 20_000, 40_001])
def test_canned_metadata_are_info_dicts_of_the_size_asked_for(size):
    metadata = canned(7, size)
    assert len(metadata) == size
    assert read_info(metadata).infohash_v1 == hashlib.sha1(metadata).digest()
