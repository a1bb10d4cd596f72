"""The conversation with one peer, played by hand: bytes in, bytes and events out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.bencode import encode
from lycosa.dht.core.metadata.conversation import (
    METADATA_BYTES_MAX,
    REJECTS_SENT_MAX,
    REQUESTS_MAX,
    UNASKED_BYTES_MAX,
    UNASKED_MESSAGES_MAX,
    Conversation,
    DhtPortReceived,
    MetadataOffered,
    PieceReceived,
    PieceRejected,
    Stage,
    StageLimits,
)
from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.wire import EXTENSION_OFFER, PIECE_BYTES

INFOHASH, OURS, THEIRS = bytes(range(20)), b"-LY0000-abcdefghijkl", b"-lt2010-abcdefghijkl"
THEIR_ID = 7
LIMITS = StageLimits(connect_s=5, handshake_s=6, piece_s=8, total_s=60)


def raw(message_id: int, payload: bytes = b"") -> bytes:
    return (1 + len(payload)).to_bytes(4) + bytes([message_id]) + payload


def handshake(*, infohash: bytes = INFOHASH, reserved: bytes = b"\0\0\0\0\0\x10\0\1") -> bytes:
    return b"\x13BitTorrent protocol" + reserved + infohash + THEIRS


def extensions(size: object = 40_000, number: object = THEIR_ID) -> bytes:
    return raw(20, b"\0" + encode({b"m": {b"ut_metadata": number}, b"metadata_size": size}))


def data(piece: int, contents: bytes, total: int = 40_000) -> bytes:
    return raw(20, b"\1" + encode({b"msg_type": 1, b"piece": piece, b"total_size": total}) + contents)


def reject(piece: int) -> bytes:
    return raw(20, b"\1" + encode({b"msg_type": 2, b"piece": piece}))


def request(piece: int) -> bytes:
    return raw(20, b"\1" + encode({b"msg_type": 0, b"piece": piece}))


def asked(piece: int) -> bytes:
    return raw(20, bytes([THEIR_ID]) + encode({b"msg_type": 0, b"piece": piece}))


def connected(dht_port: int | None = None) -> Conversation:
    conversation = Conversation(INFOHASH, OURS, 0.0, limits=LIMITS, dht_port=dht_port)
    conversation.receive_connected(0.0)
    return conversation


def ready(*pieces: int, size: int = 40_000) -> Conversation:
    """Return a conversation that has requested these pieces, with its output drained."""
    conversation = connected()
    conversation.receive_bytes(handshake() + extensions(size), 0.0)
    assert conversation.next_event() == MetadataOffered(size)
    for piece in pieces:
        conversation.request(piece, 0.0)
    conversation.bytes_to_send()
    return conversation


def fails(conversation: Conversation, sent: bytes) -> PeerFailure:
    with pytest.raises(PeerError) as error:
        conversation.receive_bytes(sent, 0.0)
    return error.value.reason


def test_a_whole_conversation():
    conversation = connected()
    assert conversation.bytes_to_send() == b"\x13BitTorrent protocol" + b"\0\0\0\0\0\x10\0\0" + INFOHASH + OURS
    conversation.receive_bytes(handshake(), 1.0)
    assert conversation.bytes_to_send() == EXTENSION_OFFER
    conversation.receive_bytes(extensions(), 2.0)
    assert (conversation.next_event(), conversation.next_event()) == (MetadataOffered(40_000), None)
    for piece in range(3):
        conversation.request(piece, 2.0)
    assert conversation.bytes_to_send() == asked(0) + asked(1) + asked(2)
    conversation.receive_bytes(data(2, b"c" * 7_232) + data(0, b"a" * PIECE_BYTES) + data(1, b"b" * PIECE_BYTES), 3.0)
    events = [conversation.next_event() for _ in range(3)]
    assert events == [PieceReceived(2, b"c" * 7_232), PieceReceived(0, b"a" * 16_384), PieceReceived(1, b"b" * 16_384)]


def test_the_port_of_our_node_is_sent_to_peers_with_a_node():
    conversation = connected(dht_port=6881)
    assert conversation.bytes_to_send()[27] == 1
    conversation.receive_bytes(handshake(), 0.0)
    assert conversation.bytes_to_send() == EXTENSION_OFFER + b"\0\0\0\3\x09\x1a\xe1"


@pytest.mark.parametrize(("port", "reserved"), [(None, b"\0\0\0\0\0\x10\0\1"), (6881, b"\0\0\0\0\0\x10\0\0")])
def test_the_port_is_not_sent_without_a_dht_node_on_both_sides(port, reserved):
    conversation = connected(dht_port=port)
    conversation.bytes_to_send()
    conversation.receive_bytes(handshake(reserved=reserved), 0.0)
    assert conversation.bytes_to_send() == EXTENSION_OFFER


def test_the_port_of_a_peers_node_is_reported():
    conversation = connected()
    conversation.receive_bytes(handshake() + raw(9, b"\x1a\xe1"), 0.0)
    assert conversation.next_event() == DhtPortReceived(6881)


def test_only_the_first_port_of_a_peers_node_is_reported():
    conversation = connected()
    conversation.receive_bytes(handshake() + b"".join(raw(9, port.to_bytes(2)) for port in range(1, 1000)), 0.0)
    assert (conversation.next_event(), conversation.next_event()) == (DhtPortReceived(1), None)


def script(conversation: Conversation, feed: Callable[[bytes], None]) -> list[object]:
    """Play a conversation with all messages that a peer may send. Return the output."""
    noise = bytes(4) + raw(5, b"\xff" * 99) + raw(1) + raw(20, b"\2" + b"de") + raw(99, b"?") + raw(9, b"\0\7")
    feed(handshake() + noise)
    feed(extensions(20_000) + noise + request(0))
    out: list[object] = [conversation.bytes_to_send()]
    for piece in (0, 1):
        conversation.request(piece, 0.0)
    feed(noise + data(0, b"x" * PIECE_BYTES, 20_000) + noise + reject(1) + extensions(20_000, 9) + request(1))
    conversation.request(1, 0.0)
    out.append(conversation.bytes_to_send())
    while event := conversation.next_event():
        out.append(event)
    return out


@pytest.mark.parametrize("step", [1, 2, 3, 67, 16_384])
def test_bytes_fed_in_parts_give_the_same_result(step):
    def whole(conversation: Conversation) -> Callable[[bytes], None]:
        return lambda sent: conversation.receive_bytes(sent, 0.0)

    def parts(conversation: Conversation) -> Callable[[bytes], None]:
        def feed(sent: bytes) -> None:
            for at in range(0, len(sent), step):
                conversation.receive_bytes(sent[at : at + step], 0.0)

        return feed

    one, other = connected(), connected()
    assert script(one, whole(one)) == script(other, parts(other))


@given(st.randoms(use_true_random=False), st.binary(max_size=300), st.integers(1, 100))
def test_a_damaged_conversation_has_the_same_outcome_whole_and_in_parts(chance: random.Random, noise: bytes, step: int):
    sent = bytearray(handshake() + extensions() + data(0, b"x" * 99) + reject(1) + raw(9, b"\0\1") + noise)
    for _ in range(chance.randrange(4)):
        sent[chance.randrange(len(sent))] = chance.randrange(256)

    def outcome(step: int) -> list[object]:
        conversation, out = connected(), []
        try:
            for at in range(0, len(sent), step):
                conversation.receive_bytes(bytes(sent[at : at + step]), 0.0)
        except PeerError as error:
            out.append(error.reason)
        while event := conversation.next_event():
            out.append(event)
        return out

    assert outcome(step) == outcome(len(sent))


def test_another_infohash_is_refused():
    assert fails(connected(), handshake(infohash=bytes(20))) is PeerFailure.OTHER_INFOHASH


def test_a_peer_without_extensions_is_refused():
    assert fails(connected(), handshake(reserved=bytes(8))) is PeerFailure.NO_EXTENSIONS


def test_another_protocol_is_refused_at_its_first_bytes():
    assert fails(connected(), b"HTTP/1.1") is PeerFailure.PROTOCOL


@pytest.mark.parametrize(
    ("size", "number", "reason"),
    [
        (40_000, 0, PeerFailure.NO_EXTENSIONS),
        (40_000, b"7", PeerFailure.NO_EXTENSIONS),
        (0, THEIR_ID, PeerFailure.NO_METADATA),
        (-1, THEIR_ID, PeerFailure.NO_METADATA),
        (b"40000", THEIR_ID, PeerFailure.NO_METADATA),
        (METADATA_BYTES_MAX + 1, THEIR_ID, PeerFailure.TOO_LARGE),
        (2**63, THEIR_ID, PeerFailure.TOO_LARGE),
    ],
)
def test_a_peer_that_offers_no_acceptable_metadata_is_refused(size, number, reason):
    assert fails(connected(), handshake() + extensions(size, number)) is reason


def test_the_largest_metadata_are_accepted():
    ready(size=METADATA_BYTES_MAX)


@pytest.mark.parametrize("length", [0, 16_383, 16_385])
def test_a_piece_of_another_size_is_refused(length):
    assert fails(ready(0), data(0, b"x" * length)) is PeerFailure.PROTOCOL


def test_the_last_piece_may_have_16_384_bytes():
    conversation = ready(1, size=32_768)
    conversation.receive_bytes(data(1, b"x" * 16_384, 32_768), 0.0)
    assert conversation.next_event() == PieceReceived(1, b"x" * 16_384)


def test_a_piece_that_states_another_size_of_the_metadata_is_refused():
    assert fails(ready(0), data(0, b"x" * PIECE_BYTES, total=40_001)) is PeerFailure.PROTOCOL


def test_pieces_and_rejects_without_a_request_are_ignored():
    conversation = ready(0)
    conversation.receive_bytes(data(1, b"x" * PIECE_BYTES) + reject(2) + data(-1, b"") + data(10**18, b""), 0.0)
    assert conversation.next_event() is None


def test_a_metadata_message_of_an_unknown_type_is_ignored():
    conversation = ready(0)
    conversation.receive_bytes(raw(20, b"\1" + encode({b"msg_type": 3, b"piece": 0})), 0.0)
    assert (conversation.next_event(), conversation.requests_free) == (None, REQUESTS_MAX - 1)


def test_a_rejected_piece_is_reported_and_its_request_is_free_again():
    conversation = ready(1)
    conversation.receive_bytes(reject(1), 0.0)
    assert conversation.next_event() == PieceRejected(1)
    assert conversation.requests_free == REQUESTS_MAX


def test_requests_of_the_peer_are_rejected_a_limited_number_of_times():
    conversation = ready()
    conversation.receive_bytes(request(3), 0.0)
    assert conversation.bytes_to_send() == raw(20, b"\7d8:msg_typei2e5:piecei3ee")
    conversation.receive_bytes(request(3) * (2 * REJECTS_SENT_MAX), 0.0)
    assert len(conversation.bytes_to_send()) == (REJECTS_SENT_MAX - 1) * len(reject(3))


@pytest.mark.parametrize(
    "message", [bytes(4), raw(1), reject(5), request(5), raw(9, b"\0\1"), raw(20, b"\5x"), extensions()]
)
def test_a_flood_of_messages_ends_the_conversation(message):
    conversation = ready(0)
    conversation.receive_bytes(message * (UNASKED_MESSAGES_MAX // 2), 0.0)
    assert fails(conversation, message * UNASKED_MESSAGES_MAX) is PeerFailure.FLOOD


def test_a_flood_of_bytes_ends_the_conversation():
    conversation = ready()
    large = raw(5, bytes(900_000))
    conversation.receive_bytes(large, 0.0)
    assert fails(conversation, large) is PeerFailure.FLOOD
    assert 900_000 < UNASKED_BYTES_MAX < 1_800_000


@pytest.mark.parametrize(
    ("enter", "stage", "after_s"),
    [
        (lambda: Conversation(INFOHASH, OURS, 0.0, limits=LIMITS), Stage.CONNECTING, 5),
        (connected, Stage.HANDSHAKE, 6),
        (lambda: ready(0), Stage.PIECES, 8),
        (ready, Stage.PIECES, 60),
    ],
    ids=["connect", "handshake", "piece", "idle"],
)
def test_each_stage_has_its_deadline(enter, stage, after_s):
    conversation = enter()
    assert (conversation.stage, conversation.next_timer()) == (stage, after_s)
    conversation.handle_timer(after_s - 0.01)
    with pytest.raises(PeerError) as error:
        conversation.handle_timer(after_s)
    assert error.value.reason is PeerFailure.TIMEOUT


def test_a_byte_of_a_slow_handshake_does_not_extend_the_deadline():
    conversation = connected()
    for second, byte in enumerate(handshake()[:5]):
        conversation.receive_bytes(bytes([byte]), float(second))
    assert conversation.next_timer() == 6


def test_a_piece_extends_the_deadline_but_not_the_total_time():
    conversation = ready(0, 1, 2)
    conversation.receive_bytes(data(0, b"x" * PIECE_BYTES), 7.0)
    assert conversation.next_timer() == 15
    conversation.receive_bytes(data(1, b"x" * PIECE_BYTES), 59.0)
    assert conversation.next_timer() == 60


def test_a_part_of_a_piece_does_not_extend_the_deadline():
    conversation = ready(0)
    conversation.receive_bytes(data(0, b"x" * PIECE_BYTES)[:-1], 7.0)
    assert conversation.next_timer() == 8


def test_infohashes_of_version_2_are_truncated():
    conversation = Conversation(INFOHASH + bytes(12), OURS, 0.0, limits=LIMITS)
    conversation.receive_connected(0.0)
    assert conversation.bytes_to_send()[28:48] == INFOHASH


def test_requested_bytes_are_no_flood():
    size = 2 * UNASKED_BYTES_MAX
    conversation = ready(size=size)
    for piece in range(size // PIECE_BYTES):
        conversation.request(piece, 0.0)
        conversation.receive_bytes(data(piece, bytes(PIECE_BYTES), size), 0.0)
        assert isinstance(conversation.next_event(), PieceReceived)


def test_another_request_does_not_extend_the_deadline():
    conversation = ready(0)
    conversation.request(1, 7.0)
    assert conversation.next_timer() == 8
