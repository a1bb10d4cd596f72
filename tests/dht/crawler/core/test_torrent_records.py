from __future__ import annotations

from lycosa.dht.core.bencode import Value, encode
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord


def record(outside: str = "", **fields: Value) -> TorrentRecord:
    info: dict[bytes, Value] = {b"piece length": 16_384, b"pieces": bytes(20), b"name": b"name"}
    info |= {name.replace("_", " ").encode(): value for name, value in fields.items()}
    return to_torrent_record(encode(info), 7, outside)


def test_an_old_encoding_is_guessed_from_all_names_of_the_torrent_together():
    files: list[Value] = [{b"length": 1, b"path": ["第一集".encode("gbk"), "片头.mkv".encode("gbk")]}]
    found = record(name="西游记 国语中字".encode("gbk"), files=files)
    assert (found.name, found.files) == ("西游记 国语中字", (StoredFile("第一集/片头.mkv", 1),))


def test_names_in_the_utf_8_fields_of_a_torrent_are_preferred():
    file: Value = {b"length": 1, b"path": [b"\xff"], b"path.utf-8": ["電影.mkv".encode()]}
    found = record(**{"name": b"\xff", "name.utf-8": "電影".encode(), "files": [file]})
    assert (found.name, found.files) == ("電影", (StoredFile("電影.mkv", 1),))


def test_empty_and_invalid_utf_8_names_are_not_taken():
    file: Value = {b"length": 1, b"path": [b"a.mkv"], b"path.utf-8": [b"\xff"]}
    found = record(**{"name": b"good", "name.utf-8": b"", "files": [file]})
    assert (found.name, found.files) == ("good", (StoredFile("a.mkv", 1),))


def test_a_declared_encoding_decides_between_plausible_ones():
    assert record(name="銀英".encode("big5"), length=1, encoding=b"Big5").name == "銀英"
    assert record("Big5", name="銀英".encode("big5"), length=1).name == "銀英"


def test_paths_stay_in_their_folder_and_padding_is_left_out():
    files: list[Value] = [
        {b"length": 1, b"path": [b"..", b"..", b"etc/passwd"]},
        {b"length": 2, b"path": [b".pad", b"2"], b"attr": b"p"},
    ]
    assert record(files=files).files == (StoredFile("etc_passwd", 1),)
