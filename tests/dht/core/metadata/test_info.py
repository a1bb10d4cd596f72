"""The info dicts of version 1, version 2, and both."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.bencode import Value, encode
from lycosa.dht.core.metadata.info import BadInfo, TorrentFileEntry, read_info

SINGLE: dict[bytes, Value] = {b"name": b"film.mkv", b"piece length": 16_384, b"pieces": bytes(20), b"length": 5}
MULTI = SINGLE | {
    b"files": [
        {b"length": 3, b"path": [b"a", b"b.txt"]},
        {b"length": 9, b"path": [b".pad", b"9"], b"attr": b"p"},
        {b"length": 2, b"path": [b"c"], b"attr": b"x"},
    ]
}
del MULTI[b"length"]
TREE: dict[bytes, Value] = {
    b"a": {b"b.txt": {b"": {b"length": 3, b"pieces root": bytes(32)}}},
    b"c": {b"": {b"length": 2, b"pieces root": bytes(32)}},
    b"empty": {b"": {b"length": 0}},
}
SECOND: dict[bytes, Value] = {b"name": b"dir", b"piece length": 16_384, b"meta version": 2, b"file tree": TREE}


def test_a_single_file():
    metadata = encode(SINGLE)
    info = read_info(metadata)
    assert (info.name, info.files) == (b"film.mkv", (TorrentFileEntry((b"film.mkv",), 5),))
    assert (info.infohash_v1, info.infohash_v2) == (hashlib.sha1(metadata).digest(), None)
    assert (info.piece_bytes, info.private, info.size_bytes) == (16_384, False, 5)


def test_several_files_with_padding():
    info = read_info(encode(MULTI | {b"private": 1}))
    assert [file.path for file in info.files] == [(b"a", b"b.txt"), (b".pad", b"9"), (b"c",)]
    assert [file.padding for file in info.files] == [False, True, False]
    assert (info.size_bytes, info.private) == (5, True)


def test_version_2_has_a_tree_of_files():
    metadata = encode(SECOND)
    info = read_info(metadata)
    assert info.files == (
        TorrentFileEntry((b"a", b"b.txt"), 3),
        TorrentFileEntry((b"c",), 2),
        TorrentFileEntry((b"empty",), 0),
    )
    assert (info.infohash_v1, info.infohash_v2) == (None, hashlib.sha256(metadata).digest())
    assert info.infohashes == (hashlib.sha256(metadata).digest()[:20],)


def test_a_hybrid_torrent_has_two_infohashes_and_the_files_of_version_2():
    metadata = encode(MULTI | SECOND)
    info = read_info(metadata)
    assert info.infohashes == (hashlib.sha1(metadata).digest(), hashlib.sha256(metadata).digest()[:20])
    assert [file.path for file in info.files] == [(b"a", b"b.txt"), (b"c",), (b"empty",)]


def test_unsorted_keys_are_read_and_hashed_as_they_came():
    metadata = b"d6:pieces0:4:name1:x12:piece lengthi1e6:lengthi5ee"
    assert read_info(metadata).infohash_v1 == hashlib.sha1(metadata).digest()


@pytest.mark.parametrize(
    "fields",
    [
        [],
        {},
        {b"pieces": b""},
        {b"meta version": 3, b"name": b"x"},
        SINGLE | {b"name": 5},
        SINGLE | {b"length": -1},
        SINGLE | {b"length": 2**63},
        SINGLE | {b"piece length": b"x"},
        MULTI | {b"files": 5},
        MULTI | {b"files": [5]},
        MULTI | {b"files": [{b"length": 5, b"path": []}]},
        MULTI | {b"files": [{b"length": 5, b"path": [5]}]},
        MULTI | {b"files": [{b"path": [b"x"]}]},
        SECOND | {b"file tree": 5},
        SECOND | {b"file tree": {b"": {b"length": 5}}},
        SECOND | {b"file tree": {b"x": {b"": 5}}},
        SECOND | {b"file tree": {b"x": 5}},
    ],
)
def test_invalid_info_dicts_are_refused(fields):
    with pytest.raises(BadInfo):
        read_info(encode(fields))


def test_a_tree_that_is_too_deep_is_refused():
    with pytest.raises(BadInfo, match="nested"):
        read_info(encode(SECOND)[:-1].replace(b"9:file treed", b"9:file treed" + b"1:xd" * 500) + b"e" * 501)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_any_bytes_are_an_info_dict_or_refused(noise, at):
    metadata = encode(MULTI | SECOND)
    for each in (noise, metadata[:at] + noise + metadata[at + len(noise) :]):
        with suppress(BadInfo):
            read_info(each)
