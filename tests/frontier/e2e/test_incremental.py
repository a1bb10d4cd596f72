"""Running a state again: only due pages are fetched, and unchanged pages cost only a 304 (C5, F2)."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from lycosa.crawl.engine.refresh import SLICE
from tests.cli.command import items, lycosa, start_command
from tests.servers.changing import Site, serve
from tests.servers.ports import closed_port
from tests.servers.tree import grow

PAGES = {"/": "<a href=/a>a</a>", "/a": "<a href=/b>b</a> <a href=/gone>gone</a>", "/b": "<p>the end</p>"}


def command(site: Site, *more: object) -> list[object]:
    return ["crawl", site.url, "-o", "items.jsonl", "--state", "state", *more]


def crawl(site: Site, cwd: Path, *more: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = lycosa(*command(site, *more), cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def later() -> None:
    """Let the pages become older than a second, the shortest possible age."""
    time.sleep(1.1)


def urls(cwd: Path) -> list[str]:
    return [re.sub(r"^http://[^/]+", "", item["url"]) for item in items(cwd / "items.jsonl")]


@pytest.mark.parametrize("validators", ["etag", "modified"])
def test_refresh_revalidates_and_unchanged_pages_write_no_item(tmp_path, validators):
    with serve(PAGES, validators) as site:
        crawl(site, tmp_path)
        assert site.take() == [("/", 200), ("/a", 200), ("/b", 200), ("/gone", 404)]
        assert "nothing to do" in crawl(site, tmp_path, "--refresh", "1h").stderr
        assert site.take() == [], "nothing is old enough"
        later()
        site.pages["/b"] = "<p>changed <a href=/new>new</a></p>"
        site.pages["/new"] = "new"
        second_run = crawl(site, tmp_path, "--refresh", "1s")
        assert site.take() == [("/", 304), ("/a", 304), ("/b", 200), ("/gone", 404), ("/new", 200)]
        assert "2 pages, 2 more unchanged, 2 items" in second_run.stderr.splitlines()[0]
        assert "(200: 2, unchanged: 2, 404: 1)" in second_run.stderr
        assert sorted(urls(tmp_path)) == ["/", "/a", "/b", "/b", "/new"]
        later()
        del site.pages["/b"]
        third_run = crawl(site, tmp_path, "--refresh", "1s")
        assert site.take() == [("/", 304), ("/a", 304), ("/b", 404), ("/gone", 404), ("/new", 304)], (
            "a 304 keeps the validators"
        )
        assert "(unchanged: 3, 404: 2)" in third_run.stderr


def test_validators_that_a_page_no_longer_sends_are_dropped(tmp_path):
    with serve({"/": "the same"}, "etag") as site:
        for validators in ("etag", "none", "etag"):
            if site.hits:
                later()
            site.validators = validators
            crawl(site, tmp_path, "--refresh", "1s")
        assert [status for _, status in site.hits] == [200, 200, 200], (
            "an old ETag is not sent for a page that came without one"
        )


def test_refresh_retries_dead_urls_that_are_old_enough(tmp_path):
    spider = ["crawl", f"http://127.0.0.1:{closed_port()}/", "-o", "items.jsonl", "--state", "state", "--retries", "0"]
    assert lycosa(*spider, "--no-robots", cwd=tmp_path).returncode == 1
    later()
    second_run = lycosa(*spider, "--no-robots", "--refresh", "1s", cwd=tmp_path)
    assert "finished: 0 pages" in second_run.stderr, "the dead URL was tried again"


def test_user_supplied_conditional_headers_are_kept(tmp_path):
    with serve(PAGES) as site:
        crawl(site, tmp_path)
        site.take()
        later()
        second_run = crawl(site, tmp_path, "--refresh", "1s", "--header", 'If-None-Match: "mine"')
        assert site.take() == [("/", 200), ("/a", 200), ("/b", 200), ("/gone", 404)]
        assert "unchanged" not in second_run.stderr


@pytest.mark.parametrize("age", ["-1", "0", "7y", "soon", "1e3", "99999999w"])
def test_invalid_age_is_rejected(tmp_path, age):
    refused = lycosa("crawl", "http://127.0.0.1:9/", f"--refresh={age}", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("lycosa: --refresh: ")
    assert "12h, 7d or 2w" in refused.stderr


def test_kills_during_a_refresh_lose_nothing(tmp_path):
    """After a kill the next run with the same age continues, and in the end every page was fetched again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pages = 300
    with grow(pages, delay_s=0.05) as tree:
        crawling = ["crawl", tree.url, "-o", "items.jsonl", "--state", "state"]
        assert lycosa(*crawling, cwd=tmp_path).returncode == 0
        later()
        refresh_at = time.time()
        for _ in range(3):
            age = time.time() - refresh_at + 1
            with start_command(*crawling, "--refresh", f"{age:.2f}s", cwd=tmp_path) as run:
                run.kill_at(run.started_at + rng.uniform(0.3, 1.2))
        done = lycosa(*crawling, "--refresh", f"{time.time() - refresh_at + 1:.2f}s", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        counts = Counter(hit.path for hit in tree.hits())
        assert min(counts[f"/{n}"] for n in range(pages)) >= 2
        written = [item["url"] for item in items(tmp_path / "items.jsonl")]
        assert len(written) >= 2 * pages
        assert re.search(rf"done +{pages} |\({pages} done", done.stderr), "no URL was lost"


DAYS = """
def resolve(first, now):
    import pathlib
    return pathlib.Path("today").read_text().strip()
"""


@pytest.fixture
def day(tmp_path):
    """A function that sets the day from which the crawl takes its segment."""
    (tmp_path / "days.py").write_text(DAYS)

    def set_(text: str) -> None:
        (tmp_path / "today").write_text(text)

    return set_


def test_links_of_unchanged_pages_are_not_lost_in_the_next_segment(tmp_path, day):
    with serve(PAGES) as site:
        day("2026-01-01")
        crawl(site, tmp_path, "--segment", "days:resolve")
        assert site.take() == [("/", 200), ("/a", 200), ("/b", 200), ("/gone", 404)]
        day("2026-01-02")
        site.pages["/b"], site.pages["/gone"] = "changed", "here again"
        second_run = crawl(site, tmp_path, "--segment", "days:resolve")
        assert site.take() == [("/", 304), ("/a", 304), ("/b", 200), ("/gone", 200)]
        assert "2 pages, 2 more unchanged" in second_run.stderr
        assert sorted(urls(tmp_path)) == ["/", "/a", "/b", "/b", "/gone"]
        assert "nothing to do" in crawl(site, tmp_path, "--segment", "days:resolve").stderr
        assert site.take() == []
        day("2026-01-03")
        crawl(site, tmp_path, "--segment", "days:resolve")
        assert site.take() == [("/", 304), ("/a", 304), ("/b", 304), ("/gone", 304)]


def test_unfinished_segment_is_finished_and_carried_over(tmp_path, day):
    with serve(PAGES) as site:
        day("2026-01-01")
        crawl(site, tmp_path, "--segment", "days:resolve", "--max-pages", 1)
        assert site.take() == [("/", 200)]
        day("2026-01-02")
        crawl(site, tmp_path, "--segment", "days:resolve")
        old = [("/a", 200), ("/b", 200), ("/gone", 404)]
        assert site.take() == sorted([*old, ("/", 304), ("/a", 304), ("/b", 304), ("/gone", 404)])


def test_page_limit_counts_per_segment(tmp_path, day):
    with serve(PAGES) as site:
        for number in (1, 2):
            day(f"2026-01-0{number}")
            crawl(site, tmp_path, "--segment", "days:resolve", "--max-pages", 2)
            assert len([status for _, status in site.take() if status in {200, 304}]) == 2


def test_kills_while_a_segment_is_carried_over_lose_nothing(tmp_path, day):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with grow(SLICE + 200) as tree:
        crawling = ["crawl", tree.url, "-o", "items.jsonl", "--state", "state", "--segment", "days:resolve"]
        day("2026-01-01")
        assert lycosa(*crawling, cwd=tmp_path).returncode == 0
        day("2026-01-02")
        for _ in range(3):
            with start_command(*crawling, cwd=tmp_path) as run:
                run.kill_at(run.started_at + rng.uniform(0.3, 0.7))
        done = lycosa(*crawling, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        counts = Counter(item["url"] for item in items(tmp_path / "items.jsonl"))
        assert counts == Counter(dict.fromkeys(tree.urls(), 2)), "once in each segment"


def test_dead_start_url_of_an_earlier_run_prints_a_hint(tmp_path):
    crawling = ["crawl", "http://127.0.0.1:9/", "--no-robots", "--retries", 0, "--state", "state", "-o", "items.jsonl"]
    first = lycosa(*crawling, cwd=tmp_path)
    assert (first.returncode, "hint: " in first.stderr) == (1, False)
    second_run = lycosa(*crawling, cwd=tmp_path)
    assert second_run.returncode == 1
    (hint,) = [line for line in second_run.stderr.splitlines() if line.startswith("hint: ")]
    assert hint.startswith(
        "hint: the start URL http://127.0.0.1:9/ failed in an earlier run (connection refused): --retry-dead "
    )
    third = lycosa(*crawling, "--retry-dead", cwd=tmp_path)
    assert third.stderr.startswith("finished: 0 pages"), "the dead URL was tried again"
