"""A nearly full disk: the crawl pauses with a message and resumes by itself; Ctrl-C ends it as usual."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import assert_exactly_once, assert_one_line, items, lycosa, start_command
from tests.conftest import need
from tests.servers.tree import Tree, grow

MB = 10**6
FLOOR = 24 * MB
PAGES, TEXT_BYTES = 300, 100_000
DISK_BYTES = 64 * MB


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system in memory with room for all items and little else."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "lycosa-test", path]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    need("the right to mount a tmpfs (root)", bool(mounted))
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def free(disk: Path) -> int:
    device = os.statvfs(disk)
    return device.f_bavail * device.f_frsize


def hits_after_transfers(tree: Tree) -> int:
    """Wait for requests under way. Return the number of requests."""
    hits = -1
    while hits != (now := len(tree.hits())):
        hits = now
        time.sleep(1.0)
    return hits


def command(tree: Tree, *more: object) -> list[object]:
    return ["crawl", tree.url, "-o", "disk/items.jsonl", "--state", "disk/state", "--free-space", "24MB", *more]


def test_a_crawl_pauses_before_the_disk_is_full_and_resumes_when_there_is_space(tmp_path, disk):
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (free(disk) - FLOOR - 10 * MB))
    with grow(PAGES, text_bytes=TEXT_BYTES, delay_s=0.01) as tree:
        with start_command(*command(tree), cwd=tmp_path) as run:
            assert run.until(lambda: "paused: " in run.stderr)
            assert "MB free at" in run.stderr
            assert "26 MB needed; the crawl resumes automatically when there is space" in run.stderr
            assert run.until(lambda: "pages, paused (" in run.stderr)
            hits = hits_after_transfers(tree)
            time.sleep(4.0)
            assert len(tree.hits()) == hits < PAGES, "the space was checked again, and nothing was leased"
            assert FLOOR * 0.6 < free(disk) < FLOOR, "the space below the floor is for transfers under way"
            at = time.monotonic()
            run.process.send_signal(signal.SIGINT)
            assert run.end() == 130
            assert time.monotonic() - at < 20.0
        with start_command(*command(tree), cwd=tmp_path) as run:
            assert run.until(lambda: "paused: " in run.stderr), "paused from the start"
            assert len(tree.hits()) == hits
            ballast.unlink()
            assert run.end() == 0
            assert "enough space again: the crawl resumes" in run.stderr
        assert_exactly_once([item["url"] for item in items(disk / "items.jsonl")], tree.urls())
        assert "Traceback" not in run.stderr


def test_without_a_floor_a_full_disk_ends_the_crawl(tmp_path, disk):
    (disk / "ballast").write_bytes(b"x" * (free(disk) - 10 * MB))
    with grow(PAGES, text_bytes=TEXT_BYTES) as tree:
        full = lycosa(*command(tree), "--free-space", "0", "-q", cwd=tmp_path)
        assert full.returncode == 3
        assert "no space left" in assert_one_line(full.stderr)


def test_a_floor_above_the_size_of_the_disk_pauses_the_crawl_until_interrupted(tmp_path):
    with (
        grow(3) as tree,
        start_command("crawl", tree.url, "-o", "i.jsonl", "--free-space", "1000000GB", cwd=tmp_path) as run,
    ):
        assert run.until(lambda: "paused: " in run.stderr)
        assert tree.hits() == []
        assert run.until(lambda: any(tmp_path.glob(".lycosa/*/socket")))
        lines = lycosa("frontier", "explain", tree.url, cwd=tmp_path).stdout.splitlines()
        assert lines[1] == "  queued"
        assert lines[2].startswith("  the crawl is paused: ")
        assert " TB needed" in lines[2]
        assert "  paused    " in lycosa("frontier", "status", cwd=tmp_path).stdout
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 130
