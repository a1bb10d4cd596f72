"""Limits of a whole crawl apply to all its workers together (C3)."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import pytest

from tests.cli.command import items, start_command
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

PAGES_MAX, DELAY_S = 100, 0.1
EXCESS_MAX = 60
"""What two workers with one request at a time fetch in three seconds: they hear of each other once a second, and later
on a busy machine. Each for itself would fetch MOST more."""


def test_workers_together_stop_at_the_maximum_number_of_pages(tmp_path: Path, redis) -> None:
    options = ("--frontier", redis.url, "--crawl-name", token_hex(4), "--max-pages", PAGES_MAX, "--no-robots")
    with grow(400, delay_s=DELAY_S) as tree:

        def worker(number: int) -> tuple[object, ...]:
            return ("crawl", tree.url, "--concurrency", 1, "-o", f"{number}.jsonl", "--state", f"s{number}", *options)

        (tmp_path / "other").mkdir()
        with (
            start_command(*worker(1), cwd=tmp_path) as first,
            start_command(*worker(2), cwd=tmp_path / "other") as second,
        ):
            assert (first.end(), second.end()) == (0, 0), first.stderr + second.stderr
    urls = [item["url"] for item in [*items(tmp_path / "1.jsonl"), *items(tmp_path / "other" / "2.jsonl")]]
    assert len(urls) == len(set(urls))
    assert PAGES_MAX <= len(urls) <= PAGES_MAX + EXCESS_MAX
