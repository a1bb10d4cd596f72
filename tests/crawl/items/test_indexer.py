"""The indexer follows a file that is being written, and never reads beyond its limit (C7: index and items agree)."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from lycosa.app.search import open_index
from lycosa.core.errors import IndexFailure
from lycosa.crawl.items import indexer as module
from lycosa.crawl.items.indexer import COMMIT_S, Indexer, read_batch, source_name
from lycosa.crawl.items.page_item import PageItem
from lycosa.search.pages import PageIndex
from lycosa.storage.sinks.file import FileSink
from tests.search.indexes import create_pages

SOURCE = "jsonl:items"
DEADLINE_S = 30.0


def line(item: object) -> bytes:
    return msgspec.json.encode(item) + b"\n"


def page(n: int, **changes: object) -> PageItem:
    url = f"http://h/{n}"
    at = "2026-11-21T07:00:00Z"
    made = PageItem(url, url, 200, "text/html", f"page n{n}", ["Heading"], "the text", "en", 0, at, 1, f"{n:016x}")
    return msgspec.structs.replace(made, **changes)


def append(path: Path, *lines: bytes) -> int:
    """Return the size of the file."""
    with path.open("ab") as file:
        file.write(b"".join(lines))
    return path.stat().st_size


@pytest.fixture
def items(tmp_path) -> Path:
    path = tmp_path / "items.jsonl"
    path.touch()
    return path


@pytest.fixture
def index(tmp_path):
    with closing(create_pages("fts5", tmp_path / "pages")) as index:
        yield index


@pytest.fixture
def started(index, items):
    made: list[Indexer] = []

    def start() -> Indexer:
        made.append(Indexer(index, items, SOURCE))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.error = None
        each.close(drain=False)


def until(condition) -> float:
    """Wait until the condition holds. Return the seconds waited."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < DEADLINE_S
        time.sleep(0.005)
    return time.monotonic() - started


def test_the_indexer_reads_up_to_the_limit(index, items, started):
    limit = append(items, *(line(page(n)) for n in range(500)))
    append(items, line(page(500)), b'{"half": ')
    indexer = started()
    indexer.advance(limit)
    indexer.close()
    assert (index.count(), index.positions(), indexer.position) == (500, {SOURCE: limit}, limit)
    assert index.search("n500").total == 0
    assert (indexer.documents, indexer.broken) == (500, 0)


def test_pages_are_searchable_within_the_promised_time(index, items, started):
    indexer = started()
    for n in range(3):
        indexer.advance(append(items, line(page(n))))
        took_s = until(lambda: index.search(f"n{n}").total == 1)  # noqa: B023
        assert took_s < COMMIT_S + 10
    assert index.positions()[SOURCE] == items.stat().st_size


def test_a_steady_stream_is_committed_every_second(index, items, started):
    indexer = started()
    counts = set()

    def goes_on() -> bool:
        indexer.advance(append(items, line(page(next(numbers)))))
        counts.add(index.count())
        return len(counts) >= 3

    numbers = itertools.count()
    assert until(goes_on) < 2 * COMMIT_S + 10, "the count is first 0, and then changes with two commits"


def test_the_indexer_continues_at_the_committed_position(index, items, started):
    first = append(items, line(page(1)))
    indexer = started()
    indexer.advance(first)
    indexer.close()
    second = append(items, line(page(2)))
    again = started()
    assert again.position == first
    again.advance(second)
    again.close()
    assert (again.documents, index.count()) == (1, 2)


def test_after_a_close_without_drain_the_next_indexer_reads_the_uncommitted_items(index, items, started, monkeypatch):
    monkeypatch.setattr(module, "COMMIT_S", 3600.0)
    limit = append(items, line(page(1)))
    indexer = started()
    indexer.advance(limit)
    until(lambda: indexer.documents == 1)
    indexer.close(drain=False)
    assert (index.positions(), indexer.position) == ({}, 0)
    again = started()
    again.advance(limit)
    again.close()
    assert (again.documents, index.count(), index.positions()) == (1, 1, {SOURCE: limit})


