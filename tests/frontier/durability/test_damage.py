"""Inexact, missing and damaged Bloom filters, and damaged write-ahead logs (F4, F7)."""

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
from msgspec.structs import replace

from lycosa.core import bloom
from lycosa.core.errors import StorageError, StorageFull
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm import memtable, store
from lycosa.frontier.lsm.frontier import embedded_frontier

POLICY = Policy(robots=False)
HOST = "http://shop.example:80"
URLS = 2000


def record(number: int) -> UrlRecord:
    return UrlRecord(1, (number + 1) * 0x9E37_79B9_7F4A_7C15 % 2**64, f"http://shop.example/{number}", HOST)


@contextmanager
def open_frontier(path: Path) -> Iterator[LocalFrontier[bytes]]:
    frontier = embedded_frontier(path, POLICY, now=1.0, expected=URLS)
    try:
        yield frontier
    finally:
        asyncio.run(frontier.close())


def push(frontier: LocalFrontier[bytes], numbers: Iterable[int]) -> int:
    """Push these with a commit each; return how many were new."""

    async def run() -> int:
        pushed = 0
        for number in numbers:
            pushed += await frontier.push([record(number)])
            await frontier.commit({})
        return pushed

    return asyncio.run(run())


def queued(path: Path) -> int:
    with open_frontier(path) as frontier:
        return asyncio.run(frontier.stats()).queued


def log_files(path: Path) -> list[Path]:
    return sorted(path.glob("journal.*"), key=lambda file: int(file.suffix[1:]))


def test_no_url_is_dropped_although_half_of_the_filter_answers_are_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(bloom, "FALSE_POSITIVES", 0.5)
    with open_frontier(tmp_path) as frontier:
        assert push(frontier, range(0, URLS, 2)) == URLS // 2
        frontier.store.checkpoint()  # later look-ups must read the disk
        assert push(frontier, range(URLS)) == URLS // 2
        assert push(frontier, range(URLS)) == 0
        stats = asyncio.run(frontier.stats())
    assert stats.queued == URLS
    assert stats.lookups_settled < 0.9 * URLS, "the filter is more exact than the test assumes"


@pytest.mark.parametrize("fault", ["missing", "missing layer", "damaged", "damaged layer"])
def test_an_unusable_filter_is_rebuilt(tmp_path, caplog, fault):
    caplog.set_level("INFO", "lycosa.frontier")
    with open_frontier(tmp_path) as frontier:
        push(frontier, range(100))
        frontier.store.checkpoint()
    file = tmp_path / ("filter.0.0" if "layer" in fault else "filter.0")
    if "missing" in fault:
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[20] ^= 0xFF
        file.write_bytes(content)
    with open_frontier(tmp_path) as frontier:
        assert "missing or damaged: rebuilt from 100 URLs" in caplog.text
        assert push(frontier, range(101)) == 1
    caplog.clear()
    assert queued(tmp_path) == 101
    assert not caplog.text


def test_the_filter_files_of_archived_segments_are_deleted_and_not_written_again(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(store, "FILTERS_DELETED_MAX", 2)
    caplog.set_level("INFO", "lycosa.frontier")

    def files() -> set[str]:
        return {file.name for file in tmp_path.glob("filter.*")}

    async def archive(frontier: LocalFrontier[bytes], name: str) -> None:
        await frontier.push([replace(record(0), segment=name)])
        (lease,) = await frontier.lease(1, 1.0)
        await frontier.ack(lease, "200", [], 1.0)
        await frontier.commit({})
        assert frontier.store.archive(name)

    with open_frontier(tmp_path) as frontier:
        for name in "abc":
            asyncio.run(archive(frontier, name))
        archived = files()
        push(frontier, range(10))
        frontier.store.checkpoint()
        assert len(archived & files()) == len(archived) / 3, "those of two segments are deleted"
    with open_frontier(tmp_path) as frontier:
        for number in (10, 11):
            push(frontier, [number])
            frontier.store.checkpoint()
            assert files()
            assert not files() & archived
    with open_frontier(tmp_path) as frontier:
        assert push(frontier, range(12)) == 0
        assert [each.row.state for each in frontier.store.registry.live.values()].count("archived") == 3
    assert "rebuilt" not in caplog.text


@pytest.mark.parametrize("damage", ["torn", "damaged"])
def test_the_newest_log_is_read_up_to_the_damage(tmp_path, damage):
    with open_frontier(tmp_path) as frontier:
        push(frontier, range(100))
    log = log_files(tmp_path)[-1]
    content = bytearray(log.read_bytes())
    half = len(content) // 2
    content[half] ^= 0xFF
    log.write_bytes(content[:half] if damage == "torn" else content)
    remaining = queued(tmp_path)
    assert 40 < remaining < 60
    with open_frontier(tmp_path) as frontier:
        assert push(frontier, range(100)) == 100 - remaining
    assert queued(tmp_path) == 100


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_an_unreadable_older_log_is_refused(tmp_path, monkeypatch, damage):
    monkeypatch.setattr("lycosa.frontier.lsm.memtable.MEMTABLE_MAX", 100)
    with open_frontier(tmp_path) as frontier:
        table = frontier.store.memtable
        number = 0
        while not table.frozen:
            push(frontier, [number])
            number += 1
    older, _ = log_files(tmp_path)
    if damage == "missing":
        older.unlink()
    else:
        content = bytearray(older.read_bytes())
        content[len(content) // 2] ^= 0xFF
        older.write_bytes(content)
    with pytest.raises(StorageError, match="is missing" if damage == "missing" else "is damaged at byte"):
        queued(tmp_path)


def test_the_old_log_stays_in_use_if_the_next_cannot_be_created(tmp_path, monkeypatch):
    monkeypatch.setattr(memtable, "MEMTABLE_MAX", 50)
    with open_frontier(tmp_path) as frontier:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", Mock(side_effect=OSError(errno.ENOSPC, "no inode left")))
            with pytest.raises(StorageFull):
                push(frontier, range(100))
        assert push(frontier, range(100)) > 0
    assert queued(tmp_path) == 100


def test_every_later_call_reports_the_first_error(tmp_path, monkeypatch):
    """A failed LMDB transaction loses its rows, and only the log still has them. So the open frontier must not
    continue; the next opening reads them from the log.
    """
    monkeypatch.setattr(memtable, "MEMTABLE_MAX", 50)
    unlimited = getrlimit(RLIMIT_FSIZE)
    smallest = 4096

    def limit(step: str) -> None:
        if step == "log rotated":
            setrlimit(RLIMIT_FSIZE, (smallest, unlimited[1]))

    frontier = embedded_frontier(tmp_path, POLICY, now=1.0, on_step=limit)
    try:
        with pytest.raises(StorageError, match="too large"):
            push(frontier, range(100))
    finally:
        setrlimit(RLIMIT_FSIZE, unlimited)
    for call in (lambda: push(frontier, [1000]), lambda: frontier.store.memtable.database.get(0, b"key")):
        with pytest.raises(StorageError, match="too large"):
            call()
    asyncio.run(frontier.close())
    assert queued(tmp_path) > 0
