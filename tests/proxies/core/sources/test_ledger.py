"""The sources of each proxy, and when it expires: a source that fails removes nothing."""

from __future__ import annotations

from dataclasses import replace

from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.core.sources.ledger import Ledger

A, B, C = (parse_proxy(f"10.0.0.{number}:80") for number in (1, 2, 3))


def tagged(proxy: Proxy, **tags: str) -> Proxy:
    return replace(proxy, tags=tags)


def test_only_new_and_changed_proxies_are_added() -> None:
    ledger = Ledger(["one"])
    assert ledger.update("one", [A, B], 0.0) == [A, B]
    assert ledger.update("one", [A, B], 1.0) == []
    assert ledger.update("one", [A, tagged(B, country="de")], 2.0) == [B]
    assert ledger.update("one", [A, replace(B, tags={"country": "de"}, price_gb=2.0)], 3.0) == [B]
    assert len(ledger._sources["one"].proxies) == 2


def test_proxies_no_longer_listed_expire() -> None:
    ledger = Ledger(["one"])
    ledger.update("one", [A, B], 0.0)
    ledger.update("one", [A], 100.0)
    assert ledger.pop_expired("one", 60.0, 159.0) == ([], [])
    assert ledger.pop_expired("one", 60.0, 160.0) == ([B.key], [])
    assert ledger.pop_expired("one", 60.0, 999.0) == ([], []), "each proxy expires once"


def test_nothing_expires_without_a_newer_list() -> None:
    ledger = Ledger(["one"])
    ledger.update("one", [A, B], 0.0)
    assert ledger.pop_expired("one", 0.0, 1e9) == ([], [])


def test_a_proxy_listed_again_in_time_stays() -> None:
    ledger = Ledger(["one"])
    ledger.update("one", [A, B], 0.0)
    ledger.update("one", [A], 10.0)
    assert ledger.update("one", [A, B], 20.0) == [B]
    assert ledger.pop_expired("one", 5.0, 1e9) == ([], [])


def test_a_proxy_that_a_second_source_still_lists_stays_and_gets_the_tags_of_that_source() -> None:
    ledger = Ledger(["one", "two"])
    mine, theirs = tagged(A, source="one"), tagged(A, source="two")
    assert ledger.update("one", [mine], 0.0) == [mine]
    assert ledger.update("two", [theirs], 0.0) == [], "the tags are those of the first source"
    ledger.update("one", [C], 10.0)
    keys, others = ledger.pop_expired("one", 5.0, 20.0)
    assert (keys, [dict(each.tags) for each in others]) == ([], [{"source": "two"}])
    ledger.update("two", [C], 30.0)
    assert ledger.pop_expired("two", 5.0, 40.0) == ([A.key], [])


def test_a_proxy_of_two_sources_expires_after_the_longer_time() -> None:
    ledger = Ledger(["one", "two"])
    for name in ("one", "two"):
        ledger.update(name, [A], 0.0)
        ledger.update(name, [C], 10.0)
    assert ledger.pop_expired("one", 5.0, 20.0) == ([], [])
    assert ledger.pop_expired("two", 50.0, 60.0) == ([A.key], [])


def test_proxies_that_could_not_be_added_are_added_again() -> None:
    ledger = Ledger(["one"])
    changed = ledger.update("one", [A, B], 0.0)
    ledger.not_added("one", changed[:1])
    assert ledger.update("one", [A, B], 1.0) == [A]
    assert ledger.update("one", [A, B], 2.0) == []


def test_an_incomplete_list_removes_nothing() -> None:
    ledger = Ledger(["one"])
    ledger.update("one", [A, B], 0.0)
    assert ledger.update("one", [A, C], 1.0, complete=False) == [C]
    assert ledger.pop_expired("one", 0.0, 1e9) == ([], [])
    assert len(ledger._sources["one"].proxies) == 3


def test_proxies_of_an_earlier_run_expire_only_after_a_list_without_them() -> None:
    ledger = Ledger(["one"])
    ledger.recall("one", [A.key, B.key])
    assert ledger.pop_expired("one", 0.0, 1e9) == ([], []), "the source has sent no list yet"
    ledger.update("one", [A], 100.0)
    assert ledger.pop_expired("one", 60.0, 159.0) == ([], [])
    assert ledger.pop_expired("one", 60.0, 160.0) == ([B.key], [])


def test_forgotten_proxies_are_added_again_while_they_are_listed() -> None:
    ledger = Ledger(["one", "two"])
    ledger.update("one", [A, B], 0.0)
    ledger.update("two", [B, C], 0.0)
    ledger.forgotten([A.key, B.key, C.key])
    assert ledger.update("one", [B], 1.0) == [B]
    assert [ledger.was_forgotten("one", each.key) for each in (A, B)] == [False, True]
    ledger.returned([B])
    assert ledger.update("two", [B, C], 1.0) == [C], "the first source has already added B"
    assert [ledger.was_forgotten("two", each.key) for each in (B, C)] == [False, True]
    ledger.returned([C])
    assert (ledger.update("one", [B], 2.0), ledger.update("two", [B, C], 2.0)) == ([], [])


def test_a_proxy_already_missing_or_recalled_when_it_is_forgotten_does_not_expire() -> None:
    ledger = Ledger(["one"])
    ledger.recall("one", [C.key])
    ledger.update("one", [A], 0.0, complete=False)
    ledger.forgotten([A.key, C.key])
    ledger.update("one", [B], 10.0)
    assert ledger.pop_expired("one", 0.0, 1e9) == ([A.key], []), (
        "A was still listed when it was forgotten, so it went missing later; removing it again is harmless"
    )
    ledger.update("one", [], 20.0)
    ledger.forgotten([B.key])
    assert ledger.pop_expired("one", 0.0, 1e9) == ([], [])


def test_an_incomplete_list_keeps_the_proxies_that_could_not_be_added() -> None:
    ledger = Ledger(["one"])
    ledger.update("one", [A, B], 0.0)
    ledger.not_added("one", [A, B])
    assert ledger.update("one", [A], 1.0, complete=False) == [A]
    assert ledger.update("one", [A, B], 2.0) == [B]
