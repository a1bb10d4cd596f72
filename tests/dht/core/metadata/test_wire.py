"""Framing, the extension handshake, and the messages of BEP 9."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.bencode import encode
from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.wire import (
    DATA,
    EXTENDED,
    EXTENDED_BYTES_MAX,
    EXTENSION_OFFER,
    MESSAGE_BYTES_MAX,
    PORT,
    REJECT,
    REQUEST,
    SENT_IDS,
    MessageReader,
    decode_extension_handshake,
    decode_metadata_message,
    decode_port,
    encode_metadata_message,
    encode_port,
    frame,
    piece_bytes,
    pieces_of,
)

KEEP_ALIVE = bytes(4)
UNCHOKE = b"\0\0\0\1\1"


def raw(message_id: int, payload: bytes = b"") -> bytes:
    return (1 + len(payload)).to_bytes(4) + bytes([message_id]) + payload


def read(data: bytes, step: int = 0) -> tuple[list[tuple[int, bytes]], int]:
    reader = MessageReader()
    messages = []
    for at in range(0, len(data), step or max(1, len(data))):
        reader.receive(data[at : at + (step or len(data))])
        while message := reader.next_message():
            messages.append(message)
    others = [each for each in messages if each.id not in (PORT, EXTENDED)]
    return [tuple(each) for each in messages if each not in others], len(others)


def test_only_ports_and_extended_messages_can_be_sent():
    assert sorted(SENT_IDS) == [9, 20]
    for interested_or_request in (2, 6):
        with pytest.raises(AssertionError):
            frame(interested_or_request, b"")


def test_keep_alives_and_messages_of_other_kinds_are_skipped():
    data = KEEP_ALIVE + UNCHOKE + raw(5, b"\xff" * 1000) + raw(20, b"\0de") + raw(200, b"what") + raw(9, b"\1\2")
    assert read(data) == ([(20, b"\0de"), (9, b"\1\2")], 4)
    assert read(data, 1) == read(data, 7) == read(data)


def test_the_rest_of_a_skipped_message_is_not_stored():
    reader = MessageReader()
    reader.receive((MESSAGE_BYTES_MAX).to_bytes(4) + b"\5")
    for number in range(10):
        assert (reader.next_message() is None) == (number > 0)
        reader.receive(bytes(65_536))
        assert len(reader._buffer) <= 65_536 + 5


@pytest.mark.parametrize(
    "head",
    [
        b"\x7f\xff\xff\xff\x14",
        b"\x80\0\0\0\x14",
        (MESSAGE_BYTES_MAX + 1).to_bytes(4) + b"\5",
        (EXTENDED_BYTES_MAX + 1).to_bytes(4) + b"\x14",
        b"\0\0\0\4\x09",
    ],
    ids=["2 GB", "negative", "long", "long extended", "long port"],
)
def test_a_length_above_the_bound_of_its_message_is_refused_at_once(head):
    with pytest.raises(PeerError) as error:
        read(head)
    assert error.value.reason is PeerFailure.PROTOCOL


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40))), st.integers(1, 50))
def test_any_messages_are_the_same_whole_and_in_parts(messages, step):
    data = b"".join(raw(number, payload[: 2 if number == 9 else 40]) for number, payload in messages)
    assert read(data, step) == read(data)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_the_same_whole_and_in_parts(data, step):
    def outcome(step: int) -> object:
        try:
            return read(data, step)
        except PeerError as error:
            return str(error)

    assert outcome(step) == outcome(0)


def test_the_messages_of_bep_9():
    assert encode_metadata_message(3, REQUEST, 0) == raw(20, b"\3d8:msg_typei0e5:piecei0ee")
    assert encode_metadata_message(3, REJECT, 0) == raw(20, b"\3d8:msg_typei2e5:piecei0ee")
    message = decode_metadata_message(b"d8:msg_typei1e5:piecei0e10:total_sizei3425eexxxxxxxx")
    assert message == (DATA, 0, 3425, b"xxxxxxxx")


def test_data_that_look_like_the_end_of_a_dict_belong_to_the_piece():
    message = decode_metadata_message(b"d8:msg_typei1e5:piecei7e5:extrad1:ai1eeeeed4:infoe")
    assert (message.piece, message.data) == (7, b"eed4:infoe")


def test_a_reject_may_have_more_fields():
    assert decode_metadata_message(b"d8:msg_typei2e5:piecei0e10:total_sizei9ee") == (REJECT, 0, 9, b"")


def test_unsorted_keys_are_read():
    assert decode_metadata_message(b"d5:piecei1e8:msg_typei0ee") == (REQUEST, 1, None, b"")


def test_our_extension_handshake_offers_metadata_messages_and_no_metadata():
    (message,), _ = read(EXTENSION_OFFER)
    theirs = decode_extension_handshake(message[1][1:])
    assert (message[1][0], theirs) == (0, (1, None))


def test_the_extension_handshake_of_bep_9():
    payload = encode({b"m": {b"ut_metadata": 3, b"ut_pex": 1}, b"metadata_size": 31235, b"v": b"uTorrent 1.2"})
    assert decode_extension_handshake(payload) == (3, 31235)


@pytest.mark.parametrize(
    "fields",
    [{}, {b"m": 1}, {b"m": {b"ut_metadata": b"3"}}, {b"m": {b"ut_pex": 1}}, {b"metadata_size": b"5"}],
)
def test_fields_of_wrong_types_count_as_missing(fields):
    assert decode_extension_handshake(encode(fields)) == (None, None)


@pytest.mark.parametrize("number", [-1, 256])
def test_an_extended_message_id_is_one_byte(number):
    with pytest.raises(PeerError):
        decode_extension_handshake(encode({b"m": {b"ut_metadata": number}}))


@given(st.binary(max_size=100))
def test_any_payload_gives_a_message_or_a_protocol_error(payload):
    for decode in (decode_extension_handshake, decode_metadata_message):
        try:
            decode(payload)
        except PeerError as error:
            assert error.reason is PeerFailure.PROTOCOL


def test_a_deeply_nested_dict_is_refused():
    with pytest.raises(PeerError):
        decode_extension_handshake(b"d1:v" + b"l" * 30_000)


def test_the_port_is_two_bytes_in_network_order():
    assert encode_port(6881) == b"\0\0\0\3\x09\x1a\xe1"
    assert decode_port(b"\x1a\xe1") == 6881
    with pytest.raises(PeerError):
        decode_port(b"\1")


@pytest.mark.parametrize(
    ("size", "pieces", "last"), [(1, 1, 1), (16_384, 1, 16_384), (16_385, 2, 1), (32_768, 2, 16_384)]
)
def test_the_last_piece_may_be_shorter_or_full(size, pieces, last):
    assert pieces_of(size) == pieces
    assert piece_bytes(pieces - 1, size) == last
