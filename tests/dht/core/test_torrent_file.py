"""Torrent files: the bytes of the info dict, and the nodes of trackerless ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadTorrentFile
from lycosa.dht.core.bencode import decode, encode
from lycosa.dht.core.torrent_file import NODES_MAX, TorrentFile, read_torrent_file, write_torrent_file

INFO = encode({b"length": 5, b"name": b"x", b"piece length": 16_384, b"pieces": bytes(20)})
NODES = (("127.0.0.1", 6881), ("your.router.node", 4804), ("2001:db8::1", 1))


def test_the_nodes_of_the_example_of_bep_5_are_read():
    value = [[b"127.0.0.1", 6881], [b"your.router.node", 4804], [b"2001:db8:100:0:d5c8:db3f:995e:c0f7", 1941]]
    torrent = read_torrent_file(b"d4:info" + INFO + b"5:nodes" + encode(value) + b"e")
    assert [host for host, _ in torrent.nodes] == [each[0].decode() for each in value]
    assert [port for _, port in torrent.nodes] == [6881, 4804, 1941]


def test_a_written_file_is_read_back():
    torrent = TorrentFile(INFO, NODES, ((b"comment", b"hello"), (b"zzz", [1, {b"a": b""}])))
    data = write_torrent_file(torrent)
    assert read_torrent_file(data) == torrent
    assert encode(decode(data)) == data, "the keys are sorted"


def test_nodes_replace_the_tracker_and_everything_else_is_kept():
    before = encode(
        {b"announce": b"http://t", b"announce-list": [[b"http://t"]], b"comment": b"c", b"info": decode(INFO)}
    )
    torrent = read_torrent_file(before)
    assert write_torrent_file(torrent) == before
    after = write_torrent_file(TorrentFile(torrent.info, NODES[:1], torrent.fields))
    assert decode(after) == {b"comment": b"c", b"info": decode(INFO), b"nodes": [[b"127.0.0.1", 6881]]}


def test_the_info_dict_keeps_its_bytes_even_if_they_are_not_canonical():
    info = b"d4:name1:x6:lengthi05e12:piece lengthi1e6:pieces0:e"
    torrent = read_torrent_file(b"d4:info" + info + b"e")
    assert torrent.info == info
    assert write_torrent_file(torrent) == b"d4:info" + info + b"e"


@pytest.mark.parametrize(
    "node", [[b"h"], [b"h", 0], [b"h", 65_536], [b"", 1], [b"h" * 300, 1], [1, b"h"], [b"\xff", 1], [b"a\n", 1], 5, {}]
)
def test_invalid_nodes_are_left_out(node):
    data = encode({b"info": {}, b"nodes": [node, [b"192.0.2.1", 5]]})
    assert read_torrent_file(data).nodes == (("192.0.2.1", 5),)


def test_nodes_are_bounded():
    assert len(read_torrent_file(encode({b"info": {}, b"nodes": [[b"h", 1]] * 1000})).nodes) == NODES_MAX


@pytest.mark.parametrize("data", [b"", b"hello", b"de", b"d4:infoi1ee", b"le", b"d4:infode", b"d4:infodee "])
def test_data_that_are_no_torrent_file_are_refused(data):
    with pytest.raises(BadTorrentFile, match="not a torrent file"):
        read_torrent_file(data)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_raise_bad_torrent_file(data):
    for each in (data, b"d4:infode5:nodes" + data + b"e"):
        with suppress(BadTorrentFile):
            write_torrent_file(read_torrent_file(each))
