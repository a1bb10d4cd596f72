"""The handshake of peers: the 68 bytes of BEP 3, with the reserved bits of BEPs 5, 10 and 52."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.handshake import decode_handshake, encode_handshake

INFOHASH, PEER_ID = bytes(range(20)), b"-LY0000-abcdefghijkl"


@pytest.mark.parametrize("dht", [False, True])
def test_a_handshake_offers_extensions_and_the_dht_if_there_is_a_node(dht):
    data = encode_handshake(INFOHASH, PEER_ID, dht=dht)
    assert data[:20] == b"\x13BitTorrent protocol"
    assert data[20:28] == bytes([0, 0, 0, 0, 0, 0x10, 0, dht])
    assert decode_handshake(data) == (INFOHASH, PEER_ID, True, dht, False)


def test_the_infohash_of_version_2_is_truncated():
    assert len(encode_handshake(bytes(32), PEER_ID, dht=False)) == 68


def test_the_bit_of_version_2_is_read():
    data = bytearray(encode_handshake(INFOHASH, PEER_ID, dht=False))
    data[27] |= 0x10
    assert decode_handshake(bytes(data)).version_2


@given(st.binary(max_size=80))
def test_other_bytes_are_a_protocol_error(data):
    with pytest.raises(PeerError) as error:
        decode_handshake(data)
    assert error.value.reason is PeerFailure.PROTOCOL
