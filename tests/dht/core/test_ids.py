from lycosa.dht.core.ids import common_prefix_bits, distance


def test_the_distance_of_ids_is_their_xor():
    assert distance(b"\x00" * 19 + b"\x05", b"\x00" * 19 + b"\x03") == 6


def test_ids_share_leading_bits():
    assert common_prefix_bits(b"\x00" * 20, b"\x80" + b"\x00" * 19) == 0
    assert common_prefix_bits(b"\x00" * 20, b"\x00\x01" + b"\x00" * 18) == 15
    assert common_prefix_bits(b"\x07" * 20, b"\x07" * 20) == 160
