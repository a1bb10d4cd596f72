"""Limits of a whole crawl apply to all its workers together (C3)."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import pytest

from tests.cli.command import items, start_command
from tests.servers.redis import RedisServer
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

PAGES_MAX, DELAY_S = 100, 0.1
EXCESS_MAX = 60
"""The pages that two workers with one request at a time fetch in three seconds: the workers hear of each other once a
second, and later on a busy machine. If each worker counted only its own pages, the two would fetch PAGES_MAX more."""


def crawled_by_two(home: Path, redis: RedisServer, *limit: object) -> tuple[list[str], str]:
    """Crawl with two workers until both end. Return the URLs of all pages, and what the workers printed."""
    options = ("--frontier", redis.url, "--crawl-name", token_hex(4), *limit, "--no-robots")
    with grow(400, delay_s=DELAY_S) as tree:

        def worker(number: int) -> tuple[object, ...]:
            return ("crawl", tree.url, "--concurrency", 1, "-o", f"{number}.jsonl", "--state", f"s{number}", *options)

        (home / "other").mkdir()
        with (
            start_command(*worker(1), cwd=home) as first,
            start_command(*worker(2), cwd=home / "other") as second,
        ):
            assert (first.end(), second.end()) == (0, 0), first.stderr + second.stderr
    found = [item["url"] for item in [*items(home / "1.jsonl"), *items(home / "other" / "2.jsonl")]]
    return found, first.stderr + second.stderr


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--max-pages", PAGES_MAX), "stopped at --max-pages 100"),
        (("--close-after-items", PAGES_MAX), "closed (closespider_itemcount)"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_workers_together_stop_at_the_limit(tmp_path: Path, redis: RedisServer, limit: tuple, reason: str) -> None:
    urls, printed = crawled_by_two(tmp_path, redis, *limit)
    assert printed.count(reason) == 2, printed
    assert len(urls) == len(set(urls))
    assert PAGES_MAX <= len(urls) <= PAGES_MAX + EXCESS_MAX
