"""A filter that errs, is gone or is damaged, and damaged journals: what becomes of the frontier (F4, F7)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from unittest.mock import Mock

import pytest

from lycosa.core import bloom
from lycosa.core.errors import StorageError, StorageFull
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm import memtable
from lycosa.frontier.lsm.frontier import embedded_frontier

POLICY = Policy(robots=False)
HOST = "http://shop.example:80"
URLS = 2000


def record(number: int) -> UrlRecord:
    return UrlRecord(1, (number + 1) * 0x9E37_79B9_7F4A_7C15 % 2**64, f"http://shop.example/{number}", HOST)


@contextmanager
def opened(path: Path) -> Iterator[LocalFrontier[bytes]]:
    frontier = embedded_frontier(path, POLICY, now=1.0, expected=URLS)
    try:
        yield frontier
    finally:
        asyncio.run(frontier.close())


def push(frontier: LocalFrontier[bytes], numbers: Iterable[int]) -> int:
    """Push these, a commit each, and return how many were new."""

    async def story() -> int:
        pushed = 0
        for number in numbers:
            pushed += await frontier.push([record(number)])
            await frontier.commit({})
        return pushed

    return asyncio.run(story())


def queued(path: Path) -> int:
    with opened(path) as frontier:
        return asyncio.run(frontier.stats()).queued


def journals(path: Path) -> list[Path]:
    return sorted(path.glob("journal.*"), key=lambda file: int(file.suffix[1:]))


def test_no_url_is_dropped_by_a_filter_that_errs_half_of_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(bloom, "FALSE_POSITIVES", 0.5)
    with opened(tmp_path) as frontier:
        assert push(frontier, range(0, URLS, 2)) == URLS // 2
        frontier.shelf.settle()  # what is looked up now is on the disk
        assert push(frontier, range(URLS)) == URLS // 2
        assert push(frontier, range(URLS)) == 0
        stats = asyncio.run(frontier.stats())
    assert stats.queued == URLS
    assert stats.lookups_settled < 0.9 * URLS, "the filter was not as bad as it was to be"


@pytest.mark.parametrize("what", ["gone", "layer gone", "damaged", "damaged layer"])
def test_a_filter_that_cannot_be_used_is_made_anew(tmp_path, caplog, what):
    caplog.set_level("INFO", "lycosa.frontier")
    with opened(tmp_path) as frontier:
        push(frontier, range(100))
        frontier.shelf.settle()
    file = tmp_path / ("filter.0.0" if "layer" in what else "filter.0")
    if "gone" in what:
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[20] ^= 0xFF
        file.write_bytes(content)
    with opened(tmp_path) as frontier:
        assert "missing or damaged: rebuilt from 100 URLs" in caplog.text
        assert push(frontier, range(101)) == 1
    caplog.clear()
    assert queued(tmp_path) == 101
    assert not caplog.text


@pytest.mark.parametrize("how", ["torn", "damaged"])
def test_the_newest_journal_is_read_up_to_where_it_is_damaged(tmp_path, how):
    with opened(tmp_path) as frontier:
        push(frontier, range(100))
    journal = journals(tmp_path)[-1]
    content = bytearray(journal.read_bytes())
    half = len(content) // 2
    content[half] ^= 0xFF
    journal.write_bytes(content[:half] if how == "torn" else content)
    left = queued(tmp_path)
    assert 40 < left < 60
    with opened(tmp_path) as frontier:
        assert push(frontier, range(100)) == 100 - left
    assert queued(tmp_path) == 100


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_an_older_journal_that_cannot_be_read_is_refused(tmp_path, monkeypatch, how):
    monkeypatch.setattr("lycosa.frontier.lsm.memtable.OVERLAY_MAX", 100)
    with opened(tmp_path) as frontier:
        frozen = frontier.shelf.tables
        number = 0
        while not frozen.frozen:
            push(frontier, [number])
            number += 1
    older, _ = journals(tmp_path)
    if how == "gone":
        older.unlink()
    else:
        content = bytearray(older.read_bytes())
        content[len(content) // 2] ^= 0xFF
        older.write_bytes(content)
    with pytest.raises(StorageError, match="is gone" if how == "gone" else "is damaged at byte"):
        queued(tmp_path)


def test_a_journal_that_cannot_begin_leaves_the_old_one_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(memtable, "OVERLAY_MAX", 50)
    with opened(tmp_path) as frontier:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", Mock(side_effect=OSError(errno.ENOSPC, "no inode left")))
            with pytest.raises(StorageFull):
                push(frontier, range(100))
        assert push(frontier, range(100)) > 0
    assert queued(tmp_path) == 100


def test_what_failed_first_is_what_every_later_call_complains_about(tmp_path, monkeypatch):
    """What a transaction that failed was to write is in the journal, and nowhere else in this process."""
    monkeypatch.setattr(memtable, "OVERLAY_MAX", 50)
    unlimited = getrlimit(RLIMIT_FSIZE)
    smallest = 4096

    def limit(step: str) -> None:
        if step == "journal begun":
            setrlimit(RLIMIT_FSIZE, (smallest, unlimited[1]))

    frontier = embedded_frontier(tmp_path, POLICY, now=1.0, on_step=limit)
    try:
        with pytest.raises(StorageError, match="too large"):
            push(frontier, range(100))
    finally:
        setrlimit(RLIMIT_FSIZE, unlimited)
    for again in (lambda: push(frontier, [1000]), lambda: frontier.shelf.tables.database.stored(0, b"key")):
        with pytest.raises(StorageError, match="too large"):
            again()
    asyncio.run(frontier.close())
    assert queued(tmp_path) > 0
