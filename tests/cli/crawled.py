"""Runs `lycosa crawl` in a child process, and reads the results from the written items and the printed summary."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cli.command import items, lycosa

END_MAX_S = 300.0
"""No misbehaving server keeps a crawl longer than this, even on a busy machine."""


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """How a crawl ended.

    The keys of `items` and `dead` are the paths and queries of URLs: `items` has the item of each page, `dead` has the
    reason why a URL is dead. `done` and `skipped` count URLs by reason.
    """

    code: int
    stderr: str
    took_s: float
    items: dict[str, dict[str, Any]]
    done: dict[str, int]
    skipped: dict[str, int]
    dead: dict[str, str]


def crawl(home: Path, *arguments: object) -> CrawlResult:
    """Crawl with a state and an output in `home`. Asserts that no URL has two items, and that there is no traceback."""
    started_at = time.monotonic()
    done = lycosa("crawl", *arguments, "-o", "items.jsonl", "--state", "state", cwd=home, timeout_s=END_MAX_S)
    took_s = time.monotonic() - started_at
    assert done.stdout == ""
    assert "Traceback" not in done.stderr, done.stderr
    written = items(home / "items.jsonl")
    by_path = {_path(item["url"]): item for item in written}
    assert len({item["url"] for item in written}) == len(written)
    dead = dict(re.findall(r"^ {10}(\S+)  (.+)$", done.stderr, re.MULTILINE))
    return CrawlResult(
        done.returncode,
        done.stderr,
        took_s,
        by_path,
        _counts(done.stderr, "done"),
        _counts(done.stderr, "skipped"),
        {_path(url): reason for url, reason in dead.items()},
    )


def _counts(summary: str, row: str) -> dict[str, int]:
    found = re.search(rf"^  {row} .*?\((.+)\)$", summary, re.MULTILINE)
    pairs = (each.rpartition(": ") for each in found[1].split(", ")) if found else ()
    return {reason: int(number.replace(",", "")) for reason, _, number in pairs}


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
