"""KRPC messages: the packets of BEP 5, what live nodes send, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.bencode import decode, encode
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    ErrorMessage,
    KrpcError,
    Query,
    Reply,
    announce_arguments,
    decode_message,
    encode_error,
    encode_query,
    encode_reply,
    filter_values,
    find_node_arguments,
    get_peers_arguments,
    return_values,
    sample_values,
)

ID, OTHER = b"abcdefghij0123456789", b"mnopqrstuvwxyz123456"
SOURCE = b"\x01\x02\x03\x04\x1a\xe1"


# The examples of BEP 5, each with the value it stands for.
@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"d1:eli201e23:A Generic Error Ocurrede1:t2:aa1:y1:ee", ErrorMessage(b"aa", 201, b"A Generic Error Ocurred")),
        (b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe", Query(b"2:aa", PING, ID)),
        (b"d1:rd2:id20:mnopqrstuvwxyz123456e1:t2:aa1:y1:re", Reply(b"aa", OTHER, values=[])),
        (
            b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q9:find_node1:t2:aa1:y1:qe",
            Query(b"2:aa", FIND_NODE, ID, OTHER),
        ),
        (
            b"d1:rd2:id20:0123456789abcdefghij5:nodes9:def456...e1:t2:aa1:y1:re",
            Reply(b"aa", b"0123456789abcdefghij", values=[]),
        ),
        (
            b"d1:ad2:id20:abcdefghij01234567899:info_hash20:mnopqrstuvwxyz123456e1:q9:get_peers1:t2:aa1:y1:qe",
            Query(b"2:aa", GET_PEERS, ID, OTHER),
        ),
        (
            b"d1:rd2:id20:abcdefghij01234567895:token8:aoeusnth6:valuesl6:axje.u6:idhtnmee1:t2:aa1:y1:re",
            Reply(b"aa", ID, token=b"aoeusnth", values=[b"axje.u", b"idhtnm"]),
        ),
        (
            b"d1:rd2:id20:abcdefghij01234567895:nodes9:def456...5:token8:aoeusnthe1:t2:aa1:y1:re",
            Reply(b"aa", ID, token=b"aoeusnth", values=[]),
        ),
        (
            (
                b"d1:ad2:id20:abcdefghij012345678912:implied_porti1e9:info_hash20:mnopqrstuvwxyz123456"
                b"4:porti6881e5:token8:aoeusnthe1:q13:announce_peer1:t2:aa1:y1:qe"
            ),
            Query(b"2:aa", ANNOUNCE_PEER, ID, OTHER, token=b"aoeusnth", port=0),
        ),
    ],
)
def test_the_packets_of_bep_5_are_read(packet: bytes, message: object):
    assert decode_message(packet) == message
    assert encode(decode(packet)) == packet


@pytest.mark.parametrize(
    ("method", "arguments", "query"),
    [
        (PING, b"", Query(b"2:aa", PING, ID, read_only=True, version=b"LY\0\1")),
        (FIND_NODE, find_node_arguments(OTHER, 3), Query(b"2:aa", FIND_NODE, ID, OTHER, 3, True, version=b"LY\0\1")),
        (
            SAMPLE_INFOHASHES,
            find_node_arguments(OTHER),
            Query(b"2:aa", SAMPLE_INFOHASHES, ID, OTHER, 0, True, version=b"LY\0\1"),
        ),
        (
            GET_PEERS,
            get_peers_arguments(OTHER, 2, scrape=True, noseed=True),
            Query(b"2:aa", GET_PEERS, ID, OTHER, 2, True, True, True, version=b"LY\0\1"),
        ),
        (
            ANNOUNCE_PEER,
            announce_arguments(OTHER, b"tok", 6881, seed=True),
            Query(b"2:aa", ANNOUNCE_PEER, ID, OTHER, 0, True, False, False, True, b"tok", 6881, b"LY\0\1"),
        ),
        (
            ANNOUNCE_PEER,
            announce_arguments(OTHER, b"tok", None),
            Query(b"2:aa", ANNOUNCE_PEER, ID, OTHER, 0, True, token=b"tok", version=b"LY\0\1"),
        ),
    ],
)
def test_a_query_is_read_as_it_was_written(method: bytes, arguments: bytes, query: Query):
    packet = encode_query(b"aa", method, ID, arguments, read_only=True)
    assert decode_message(packet) == query
    assert encode(decode(packet)) == packet


def test_replies_are_read_as_they_were_written():
    values = return_values(nodes=bytes(26), nodes6=bytes(38), token=b"t", values=[b"123456", b"x" * 18])
    packet = encode_reply(b"2:aa", ID, SOURCE, values, filter_values(bytes(256), b"\xff" * 256))
    assert encode(decode(packet)) == packet
    assert decode_message(packet) == Reply(
        b"aa",
        ID,
        bytes(26),
        bytes(38),
        [b"123456", b"x" * 18],
        b"t",
        None,
        0,
        0,
        bytes(256),
        b"\xff" * 256,
        SOURCE,
        b"LY\0\1",
    )
    packet = encode_reply(b"2:aa", ID, SOURCE, sample_values(b"s" * 40, 7, 60, nodes=bytes(26), nodes6=b""))
    assert encode(decode(packet)) == packet
    found = decode_message(packet)
    assert isinstance(found, Reply)
    assert (found.samples, found.num, found.interval_s, found.nodes) == (b"s" * 40, 7, 60, bytes(26))
    assert len(found.contacts()) == 1


def test_errors_are_read_as_they_were_written():
    packet = encode_error(b"2:aa", 203, b"invalid token", SOURCE)
    assert encode(decode(packet)) == packet
    assert decode_message(packet) == ErrorMessage(b"aa", 203, b"invalid token", SOURCE, b"LY\0\1")


def test_an_integer_transaction_is_echoed_unchanged():
    query = decode_message(b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:ti0e1:y1:qe")
    assert isinstance(query, Query)
    assert b"1:ti0e" in encode_reply(query.transaction, ID, SOURCE)


def query_with(arguments: dict[bytes, object], method: bytes = FIND_NODE) -> bytes:
    return encode({b"a": arguments, b"q": method, b"t": b"aa", b"y": b"q"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("packet", "code", "message"),
    [
        (query_with({b"id": ID}), 203, "missing 'target'"),
        (query_with({b"id": ID, b"target": b"short"}), 203, "invalid value for 'target'"),
        (query_with({b"target": OTHER}), 203, "missing 'id'"),
        (query_with({b"id": ID, b"info_hash": OTHER}, ANNOUNCE_PEER), 203, "missing 'token'"),
        (query_with({b"id": ID, b"info_hash": OTHER, b"token": b"", b"port": 0}, ANNOUNCE_PEER), 203, "'port'"),
        (query_with({b"id": ID, b"info_hash": OTHER, b"token": b"", b"port": 65536}, ANNOUNCE_PEER), 203, "'port'"),
        (query_with({b"id": ID, b"info_hash": OTHER, b"token": b"", b"port": b"1"}, ANNOUNCE_PEER), 203, "'port'"),
        (query_with({b"id": ID, b"info_hash": OTHER, b"token": b"t", b"port": 1}, b"announce_peers"), 204, "Unknown"),
        (query_with({b"id": ID}, b"vote"), 204, "Method Unknown"),
        (encode({b"q": PING, b"t": b"aa", b"y": b"q"}), 203, "missing 'a'"),
        (encode({b"a": {b"id": ID}, b"t": b"aa", b"y": b"q"}), 203, "missing 'q'"),
    ],
)
def test_an_invalid_query_gets_a_code_and_a_message(packet: bytes, code: int, message: str):
    with pytest.raises(KrpcError, match=message) as error:
        decode_message(packet)
    assert (error.value.code, error.value.transaction) == (code, b"2:aa")


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"d1:y1:qe",
        b"d" + b" " * 5000,
        b"l1:ai1ee" * 3,
        b"d1:y1:q1:q4:ping1:ad2:id20:abcdefghij0123456789ee",  # no transaction
        b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t65:" + b"x" * 65 + b"1:y1:qe",
        b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:xe",
        b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe.",
        b"d1:rd2:id2:xxe1:t2:aa1:y1:re",
        b"d1:rle1:t2:aa1:y1:re",
        b"d1:rd2:id20:mnopqrstuvwxyz123456e1:ti0e1:y1:re",
    ],
)
def test_a_datagram_that_is_not_a_query_gets_no_answer(packet: bytes):
    with pytest.raises(KrpcError) as error:
        decode_message(packet)
    assert error.value.transaction is None


def test_an_unknown_method_with_a_target_is_a_find_node():
    for key in (b"target", b"info_hash"):
        assert decode_message(query_with({b"id": ID, key: OTHER}, b"future")) == Query(b"2:aa", FIND_NODE, ID, OTHER)


def test_keys_in_any_order_and_odd_values_are_accepted():
    packet = b"d1:y1:r1:t2:aa1:rd6:valuesli1e6:123456le3:abc18:" + b"x" * 18 + b"e5:nodesi1e2:id20:" + ID + b"ee"
    assert decode_message(packet) == Reply(b"aa", ID, values=[b"123456", b"x" * 18])


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"d1:e5:wrong1:t2:aa1:y1:ee", ErrorMessage(b"aa", 201, b"wrong")),
        (b"d1:eli204ee1:t2:aa1:y1:ee", ErrorMessage(b"aa", 204)),
        (b"d1:ele1:t2:aa1:y1:e1:vi1ee", ErrorMessage(b"aa", 201)),
        (b"d1:eli203e3:bade1:t2:aa1:y1:re", ErrorMessage(b"aa", 203, b"bad")),
    ],
)
def test_error_messages_in_odd_forms_are_read_as_errors(packet: bytes, message: ErrorMessage):
    assert decode_message(packet) == message


def test_the_interval_is_bounded_as_in_bep_51():
    for sent, read in ((-1, 0), (10**9, 21_600)):
        packet = encode({b"r": {b"id": ID, b"interval": sent, b"num": -3, b"samples": b""}, b"t": b"aa", b"y": b"r"})
        found = decode_message(packet)
        assert isinstance(found, Reply)
        assert (found.interval_s, found.num, found.samples) == (read, 0, b"")


ODD = st.integers(-2, 70_000) | st.binary(max_size=45) | st.lists(st.binary(max_size=20) | st.integers(), max_size=3)
IDS = st.binary(min_size=20, max_size=20)
WORDS = [b"id", b"target", b"info_hash", b"token", b"port", b"implied_port", b"want", b"nodes", b"nodes6", b"values"]
WORDS += [b"samples", b"num", b"interval", b"BFsd", b"BFpe", b"seed", b"scrape"]
FIELDS = st.dictionaries(st.sampled_from(WORDS), IDS | ODD | st.lists(st.binary(min_size=6, max_size=18)), max_size=8)
METHODS = st.sampled_from([PING, FIND_NODE, GET_PEERS, ANNOUNCE_PEER, SAMPLE_INFOHASHES, b"announce_peers", b"get"])
MESSAGES = st.fixed_dictionaries(
    {b"t": st.binary(max_size=5) | ODD, b"y": st.sampled_from([b"q", b"r", b"e"]) | ODD},
    optional={
        b"q": METHODS | ODD,
        b"a": st.builds(lambda fields, node_id: {**fields, b"id": node_id}, FIELDS, IDS) | FIELDS | ODD,
        b"r": st.builds(lambda fields, node_id: {**fields, b"id": node_id}, FIELDS, IDS) | FIELDS | ODD,
        b"e": ODD,
        b"v": ODD,
        b"ip": ODD,
        b"ro": ODD,
    },
)


@given(st.binary(max_size=200).map(lambda data: b"d" + data + b"e") | MESSAGES.map(encode))
def test_any_datagram_is_a_valid_message_or_raises_one_error(packet: bytes):
    try:
        found = decode_message(packet)
    except KrpcError as error:
        assert error.code in {203, 204}
        if error.transaction is not None:
            assert decode(encode_error(error.transaction, error.code, str(error).encode(), SOURCE))
        return
    if isinstance(found, Query):
        assert len(found.id) == 20
        assert len(found.target) == (0 if found.method == PING else 20)
        assert 0 <= found.port < 65_536
        assert decode_message(encode_reply(found.transaction, ID, SOURCE)) if found.transaction[:1] != b"i" else True
    elif isinstance(found, Reply):
        assert len(found.id) == 20
        assert {len(value) for value in found.values} <= {6, 18}
        assert all(len(contact.id) == 20 and len(contact.endpoint) in {6, 18} for contact in found.contacts())
        assert 0 <= found.interval_s <= 21_600
    else:
        assert isinstance(found.code, int)


@given(
    st.binary(max_size=8),
    IDS,
    IDS,
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.binary(max_size=4),
)
def test_every_get_peers_is_read_as_it_was_written(
    transaction: bytes,
    node_id: bytes,
    infohash: bytes,
    want: int,
    scrape: bool,
    noseed: bool,
    read_only: bool,
    version: bytes,
):
    arguments = get_peers_arguments(infohash, want, scrape=scrape, noseed=noseed)
    packet = encode_query(transaction, GET_PEERS, node_id, arguments, read_only=read_only, version=version)
    assert encode(decode(packet)) == packet
    assert decode_message(packet) == Query(
        encode(transaction), GET_PEERS, node_id, infohash, want, read_only, scrape, noseed, version=version
    )


@given(IDS, IDS, st.binary(max_size=20), st.integers(1, 65_535) | st.none(), st.booleans())
def test_every_announce_is_read_as_it_was_written(
    node_id: bytes, infohash: bytes, token: bytes, port: int | None, seed: bool
):
    packet = encode_query(b"aa", ANNOUNCE_PEER, node_id, announce_arguments(infohash, token, port, seed=seed))
    assert encode(decode(packet)) == packet
    found = decode_message(packet)
    assert isinstance(found, Query)
    assert (found.target, found.token, found.port, found.seed) == (infohash, token, port or 0, seed)


@given(IDS, st.binary(max_size=60), st.binary(max_size=60), st.lists(st.binary(min_size=6, max_size=6), max_size=4))
def test_every_reply_is_read_as_it_was_written(node_id: bytes, nodes: bytes, nodes6: bytes, values: list[bytes]):
    packet = encode_reply(b"2:aa", node_id, SOURCE, return_values(nodes=nodes, nodes6=nodes6, token=b"", values=values))
    assert encode(decode(packet)) == packet
    found = decode_message(packet)
    assert isinstance(found, Reply)
    assert (found.id, found.values, found.token) == (node_id, values, b"")
    assert nodes.startswith(found.nodes)
    assert nodes6.startswith(found.nodes6)
    assert len(nodes) - len(found.nodes) < 26
    assert len(nodes6) - len(found.nodes6) < 38
