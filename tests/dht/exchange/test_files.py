"""Sources in files: what is read from them, and that bad ones do not end an import."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lycosa.core.errors import UsageError
from lycosa.dht.core.bencode import encode
from lycosa.dht.exchange.bitmagnet import BitmagnetSource
from lycosa.dht.exchange.entries import EntryKind
from lycosa.dht.exchange.files import LinesSource, TorrentFilesSource
from lycosa.dht.exchange.magnetico import MagneticoSource
from lycosa.dht.exchange.sources import find_source
from lycosa.storage.core.torrent_line import LINE_MAX
from tests.dht.exchange.torrents import Imported, info_v1, info_v2, torrent_file

LINES = b'# torrents\n\n{"a":1}\nmagnet:?xt=x\n  0123  \n'


def of_lines(data: bytes, suffix: str = "") -> LinesSource:
    return LinesSource("lines", lambda: io.BytesIO(data), suffix)


def test_lines_are_json_or_infohashes_and_comments_are_skipped() -> None:
    assert [entry[:3] for entry in of_lines(LINES).entries()] == [
        ("line 3", EntryKind.LINE, b'{"a":1}'),
        ("line 4", EntryKind.INFOHASH, b"magnet:?xt=x"),
        ("line 5", EntryKind.INFOHASH, b"0123"),
    ]


def test_a_compressed_file_is_read_to_where_it_is_damaged_and_its_size_is_the_total(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINES * 1000)[:-8])
    source = find_source(str(path), io.BytesIO)
    *good, last = source.entries()
    assert len(good) == 3000
    assert last[:2] == ("line 5,001", EntryKind.BAD)
    assert b"end-of-stream" in last.data
    assert last.done == source.total == path.stat().st_size


def test_the_error_for_a_file_that_is_not_compressed_does_not_quote_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(LINES)
    [entry] = find_source(str(path), io.BytesIO).entries()
    assert entry.data == b"the file cannot be read further: not a gzip file"


def test_a_line_without_end_takes_no_more_memory_than_the_longest_allowed_line() -> None:
    [entry] = of_lines(b"{" * (LINE_MAX * 2)).entries()
    assert len(entry.data) == LINE_MAX + 2


def test_a_folder_yields_the_torrents_of_all_its_subfolders(tmp_path: Path) -> None:
    both = {**info_v1(b"hybrid"), **info_v2(b"hybrid")}
    for name, info in (("1.torrent", info_v1()), ("x/2.TORRENT", info_v2(b"v2")), ("x/y/3.torrent", both)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(torrent_file(info, announce=b"http://tracker", nodes=[[b"h", 1]]))
    (tmp_path / "x" / "again").symlink_to(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    source = find_source(str(tmp_path), io.BytesIO)
    assert source.total == 3
    imported = Imported().run(source)
    assert (imported.counts.new, imported.counts.total, imported.done) == (3, 3, [3])
    assert imported.names() == ["film", "v2", "hybrid"]


def test_info_comment_and_date_of_a_torrent_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.torrent"
    fields = {"creation_date": 1_500_000_000, "comment": b"by \xff me", "announce": b"http://tracker"}
    path.write_bytes(torrent_file(info_v1(), **fields))
    [row] = _stored(Imported().run(TorrentFilesSource(path)))
    assert row.infohash_v1 == hashlib.sha1(encode(info_v1())).digest()
    assert [(file.path, file.size_bytes) for file in row.files] == [("a/b.txt", 5), ("c.txt", 6)]
    assert (row.created, row.comment, row.piece_bytes) == (1_500_000_000, "by \ufffd me", 16_384)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b""), "not a torrent file"),
        (lambda path: path.write_bytes(b"d4:infod4:name1:xee"), "without pieces"),
        (lambda path: path.write_bytes(b"d" * 100_000), "not a torrent file"),
        (
            lambda path: path.write_bytes(torrent_file(info_v1(files=[{b"length": 2**62, b"path": [b"a"]}] * 3))),
            "larger",
        ),
        (lambda path: os.truncate(path.touch() or path, 70 << 20), "larger than 64 MiB"),
    ],
    ids=["empty", "no torrent", "deep", "sizes", "large"],
)
def test_a_bad_torrent_file_is_reported_and_the_others_are_imported(
    make: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    make(tmp_path / "bad.torrent")
    (tmp_path / "good.torrent").write_bytes(torrent_file(info_v1()))
    imported = Imported().run(TorrentFilesSource(tmp_path))
    assert (imported.counts.new, imported.counts.bad) == (1, 1)
    [problem] = imported.problems
    assert problem.where == "bad.torrent"
    assert reason in problem.reason


def test_pipes_are_no_torrent_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.torrent")
    assert list(TorrentFilesSource(tmp_path).entries()) == []


def test_the_kind_of_a_source_is_recognised(tmp_path: Path) -> None:
    def stdin() -> io.BytesIO:
        return io.BytesIO(LINES)

    assert len(list(find_source("-", stdin).entries())) == 3
    (tmp_path / "db").write_bytes(b"SQLite format 3\0 and more")
    assert isinstance(find_source(str(tmp_path / "db"), stdin), MagneticoSource)
    (tmp_path / "list").write_bytes(LINES)
    assert isinstance(find_source(str(tmp_path / "list"), stdin), LinesSource)
    bitmagnet = find_source("postgresql://me:secret@host/bitmagnet?sslmode=require", stdin)
    assert isinstance(bitmagnet, BitmagnetSource)
    assert bitmagnet.name == "postgresql://host/bitmagnet"
    with pytest.raises(UsageError, match="no such file"):
        find_source(str(tmp_path / "none"), stdin)


def _stored(imported: Imported) -> list:
    return [row.record for row in asyncio.run(imported.store.torrents(0, 10))]
