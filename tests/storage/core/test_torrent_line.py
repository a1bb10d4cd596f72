"""Torrents as text: a JSON line restores the stored torrent, and hostile lines are harmless."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_line import (
    CSV_FIELDS,
    LINE_MAX,
    TIME_MAX,
    BadTorrentLine,
    FilesUnknown,
    ImportedTorrent,
    csv_row,
    format_line,
    magnet_link,
    parse_line,
)
from lycosa.storage.core.torrent_record import Popularity, StoredFile, StoredTorrent, TorrentRecord
from tests.storage.torrents import torrent

NOW = 1_795_000_000
V1, V2 = "0123456789abcdef0123456789abcdef01234567", "ab" * 32
FIELDS = {"infohash_v1": V1, "name": "n", "files": [{"path": "a/b", "size_bytes": 7}]}


def parsed(**changes: object) -> ImportedTorrent:
    return parse_line(msgspec.json.encode({**FIELDS, **changes}), NOW)


@pytest.mark.parametrize(("v1", "v2"), [(True, False), (False, True), (True, True)])
def test_a_line_holds_all_that_is_stored_of_a_torrent(v1: bool, v2: bool) -> None:
    record = replace(torrent(3, 50, v1=v1, v2=v2), comment='über "x"\n\x00', created=1_500_000_000, private=True)
    stored = StoredTorrent(9, record, seen=1_790_000_000, seeders=5, leechers=2, counted=1_791_000_000)
    line = format_line(stored)
    assert b"\n" not in line
    assert parse_line(line, NOW) == (record, Popularity(record.keys[0], 5, 2, 1_791_000_000))
    uncounted = StoredTorrent(9, torrent(3), seen=1)
    assert parse_line(format_line(uncounted), NOW) == (torrent(3), None)


def test_fields_that_are_not_read_do_no_harm_and_infohashes_may_be_in_upper_case() -> None:
    record = TorrentRecord(bytes.fromhex(V1), None, "n", (StoredFile("a/b", 7),), 0, NOW)
    assert parsed(**{"future field": [1], "size_bytes": -3}) == (record, None)
    assert parsed(infohash_v1=V1.upper()).record == record


@pytest.mark.parametrize("end", [b"", b',"files":null', b',"files":[]'])
def test_a_line_without_known_files_is_not_read_as_a_torrent_without_files(end: bytes) -> None:
    with pytest.raises(FilesUnknown) as raised:
        parse_line(b'{"infohash_v1":"%s","name":"n"%s}' % (V1.encode(), end), NOW)
    assert raised.value.record.infohash_v1 == bytes.fromhex(V1)


def test_unknown_values_may_be_null() -> None:
    names = ("infohash_v2", "piece_bytes", "private", "comment", "created", "discovered", "seeders", "counted")
    found = parsed(**dict.fromkeys(names))
    assert (found.record.infohash_v2, found.record.comment, found.record.private) == (None, "", False)
    with pytest.raises(BadTorrentLine):
        parsed(infohash_v1=None, infohash_v2=None)


def test_implausible_and_future_dates_are_not_taken() -> None:
    assert parsed(discovered=NOW + 10**6).record.discovered == NOW
    assert parsed(discovered=5).record.discovered == 5
    assert [parsed(created=each).record.created for each in (0, -1, TIME_MAX + 1, 10**30, TIME_MAX)] == [
        *[None] * 4,
        TIME_MAX,
    ]
    assert parsed(counted=NOW + 9, seeders=1).popularity == Popularity(bytes.fromhex(V1), 1, 0, NOW)
    assert parsed(counted=0, seeders=1).popularity is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"name":"n","files":[]}', "an infohash of 20 bytes"),
        (b'{"infohash_v1":"%s","files":[]}' % V1.encode(), "`name`"),
        (b'{"infohash_v1":"%s","name":"\xff","files":[]}' % V1.encode(), "not UTF-8"),
        (b'{"infohash_v1":"%s","name":"\\ud800","files":[]}' % V1.encode(), "."),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (b'{"piece_bytes":1' + b"0" * 5000 + b"}", "."),
        (b"{" + b" " * LINE_MAX + b"}", "longer than"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else None,
)
def test_the_error_of_a_line_that_describes_no_torrent_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadTorrentLine, match=reason):
        parse_line(line, NOW)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"infohash_v1": V1[1:]}, "not 40 hexadecimal digits"),
        ({"infohash_v1": V1[:-2] + " 7"}, "not 40 hexadecimal digits"),
        ({"infohash_v1": "é" * 40}, "not 40 hexadecimal digits"),
        ({"infohash_v2": V1}, "not 64 hexadecimal digits"),
        ({"infohash_v1": V2[:40], "infohash_v2": V2}, "equals the first 20 bytes"),
        ({"files": [{"path": "a", "size_bytes": -1}]}, r"^files\[0\].size_bytes: Expected int >= 0$"),
        ({"files": [{"path": "a", "size_bytes": 2**63}]}, "size_bytes"),
        ({"files": [{"path": "a", "size_bytes": 2**62}] * 2}, "larger than"),
        ({"files": [{"path": 1, "size_bytes": 1}]}, "Expected str"),
        ({"piece_bytes": 1.5}, "Expected int"),
        ({"seeders": 2**31}, "seeders"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_error_of_a_field_that_cannot_be_stored_says_why(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(BadTorrentLine, match=reason):
        parsed(**changes)


def test_damaged_lines_raise_only_bad_torrent_line_or_files_unknown() -> None:
    rng = random.Random(seed := random.randrange(10**9))
    line = format_line(StoredTorrent(1, replace(torrent(1, 3, v2=True), comment="ü"), 5, 1, 1, 7))
    for _ in range(2000):
        damaged = bytearray(line)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            parse_line(bytes(damaged[: rng.randrange(1, len(damaged) + 1)]), NOW)
        except (BadTorrentLine, FilesUnknown):
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {bytes(damaged)!r}") from error


def test_a_magnet_link_has_both_infohashes_and_a_quoted_name() -> None:
    record = TorrentRecord(bytes.fromhex(V1), bytes.fromhex(V2), "a&b=ü /", (StoredFile("x", 7),), 0, NOW)
    assert magnet_link(record) == (f"magnet:?xt=urn:btih:{V1}&xt=urn:btmh:1220{V2}&dn=a%26b%3D%C3%BC%20%2F&xl=7")
    assert magnet_link(replace(record, infohash_v1=None, name="n")) == f"magnet:?xt=urn:btmh:1220{V2}&dn=n&xl=7"


def test_a_row_of_csv_has_the_number_of_files() -> None:
    record = replace(parsed().record, comment="c", created=3, private=True)
    stored = StoredTorrent(1, record, seen=4, seeders=5, leechers=6, counted=7)
    assert csv_row(stored) == (V1, "", "n", 7, 1, 0, 1, "c", 3, NOW, 4, 5, 6, 7, "", None)
    video = replace(stored, record=replace(record, content=ContentFacts(ContentType.VIDEO, 2040)))
    assert csv_row(video)[-2:] == ("video", 2040)
    assert len(csv_row(stored)) == len(CSV_FIELDS)


def test_facts_about_the_content_are_written_but_not_read() -> None:
    facts = ContentFacts(ContentType.VIDEO, 5040, 1080, season=0, languages=("zh", "en"))
    line = format_line(StoredTorrent(1, replace(parsed().record, content=facts), seen=4))
    assert msgspec.json.decode(line)["content"] == {
        "type": "video",
        "category": 5040,
        "resolution": 1080,
        "season": 0,
        "languages": ["zh", "en"],
    }
    assert parse_line(line, NOW).record.content is None
