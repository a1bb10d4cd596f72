"""Files that cannot be opened, full disks, torn writes and power loss (C8)."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from lycosa.core.errors import StorageError, StorageFull
from lycosa.storage.sinks.file import FileSink
from tests.storage.output_files import lines
from tests.storage.written_sinks import COMPRESSED, FILES, file_harness, file_size_limit, open_error, put, run


def test_an_incomplete_last_line_is_ended(tmp_path):
    path = tmp_path / "i.jsonl"
    path.write_text('{"other": 1}\n{"half')
    asyncio.run(run(FileSink(path), None, {"n": 1}))
    assert path.read_text() == '{"other": 1}\n{"half\n{"n":1}\n'


def test_the_name_has_the_resolved_path(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {FileSink(path).name for path in ("i.jsonl", "./i.jsonl", tmp_path / "link" / "i.jsonl")}
    assert names == {f"jsonl:{tmp_path.resolve()}/i.jsonl"}


def test_a_truncated_edited_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "i.jsonl"
    committed = asyncio.run(run(FileSink(path), None, {"n": 1}, {"n": 2}))
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert f"holds {committed - 3} bytes, but the crawl wrote {committed}" in open_error(FileSink(path), committed)
    assert path.read_bytes() == content[:-3], "refused, but changed nevertheless"
    path.write_bytes(b"x" * 100)
    assert "other content" in open_error(FileSink(path), committed)
    path.unlink()
    assert "no longer exists" in open_error(FileSink(path), committed)
    assert not path.exists()


def test_impossible_paths_are_refused(tmp_path):
    assert "there is no folder" in open_error(FileSink(tmp_path / "no" / "i.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    assert "Is a directory" in open_error(FileSink(tmp_path / "folder.jsonl"))
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in open_error(FileSink(tmp_path / "pipe.jsonl"))
    assert "File name too long" in open_error(FileSink(tmp_path / ("n" * 300 + ".jsonl")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_missing_permissions_are_reported(tmp_path):
    (tmp_path / "i.jsonl").touch(mode=0o400)
    assert "Permission denied" in open_error(FileSink(tmp_path / "i.jsonl"))
    (tmp_path / "folder").mkdir(mode=0o500)
    assert "Permission denied" in open_error(FileSink(tmp_path / "folder" / "i.jsonl"))


def test_two_crawls_cannot_write_to_the_same_file(tmp_path):
    async def both() -> None:
        first = FileSink(tmp_path / "i.jsonl")
        await first.open(None)
        put(first, {"n": 1})
        position = await first.flush()
        with pytest.raises(StorageError, match="another process writes to it"):
            await FileSink(tmp_path / "i.jsonl").open(0)
        assert (tmp_path / "i.jsonl").stat().st_size == position
        await first.close()
        assert await run(FileSink(tmp_path / "i.jsonl"), position) == position

    asyncio.run(both())


def test_a_full_disk_leaves_complete_lines_and_the_next_flush_writes_the_rest(tmp_path):
    async def fill() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
        await sink.open(None)
        put(sink, {"n": 1})
        committed = await sink.flush()
        for n in range(100):
            put(sink, {"n": n, "text": "x" * 100})
        with file_size_limit(5000), pytest.raises(StorageFull, match=r"i\.jsonl: no space left"):
            await sink.flush()
        assert (tmp_path / "i.jsonl").stat().st_size == committed
        assert await sink.flush() == (tmp_path / "i.jsonl").stat().st_size
        await sink.close()

    asyncio.run(fill())
    assert [item["n"] for item in lines(tmp_path / "i.jsonl")] == [1, *range(100)]


def test_partial_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:7], at))
    asyncio.run(run(FileSink(tmp_path / "i.jsonl"), None, *({"n": n} for n in range(20))))
    assert [item["n"] for item in lines(tmp_path / "i.jsonl")] == list(range(20))


def test_sync_calls_fsync_and_reports_its_error(tmp_path, monkeypatch):
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl", sync=True)
        await sink.open(None)
        put(sink, {"n": 1})
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            await sink.flush()
        await sink.close()

    asyncio.run(write())


RESUMABLE = [kind for kind in FILES if not kind.startswith("json.") and kind != "json"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", *COMPRESSED])
def test_a_torn_last_write_is_cut_off_wherever_it_ends(tmp_path, kind):
    harness, path = file_harness(kind, tmp_path), tmp_path / f"items.{kind}"
    committed = asyncio.run(run(harness.make(), None, {"n": 1}))
    asyncio.run(run(harness.make(), committed, {"n": 2}, {"n": 3}))
    whole = path.read_bytes()
    for end in range(committed, len(whole) + 1):
        path.write_bytes(whole[:end])
        assert asyncio.run(run(harness.make(), committed, {"n": 4})) > committed
        assert harness.read() == [{"n": 1}, {"n": 4}]


@pytest.mark.parametrize("kind", RESUMABLE)
def test_with_sync_a_flush_is_on_the_disk_before_it_returns(tmp_path, monkeypatch, kind):
    sink = FILES[kind](tmp_path / f"items.{kind}")
    sink._sync = True  # type: ignore[attr-defined]
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), synced.append(os.fstat(fd).st_ino)))

    async def write() -> None:
        await sink.open(None)
        synced.clear()
        put(sink, {"n": 1})
        await sink.flush()
        if kind == "sqlite":
            (level,) = sink._database.execute("PRAGMA synchronous").fetchone()  # type: ignore[attr-defined]
            assert level == 2, "FULL: SQLite syncs its log at each commit"
        else:
            assert synced == [(tmp_path / f"items.{kind}").stat().st_ino]
        await sink.close()

    asyncio.run(write())
