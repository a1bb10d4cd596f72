"""Hints: the samplers and the peers of an infohash."""

from __future__ import annotations

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.crawler.core.hints import HINTS_MAX, PEERS_MAX, SAMPLERS_MAX, Hint, Hints

INFOHASH = b"h" * 20


def sampler(number: int, node_id: bytes = b"") -> Contact:
    return Contact(node_id or bytes([number]) * 20, pack(f"20.0.0.{number}", 6881))


def test_several_samplers_are_remembered_the_latest_first_each_once() -> None:
    hints = Hints()
    for number in (*range(1, SAMPLERS_MAX + 2), 5):
        hints.add(INFOHASH, sampler(number), None)
    latest = [5, *(number for number in range(SAMPLERS_MAX + 1, 1, -1) if number != 5)]
    assert hints.take(INFOHASH).samplers == tuple(map(sampler, latest))


def test_the_new_id_of_a_sampler_replaces_its_old_one() -> None:
    hints = Hints()
    hints.add(INFOHASH, sampler(1), None)
    hints.add(INFOHASH, sampler(1, b"n" * 20), None)
    assert hints.take(INFOHASH).samplers == (sampler(1, b"n" * 20),)


def test_the_latest_peers_are_remembered() -> None:
    hints = Hints()
    peers = [pack("30.0.0.1", port) for port in range(1, PEERS_MAX + 3)]
    for peer in peers:
        hints.add(INFOHASH, None, peer)
    assert hints.take(INFOHASH) == Hint((), tuple(peers[-PEERS_MAX:]))
    assert hints.take(INFOHASH) == Hint()


def test_an_infohash_that_will_be_tried_again_has_an_empty_hint() -> None:
    hints = Hints()
    assert INFOHASH not in hints
    hints.keep(INFOHASH)
    assert INFOHASH in hints
    hints.add(INFOHASH, sampler(1), None)
    hints.keep(INFOHASH)
    assert hints.take(INFOHASH).samplers == (sampler(1),)


def test_hints_are_bounded() -> None:
    hints = Hints()
    for number in range(HINTS_MAX + 10):
        hints.keep(number.to_bytes(20))
    assert (10).to_bytes(20) in hints
    assert (9).to_bytes(20) not in hints
