from lycosa.dht.core.ids import distance


def test_the_distance_of_ids_is_their_xor():
    assert distance(b"\x00" * 19 + b"\x05", b"\x00" * 19 + b"\x03") == 6
