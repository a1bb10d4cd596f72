"""`bench/dht.py`: floors and tables."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from types import SimpleNamespace

import pytest

from lycosa.dht.core.krpc import Query, decode_message
from lycosa.dht.core.metadata.info import read_info
from tests.bench.conftest import programs
from tests.servers.seeders import canned


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("dht", "dht_metadata", "dht_queries") as imported:
        yield imported


def run(rate: float):
    return {name: {"rate": rate, "cpu_us": 250.4, "peak_mb": 40.0} for name in ("lycosa", "libtorrent")}


@pytest.mark.parametrize(("rate", "holds"), [(500, True), (499, False)])
def test_metadata_fetches_have_a_floor(bench, rate, holds):
    runs = [run(9e9), run(rate), run(1)]
    assert [each.holds for each in bench.dht.verdicts(runs)] == [holds]
    table = bench.dht.table(runs, SimpleNamespace(size=20_000, fetches=4000))
    assert table.splitlines()[-2:] == [f"| {name} | {rate:,} | 250 | 40 |" for name in ("lycosa", "libtorrent")]


def asked(cpu_us: float, memory_mb: float = 40.0):
    answering = {name: {"rate": 30_000.4, "cpu_us": cpu_us, "bytes": 298.0} for name in ("lycosa", "libtorrent")}
    return {**answering, "lookups": {"rate": 1234}, "idle": {"cpu_percent": 0.1, "memory_mb": memory_mb}}


@pytest.mark.parametrize(("cpu_us", "memory_mb", "holds"), [(50, 60, [True, True]), (51, 61, [False, False])])
def test_the_costs_of_a_query_and_of_an_idle_node_have_limits(bench, cpu_us, memory_mb, holds):
    runs = [asked(1), asked(cpu_us, memory_mb), asked(900, 900)]
    assert [each.holds for each in bench.dht.queries_verdicts(runs)] == holds
    table = bench.dht.queries_table(runs).splitlines()
    assert table[2] == f"| lycosa | 30,000 | {cpu_us}.0 | 298 |"
    assert table[-1] == f"Lookups: 1,234/s. Idle: {memory_mb} MB and 0.10 % of a core."


def test_the_generator_makes_a_fixed_mix_of_three_kinds_of_valid_queries(bench):
    packets = bench.dht_queries.queries(random.Random(1))
    methods = Counter(message.method for each in packets[:100] if isinstance(message := decode_message(each), Query))
    assert methods == {b"find_node": 48, b"get_peers": 48, b"ping": 4}


def test_each_peer_has_an_address_of_its_own(bench):
    assert len({bench.dht_metadata.address(number) for number in range(100_000)}) == 100_000


@pytest.mark.parametrize("size", [200, 1000, 16_384, 20_000, 40_001])
def test_canned_metadata_are_info_dicts_of_the_size_asked_for(size):
    metadata = canned(7, size)
    assert len(metadata) == size
    assert read_info(metadata).infohash_v1 == hashlib.sha1(metadata).digest()
