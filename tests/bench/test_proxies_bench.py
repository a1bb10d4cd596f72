"""`bench/proxies.py`, `gateway.py` and `goodput.py`: floors and tables of the proxy pool (P1, P3-P6)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.bench.conftest import programs


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs("proxies", "gateway", "goodput") as imported:
        yield imported


@pytest.mark.parametrize(("micros", "holds"), [(30.0, True), (30.1, False)])
def test_the_time_of_a_lease_in_memory_has_a_limit(bench, micros, holds):
    found = {"plain": [1.0, micros, 99.0], "million": [500.0]}
    assert [each.holds for each in bench.proxies.memory_verdicts(found)] == [holds]
    assert bench.proxies.memory_table(found).splitlines()[-1] == "| any of 1,000,000 proxies | 500.0 |"


@pytest.mark.parametrize(("rate", "holds"), [(10_000, True), (9_999, False)])
def test_leases_on_redis_have_a_floor(bench, rate, holds):
    found = {"lycosa-1": [{"rate": rate, "server_us": 40.04, "client_us": 60.0, "trips": 0.05}]}
    assert [each.holds for each in bench.proxies.redis_verdicts(found)] == [holds]
    assert bench.proxies.redis_table(found).splitlines()[-1].endswith(f"| {rate:,} | 40.0 | 60.0 | 0.05 |")


@pytest.mark.parametrize(
    ("name", "good", "bad"), [("rate", 3_000, 2_999), ("added_ms", 2.0, 2.1), ("mb", 500, 499), ("open", 1_000, 999)]
)
def test_the_forward_proxy_has_floors(bench, name, good, bad):
    passing = {"rate": 9e9, "added_ms": 0.0, "mb": 9e9, "open": 9e9}
    assert all(each.holds for each in bench.gateway.verdicts([{**passing, name: good}]))
    assert [each.holds for each in bench.gateway.verdicts([{**passing, name: bad}])].count(False) == 1


def crawled(goodput: float, lost: int = 0, rise: float = 1.0):
    return {"goodput": goodput, "took_s": 1.0, "requests": 9, "success": 0.9, "lost": lost, "rise": rise}


@pytest.mark.parametrize(
    ("lycosa", "holds"),
    [
        (crawled(20.0), [True, True, True, True]),
        (crawled(19.9), [True, True, True, False]),
        (crawled(20.0, lost=1), [False, True, True, True]),
        (crawled(20.0, rise=1.06), [True, False, True, True]),
    ],
)
def test_crawls_have_floors(bench, lycosa, holds):
    found = {"lycosa": [lycosa], "in-turn": [crawled(2.0)], "back-off": [crawled(10.0, lost=3)]}
    assert [each.holds for each in bench.goodput.verdicts(found)] == holds
    assert "| random with back-off | 10.0 | 1 | 9 | 90.0% | 3 | 1.00 |" in bench.goodput.table(found)


def test_goodput_counts_distinct_pages_and_final_answers(bench):
    """There are two proxies, one of which is lost. A repeated page counts once, and a 404 is a final answer."""
    bench.goodput.PROXIES = 2

    def hit(at_: float, path: str, status: int, ip: str = "a"):
        return SimpleNamespace(at=at_, site=0, path=path, status=status, good=status == 200, ip=ip)

    hits = [hit(0.0, "/", 200), hit(1.0, "/1", 200), hit(2.0, "/1", 200), hit(3.0, "/x", 404), hit(4.0, "/2", 403, "b")]
    figures = bench.goodput._figures(SimpleNamespace(hits=hits), {"b"}, 3)
    assert (figures["goodput"], figures["requests"], figures["success"], figures["lost"]) == (1.0, 5, 0.8, 1)
