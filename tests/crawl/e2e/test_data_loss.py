"""Regression tests for bugs that lost data (C2, C6, C8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lycosa.app.search import open_index
from tests.cli.command import items, lycosa
from tests.servers.tree import grow

SPIDER = """
import asyncio
import lycosa

class S(lycosa.Spider):
    name = "s"
    start_urls = ["{base}0", "{base}2"]

    def parse(self, response):
        yield {{"url": response.url}}
        yield response.follow("/1", self.parse)
        if response.url.endswith("/0"):
            {line}
"""


def crawl(home: Path, url: str, *more: object, code: int = 0) -> str:
    done = lycosa("crawl", url, *more, cwd=home)
    assert done.returncode == code, done.stderr
    return done.stderr


def documents(home: Path) -> int:
    index = open_index(home / "index")
    try:
        return index.count()
    finally:
        index.close()


def test_a_second_crawl_into_the_same_file_keeps_its_items(tmp_path):
    with grow(5) as first, grow(7) as second:
        for tree in (first, second, first, second, first):
            crawl(tmp_path, tree.url, "-o", "both.jsonl")
        urls = [item["url"] for item in items(tmp_path / "both.jsonl")]
        assert sorted(urls) == sorted(first.urls() | second.urls())


def test_an_interrupted_crawl_resumes_after_the_items_of_another(tmp_path):
    with grow(12) as first, grow(7) as second:
        crawl(tmp_path, first.url, "-o", "both.jsonl", "--max-pages", 4)
        crawl(tmp_path, second.url, "-o", "both.jsonl")
        crawl(tmp_path, first.url, "-o", "both.jsonl")
        urls = [item["url"] for item in items(tmp_path / "both.jsonl")]
        assert sorted(urls) == sorted(first.urls() | second.urls())


@pytest.mark.parametrize(
    "line",
    [
        "yield response.follow('/2', priority=1.5)",
        "yield response.follow('/2', priority=True)",
        "yield response.follow('/2', priority=10**30)",
        "yield response.follow('/2', not_before=float('inf'))",
        "yield response.follow('/2', meta={1: 2})",
        "yield response.follow('/2', headers={'X-Id': '\\ud800'})",
        "yield response.follow('/2', cb_kwargs={'\\ud800': 1})",
        "raise ValueError('bad \\ud800 title')",
        "raise SystemExit('enough')",
        "yield {'odd': object()}",
        "raise asyncio.CancelledError",
    ],
)
def test_a_page_that_cannot_be_settled_is_dead_and_the_crawl_continues(tmp_path, line):
    with grow(3) as tree:
        base = tree.url.removesuffix("0")
        (tmp_path / "s.py").write_text(SPIDER.format(base=base, line=line))
        done = lycosa("runspider", "s.py", "-o", "items.jsonl", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "internal error" not in done.stderr
        assert {item["url"] for item in items(tmp_path / "items.jsonl")} == {f"{base}1", f"{base}2"}
        second = lycosa("runspider", "s.py", "-o", "items.jsonl", cwd=tmp_path)
        assert second.returncode == 1
        assert "nothing to do" in second.stderr


def test_changed_rules_apply_to_queued_requests(tmp_path):
    with grow(40) as tree:
        crawl(tmp_path, tree.url, "-o", "items.jsonl", "--max-pages", 4)
        crawl(tmp_path, tree.url, "-o", "items.jsonl", "--deny", "*")
        assert len(items(tmp_path / "items.jsonl")) == 4


def test_the_state_of_another_spider_is_refused(tmp_path):
    spider = SPIDER.replace('name = "s"', 'name = "{name}"')
    with grow(3) as tree:
        for name in ("one", "two"):
            (tmp_path / f"{name}.py").write_text(spider.format(name=name, base=tree.url.removesuffix("0"), line="pass"))
        assert lycosa("runspider", "one.py", "--state", "state", "-o", "a.jsonl", cwd=tmp_path).returncode == 0
        other = lycosa("runspider", "two.py", "--state", "state", "-o", "b.jsonl", cwd=tmp_path)
        assert (other.returncode, other.stderr.count("\n")) == (3, 1)
        assert "the spider 'one'" in other.stderr
        assert json.loads((tmp_path / "state" / "crawl.json").read_text())["spider"] == "one"


def test_a_fresh_start_removes_only_the_documents_of_its_own_crawl_from_the_index(tmp_path):
    with grow(8) as tree, grow(3) as other:
        index = ("--index", "index")
        crawl(tmp_path, tree.url, "-o", "a.jsonl", *index)
        crawl(tmp_path, tree.url, "-O", "a.jsonl", *index, "--max-pages", 2)
        assert documents(tmp_path) == 2
        crawl(tmp_path, other.url, "-o", "b.jsonl", *index)
        crawl(tmp_path, tree.url, "-O", "a.jsonl", *index, "--max-pages", 1)
        assert documents(tmp_path) == 2 + 3


def test_a_state_without_its_database_is_refused(tmp_path):
    with grow(8) as tree:
        crawl(tmp_path, tree.url, "-o", "a.jsonl", "--state", "state")
        (tmp_path / "state" / "frontier" / "data.mdb").write_bytes(b"")
        assert "is missing or empty" in crawl(tmp_path, tree.url, "-o", "a.jsonl", "--state", "state", code=3)
        assert len(items(tmp_path / "a.jsonl")) == 8
        crawl(tmp_path, tree.url, "-O", "a.jsonl", "--state", "state")
        assert len(items(tmp_path / "a.jsonl")) == 8