def test_broken_lines_are_counted_and_skipped(index, items, started):
    broken = [b"not json\n", b"[1, 2]\n", b'"text"\n', b"\xff\xfe\n", b'{"url": "\\ud800"}\n', b"[" * 5000 + b"\n"]
    limit = append(items, line(page(1)), *broken, b"\n", line(page(2)))
    indexer = started()
    indexer.advance(limit)
    indexer.close()
    assert (index.count(), indexer.broken, indexer.position) == (2, len(broken), limit)


def test_a_line_that_is_too_long_is_broken(items, monkeypatch):
    monkeypatch.setattr(module, "LINE_MAX", 1000)
    limit = append(items, line(page(1)), line(page(2, text="x" * 5000)), line(page(3)))
    batch = read_batch(items, 0, limit)
    assert ([document.title for document in batch.documents], batch.broken) == (["page n1", "page n3"], 1)
    assert batch.position == limit


def test_a_last_line_without_newline_counts_if_complete(items):
    size = append(items, line(page(1)), line(page(2))[:-1])
    batch = read_batch(items, 0, size)
    assert (len(batch.documents), batch.position, batch.broken) == (2, size, 0)
    grown = append(items, b"\n", line(page(3)))
    batch = read_batch(items, size, grown)
    assert (len(batch.documents), batch.position, batch.broken) == (1, grown, 0)


def test_a_partly_written_line_is_read_later(index, items, started):
    whole = line(page(1))
    indexer = started()
    indexer.advance(append(items, whole[:30]))
    indexer.advance(append(items, whole[30:]))
    indexer.close()
    assert (index.count(), indexer.broken) == (1, 0)


@pytest.mark.parametrize("content", [b"", line(page(1))[:20], line(page(7, text="another file" * 50)), b"x" * 10_000])
def test_a_replaced_file_is_detected(index, items, content):
    index.commit({SOURCE: append(items, line(page(1)), line(page(2)))})
    items.write_bytes(content)
    with pytest.raises(IndexFailure, match="is not the file that was indexed: `lycosa index build --fresh`") as caught:
        Indexer(index, items, SOURCE).start()
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_an_error(index, items, started):
    indexer = started()
    indexer.advance(append(items, line(page(1)), line(page(2))))
    until(lambda: indexer.position > 0)
    items.write_bytes(b"")
    indexer.advance(10_000)
    until(lambda: indexer.error is not None)
    with pytest.raises(IndexFailure, match="is not the file"):
        indexer.close()


class FullDisk(PageIndex):
    fields = {}

    def __init__(self):
        pass

    def add(self, documents):
        pass

    def positions(self):
        return {}

    def commit(self, positions):
        raise IndexFailure("the index cannot commit: No space left on device")


class Panic(BaseException):
    pass


class Panics(FullDisk):
    def add(self, documents):
        raise Panic("at the bottom")


@pytest.mark.parametrize(("broken", "message"), [(FullDisk, "No space left"), (Panics, "at the bottom")])
def test_a_failure_is_reported_and_does_not_block_the_crawl(items, broken, message):
    indexer = Indexer(broken(), items, SOURCE)
    indexer.start()
    indexer.advance(append(items, line(page(1))))
    until(lambda: indexer.error is not None)
    indexer.advance(append(items, line(page(2))))
    with pytest.raises(IndexFailure, match=message):
        indexer.close()
    assert indexer.position == 0


def test_close_before_start_is_harmless(index, items):
    Indexer(index, items, SOURCE).close()


def test_no_thread_is_left(index, items, started):
    started().close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("indexer")]


def test_the_indexer_feeds_the_real_index(items, tmp_path):
    index = open_index(tmp_path / "index", write=True)
    indexer = Indexer(index, items, source_name(items))
    indexer.start()
    indexer.advance(append(items, *(line(page(n)) for n in range(1000))))
    indexer.close()
    assert (index.count(), index.search("n777").total) == (1000, 1)
    index.close()


def test_the_source_has_the_name_of_the_sink(items):
    assert source_name(items) == FileSink(items).name
