from lycosa.dht.core.ids import common_prefix_bits, distance, id_with_prefix


def test_the_distance_of_ids_is_their_xor():
    assert distance(b"\x00" * 19 + b"\x05", b"\x00" * 19 + b"\x03") == 6


def test_ids_share_leading_bits():
    assert common_prefix_bits(b"\x00" * 20, b"\x80" + b"\x00" * 19) == 0
    assert common_prefix_bits(b"\x00" * 20, b"\x00\x01" + b"\x00" * 18) == 15
    assert common_prefix_bits(b"\x07" * 20, b"\x07" * 20) == 160


def test_an_id_under_a_prefix_has_its_bits_and_else_random_ones():
    assert id_with_prefix(b"\xff" * 20, 0, bytes(20)) == bytes(20)
    assert id_with_prefix(b"\xff" * 20, 12, bytes(20)) == b"\xff\xf0" + bytes(18)
    assert id_with_prefix(bytes(20), 159, b"\xff" * 20) == bytes(19) + b"\x01"
    assert id_with_prefix(b"\xff" * 20, 160, bytes(20)) == b"\xff" * 20
