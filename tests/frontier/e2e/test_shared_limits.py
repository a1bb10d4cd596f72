"""What is limited for a whole crawl holds for all its workers together (C3)."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import pytest

from tests.cli.command import items, start_command
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

MOST, DELAY_S = 100, 0.1
MORE = 60
"""What two workers with one request at a time fetch in three seconds: they hear of each other once a second, and later
on a busy machine. Each for itself would fetch MOST more."""


def test_workers_stop_together_when_they_have_as_many_pages_as_were_asked_for(tmp_path: Path, redis) -> None:
    options = ("--frontier", redis.url, "--crawl-name", token_hex(4), "--max-pages", MOST, "--no-robots")
    with grow(400, delay_s=DELAY_S) as tree:

        def worker(number: int) -> tuple[object, ...]:
            return ("crawl", tree.url, "--concurrency", 1, "-o", f"{number}.jsonl", "--state", f"s{number}", *options)

        (tmp_path / "other").mkdir()
        with start_command(*worker(1), cwd=tmp_path) as one, start_command(*worker(2), cwd=tmp_path / "other") as two:
            assert (one.end(), two.end()) == (0, 0), one.stderr + two.stderr
    urls = [item["url"] for item in [*items(tmp_path / "1.jsonl"), *items(tmp_path / "other" / "2.jsonl")]]
    assert len(urls) == len(set(urls))
    assert MOST <= len(urls) <= MOST + MORE
