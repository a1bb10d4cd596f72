"""Metadata from the pieces of several peers, honest and dishonest ones."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.metadata.assembly import Assembly, has_infohash
from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.wire import PIECE_BYTES

METADATA = random.Random(1).randbytes(40_000)
V1, V2 = hashlib.sha1(METADATA).digest(), hashlib.sha256(METADATA).digest()


def pieces(metadata: bytes) -> list[bytes]:
    return [metadata[at : at + PIECE_BYTES] for at in range(0, len(metadata), PIECE_BYTES)]


RIGHT = pieces(METADATA)
WRONG = pieces(bytes(40_000))


def joined(*peers: str, infohash: bytes = V1) -> Assembly:
    assembly = Assembly(infohash)
    for peer in peers:
        assembly.add_peer(peer, len(METADATA))
    return assembly


@pytest.mark.parametrize("infohash", [V1, V2[:20], V2], ids=["version 1", "version 2 truncated", "version 2"])
def test_one_peer_delivers_all(infohash):
    assembly = joined("a", infohash=infohash)
    assert assembly.assign("a", 8) == [0, 1, 2]
    assert [assembly.receive("a", piece, RIGHT[piece]) for piece in (2, 0, 1)] == [None, None, METADATA]


def test_hashes_of_other_lengths_or_bytes_do_not_match():
    assert not has_infohash(METADATA, bytes(20))
    assert not has_infohash(METADATA, bytes(32))
    assert not has_infohash(METADATA, V1 + bytes(12))


def test_several_peers_share_the_pieces():
    assembly = joined("a", "b")
    assert (assembly.assign("a", 2), assembly.assign("b", 2), assembly.assign("b", 1)) == ([0, 1], [2], [])
    assembly.receive("b", 2, RIGHT[2])
    assembly.receive("a", 0, RIGHT[0])
    assert assembly.receive("a", 1, RIGHT[1]) == METADATA


def test_the_pieces_of_a_lost_peer_go_to_others_and_what_it_delivered_stays():
    assembly = joined("a", "b")
    assembly.assign("a", 3)
    assembly.receive("a", 1, RIGHT[1])
    assembly.remove_peer("a")
    assert sorted(assembly.assign("b", 3)) == [0, 2]
    assembly.receive("b", 0, RIGHT[0])
    assert assembly.receive("b", 2, RIGHT[2]) == METADATA


def test_a_rejected_piece_is_requested_from_another_peer_only():
    assembly = joined("a", "b")
    assembly.assign("a", 1)
    assembly.reject("a", 0)
    assert (assembly.assign("a", 1), assembly.assign("b", 1)) == ([1], [0])


def test_a_peer_that_rejects_everything_fails():
    assembly = joined("a")
    for piece in assembly.assign("a", 3)[:2]:
        assembly.reject("a", piece)
    with pytest.raises(PeerError) as error:
        assembly.reject("a", 2)
    assert error.value.reason is PeerFailure.NO_METADATA


def test_a_wrong_hash_of_one_peer_bans_it_and_discards_all():
    assembly = joined("liar", "b")
    for piece in assembly.assign("liar", 3)[:2]:
        assembly.receive("liar", piece, WRONG[piece])
    with pytest.raises(PeerError) as error:
        assembly.receive("liar", 2, WRONG[2])
    assert error.value.reason is PeerFailure.WRONG_HASH
    assert assembly.held_bytes == 0
    assert assembly.assign("liar", 3) == []
    assert assembly.assign("b", 3) == [0, 1, 2]
    assert [assembly.receive("b", piece, RIGHT[piece]) for piece in range(3)][-1] == METADATA


def test_after_a_wrong_hash_of_several_peers_each_has_to_deliver_alone():
    assembly = joined("honest", "liar")
    assembly.assign("honest", 2)
    assembly.assign("liar", 1)
    assembly.receive("honest", 0, RIGHT[0])
    assembly.receive("honest", 1, RIGHT[1])
    assert assembly.receive("liar", 2, WRONG[2]) is None
    assert assembly.assign("liar", 8) == [0, 1, 2]
    assert assembly.assign("honest", 8) == [], "one at a time"
    for piece in (0, 1):
        assembly.receive("liar", piece, WRONG[piece])
    with pytest.raises(PeerError):
        assembly.receive("liar", 2, WRONG[2])
    assert assembly.assign("honest", 8) == [0, 1, 2]
    assert [assembly.receive("honest", piece, RIGHT[piece]) for piece in range(3)][-1] == METADATA


def test_pieces_of_a_peer_that_delivered_alone_and_left_are_discarded():
    assembly = joined("a", "b", "c")
    for peer, piece in (("a", 0), ("b", 1), ("c", 2)):
        assert assembly.assign(peer, 1) == [piece]
        assembly.receive(peer, piece, WRONG[piece])
    assert assembly.assign("a", 2) == [0, 1]
    assembly.receive("a", 0, WRONG[0])
    assembly.remove_peer("a")
    assert (assembly.held_bytes, assembly.assign("b", 8)) == (0, [0, 1, 2])


def one_delivers_alone() -> Assembly:
    """Peers a and b together had a wrong hash. Now all pieces are requested from "honest"."""
    assembly = joined("a", "b", "honest")
    assert (assembly.assign("a", 2), assembly.assign("b", 1)) == ([0, 1], [2])
    for peer, piece in (("a", 0), ("a", 1), ("b", 2)):
        assembly.receive(peer, piece, WRONG[piece])
    assert assembly.assign("honest", 8) == [0, 1, 2]
    return assembly


def test_a_late_piece_does_not_mix_with_those_of_the_peer_that_delivers_alone():
    assembly = one_delivers_alone()
    assembly.receive("honest", 0, RIGHT[0])
    assert assembly.receive("a", 0, WRONG[0]) is None
    assembly.receive("honest", 1, RIGHT[1])
    assert assembly.receive("honest", 2, RIGHT[2]) == METADATA


def test_a_late_rejection_does_not_free_a_piece_of_the_peer_that_delivers_alone():
    assembly = one_delivers_alone()
    with pytest.raises(PeerError):
        assembly.reject("a", 1)
    assembly.receive("honest", 0, RIGHT[0])
    assert assembly.assign("honest", 8) == []


def test_peers_that_claim_another_size_are_kept_apart():
    assembly = joined("a")
    assembly.add_peer("liar", 20_000)
    assert (assembly.assign("liar", 8), assembly.assign("a", 8)) == ([0, 1], [0, 1, 2])
    assembly.receive("liar", 0, WRONG[0])
    with pytest.raises(PeerError):
        assembly.receive("liar", 1, bytes(3_616))
    assert [assembly.receive("a", piece, RIGHT[piece]) for piece in range(3)][-1] == METADATA


def test_held_bytes_count_received_and_requested_pieces():
    assembly = joined("a", "b")
    assembly.assign("a", 2)
    assert assembly.held_bytes == 2 * PIECE_BYTES
    assembly.receive("a", 0, RIGHT[0])
    assert assembly.held_bytes == 2 * PIECE_BYTES
    assembly.remove_peer("a")
    assert assembly.held_bytes == PIECE_BYTES


def test_a_lost_peer_leaves_no_trace_of_its_size():
    assembly = Assembly(V1)
    for size in range(1, 1000):
        assembly.add_peer("liar", size)
        assembly.assign("liar", 8)
        assembly.remove_peer("liar")
    assert assembly._candidates == {}


def test_pieces_of_lost_peers_are_bounded():
    assembly = joined("a")
    for number, peer in enumerate(("b", "c", "d", "e")):
        assembly.add_peer(peer, 100_000 + number)
        for piece in assembly.assign(peer, 2 + number % 3):
            assembly.receive(peer, piece, bytes(PIECE_BYTES))
        assembly.remove_peer(peer)
    assert assembly.held_bytes == 4 * PIECE_BYTES, "without peers, only the candidate with the most pieces is kept"
    assert assembly.assign("a", 8) == [0, 1, 2]


@given(st.randoms(use_true_random=False), st.integers(0, 4), st.integers(1, 3))
def test_honest_peers_win_whatever_the_others_do(chance: random.Random, liars: int, honest: int):
    """Peers answer in any order, lie, reject, and leave. One honest peer that stays is enough."""
    assembly = Assembly(V1)
    alive = [f"liar {n}" for n in range(liars)] + [f"honest {n}" for n in range(honest)]
    for peer in alive:
        assembly.add_peer(peer, len(METADATA) - (peer.startswith("liar") and chance.random() < 0.3))
    open_requests: list[tuple[str, int]] = []
    for _ in range(500):
        for peer in alive:
            open_requests += [(peer, piece) for piece in assembly.assign(peer, chance.randint(1, 3))]
        assert open_requests, "somebody is always asked"
        peer, piece = open_requests.pop(chance.randrange(len(open_requests)))
        if chance.random() < 0.1 and peer != "honest 0":
            assembly.remove_peer(peer)
            alive.remove(peer)
        else:
            try:
                lies = peer.startswith("liar") and chance.random() < 0.7
                if lies and chance.random() < 0.3:
                    assembly.reject(peer, piece)
                elif (done := assembly.receive(peer, piece, (WRONG if lies else RIGHT)[piece])) is not None:
                    assert done == METADATA
                    return
            except PeerError:
                assert peer.startswith("liar")
                assembly.remove_peer(peer)
                alive.remove(peer)
        open_requests = [each for each in open_requests if each[0] in alive]
    pytest.fail("no end")
