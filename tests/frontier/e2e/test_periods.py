"""A resolver that chooses a period for each request: products daily, comments every third day, in one crawl (F2)."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command import items, lycosa
from tests.servers.changing import Site, serve

DAY_S = 86_400
SHOP = """
import time
from pathlib import Path

import lycosa
from lycosa.infra.clock import Clock

wall, shift_s = time.time, float(Path("shift").read_text())
Clock.__init__.__defaults__ = (lambda: wall() + shift_s, time.monotonic)


class Shop(lycosa.Spider):
    name = "shop"

    async def start(self):
        yield lycosa.Request(self.url)

    def segment_resolver(self, request):
        return "3d" if "/comments/" in request.url else "day"

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""
PRODUCTS = ["/", "/1", "/2"]
COMMENTS = ["/comments/1", "/comments/2"]
PAGES = {
    "/": "<a href=/1>1</a> <a href=/2>2</a>",
    "/1": "<a href=/comments/1>comments</a>",
    "/2": "<a href=/>all</a>",
    "/comments/1": "<a href=/1>1</a> <a href=/comments/2>more</a>",
    "/comments/2": "the end",
}


class Shop:
    """The crawl of a shop in a folder, on given days; the first day begins a period of three days."""

    def __init__(self, site: Site, home: Path, *options: object) -> None:
        (home / "shop.py").write_text(SHOP)
        self.site, self.home, self.options = site, home, options
        # All days are in the past: the clock of a Redis server is not shifted.
        self.first_day = (time.time() // (3 * DAY_S) - 3) * 3 * DAY_S

    def run(self, day: int, *more: object) -> subprocess.CompletedProcess[str]:
        (self.home / "shift").write_text(str(self.first_day + (day + 0.5) * DAY_S - time.time()))
        command = ["runspider", "shop.py", "-a", f"url={self.site.url}", "-o", "items.jsonl", "--no-robots"]
        done = lycosa(*command, *self.options, *more, cwd=self.home)
        assert done.returncode == 0, done.stderr
        return done

    def fetched(self) -> Counter[str]:
        return Counter(path for path, _ in self.site.take())

    def segments(self, *where: object) -> dict[str, str]:
        shown = lycosa("frontier", "segments", *where, cwd=self.home)
        assert shown.returncode == 0, shown.stderr
        return dict(line.split()[:2] for line in shown.stdout.splitlines()[1:])

    def name(self, day: int, period: str) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self.first_day + day * DAY_S)) + f"+{period}"


@pytest.fixture(params=["embedded", "redis"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> list[object]:
    if request.param == "redis":
        server = request.getfixturevalue("redis")
        return ["--frontier", server.url, "--crawl-name", tmp_path.name, "-s", "keep_done=true"]
    return ["--state", "state"]


def test_products_are_fetched_daily_and_comments_every_third_day(tmp_path: Path, options: list[object]) -> None:
    """Of the archived segments of each period the last is kept, and the others are exported."""
    with serve(dict(PAGES), "none") as site:
        shop = Shop(site, tmp_path, *options, "-s", "keep_segments=1", "-s", "export_segments=old")
        shop.run(0)
        assert shop.fetched() == Counter([*PRODUCTS, *COMMENTS])
        for day in (1, 2):
            assert "hint" not in shop.run(day).stderr
            assert shop.fetched() == Counter(PRODUCTS)
        assert "nothing to do" in shop.run(2).stderr
        site.pages["/2"] = "<a href=/comments/3>a new product's comments</a>"
        site.pages["/comments/3"] = "first"
        shop.run(2, "--retry-dead")
        assert shop.fetched() == Counter()
        shop.run(3)
        assert shop.fetched() == Counter([*PRODUCTS, *COMMENTS, "/comments/3"])
    assert sorted(file.name for file in (tmp_path / "old").iterdir()) == [
        f"{shop.name(day, 'day')}.jsonl" for day in (0, 1)
    ]
    for file in (tmp_path / "old").iterdir():
        assert {urlsplit(json.loads(line)["url"]).path for line in file.read_text().splitlines()} == {*PRODUCTS}
    assert len([*items(tmp_path / "items.jsonl")]) == 4 * len(PRODUCTS) + 2 * len(COMMENTS) + 1


def test_worker_processes_choose_the_same_segments(tmp_path: Path) -> None:
    with serve(dict(PAGES), "none") as site:
        shop = Shop(site, tmp_path, "--state", "state", "--processes", 2)
        shop.run(1)
        names = {shop.name(0, "3d"), shop.name(1, "day")}
        assert {*shop.segments("--state", "state")} == names
        assert shop.fetched() == Counter([*PRODUCTS, *COMMENTS])


def test_comments_found_later_in_their_period_are_still_fetched(tmp_path: Path) -> None:
    """The segment of the comments is not archived when the products get a new segment."""
    with serve(dict(PAGES)) as site:
        shop = Shop(site, tmp_path, "--state", "state")
        shop.run(0)
        shop.fetched()
        site.pages["/2"] = "<a href=/comments/3>3</a>"
        site.pages["/comments/3"] = "first"
        shop.run(1)
        assert shop.fetched() == Counter([*PRODUCTS, "/comments/3"])
        assert shop.segments("--state", "state") == {
            shop.name(0, "3d"): "finished",
            shop.name(0, "day"): "archived",
            shop.name(1, "day"): "finished",
        }


def test_each_period_takes_over_its_own_urls(tmp_path: Path) -> None:
    """A page that only an unchanged page links to is fetched again, in the period that it had."""
    with serve(dict(PAGES)) as site:
        shop = Shop(site, tmp_path, "--state", "state")
        shop.run(0)
        assert set(shop.site.take()) == {(path, 200) for path in (*PRODUCTS, *COMMENTS)}
        shop.run(1)
        assert set(shop.site.take()) == {(path, 304) for path in PRODUCTS}
        shop.run(3)
        assert set(shop.site.take()) == {(path, 304) for path in (*PRODUCTS, *COMMENTS)}
