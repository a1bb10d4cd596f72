"""kill -9 in the middle of a crawl with cookies, retries, redirects and images (C1, C2, C10; issue 4).

Each item is there once, each image once. `tests/servers/shop.py` serves, `shop_spider.py` crawls. The shop shows the
door (/cookies) to whoever comes to a page without the cookies that another page set before, so that a cookie that was
forgotten is on record. A page fails as often as it may, so that a kill that was counted as a failure makes it dead.
Moments of death are drawn by progress, not by time: after so many more requests, and a little later. `make prove` kills
a hundred times.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from lycosa.crawl.engine.state_saver import TABLE
from lycosa.crawl.items.media.files import url_digest
from tests.cli.command import assert_exactly_once, items, lycosa, started
from tests.conftest import PROVE
from tests.servers.shop import SECTIONS, SIDE, Shop, expected, images, opened, picture, way_to

SPIDER = Path(__file__).with_name("shop_spider.py")
PRODUCTS = 95 * SECTIONS
"""With their lists and entry pages, 3,002 pages."""

KILLS = 100 if PROVE else 10
FEW_KILLS = 3 if PROVE else 2
CONCURRENCY = 16
COMMIT_ACKS = 32
LATER_S = 0.03
END_MAX_S = 300.0


class Story:
    """A crawl that is killed repeatedly and resumed by the same command, and what must be true in the end."""

    def __init__(self, shop: Shop, home: Path, *more: object, commit_acks: int = COMMIT_ACKS) -> None:
        self.shop = shop
        self.home = home
        self.inline = "inline=1" in more
        self.commit_acks = commit_acks
        self.whole: set[Path] = set()
        self.usual = expected(shop.products, stock=self.inline)
        self.command = [
            *("runspider", SPIDER, "-a", f"site={shop.url}", "-o", "items.jsonl", "--state", "state", "-q"),
            *("--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY, "--commit-acks", commit_acks),
            *more,
        ]

    def is_killed(self, kills: int, rng: random.Random) -> None:
        """Kill the crawl so many times, spread over what is left of it."""
        for left in range(kills, 0, -1):
            before = self.shop.busy()
            share = max(self.usual.total() - before, 0) / (left + 1)
            goal = before + 1 + int(rng.uniform(0, 1.5) * share)
            with started(*self.command, cwd=self.home) as run:
                assert run.until(lambda goal=goal: self.shop.busy() >= goal), f"{left} kills were left: {run.stderr}"
                assert run.kill_at(time.monotonic() + rng.uniform(0, LATER_S)), run.stderr
                assert "Traceback" not in run.stderr
            self.assert_none_is_half()

    def ends(self) -> None:
        """Run the command to its end, and once more: then nothing is left to do."""
        done = lycosa(*self.command, cwd=self.home, timeout_s=END_MAX_S)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "Traceback" not in done.stderr
        before = self.shop.busy()
        again = lycosa(*[part for part in self.command if part != "-q"], cwd=self.home)
        assert (again.returncode, "nothing to do" in again.stderr) == (0, True), again.stderr
        assert self.shop.busy() == before

    def again(self, *what: str) -> int:
        """Return how many requests for paths with one of these parts came more often than without a kill."""
        more = self.shop.hits() - self.usual
        return sum(count for path, count in more.items() if any(part in path for part in what))

    def assert_items(self) -> list[dict[str, Any]]:
        """Assert that the item of every page is there once, complete. Return those of the products."""
        found = items(self.home / "items.jsonl")
        gone = [path for path in self.usual if "/missing/" in path]
        assert_exactly_once([item["gone"] for item in found if "gone" in item], [self.shop.url + path for path in gone])
        assert {item["status"] for item in found if "gone" in item} == {404}
        products = [item for item in found if "gone" not in item]
        assert_exactly_once([str(item["n"]) for item in products], [str(n) for n in range(self.shop.products)])
        for item in products:
            number = item["n"]
            way = way_to(number, self.shop.products)
            assert (item["price"], item["way"], item["hops"]) == (number + 0.5, way[0], len(way) - 1)
            assert item["depth"] >= 2
            assert item.get("stock") == (number % 17 if self.inline else None)
            assert item["image_urls"] == [self.shop.url + path for path in images(number)]
            there = [path for path in images(number) if "lost" not in path]
            assert [each["url"] for each in item["images"]] == [self.shop.url + path for path in there]
        return products

    def assert_images(self, products: list[dict[str, Any]]) -> None:
        """Assert that every image is there once, whole, with its thumbnail, and nothing else."""
        there = {path for path in self.usual if path.startswith("/image/") and "lost" not in path}
        names = {f"{url_digest(self.shop.url + path)}.jpg": path for path in there}
        store = self.home / "images"
        files = {str(path.relative_to(store)) for path in store.rglob("*") if not path.is_dir()}
        assert files == {folder + name for folder in ("full/", "thumbs/small/") for name in names}
        checksums = {each["path"]: {each["checksum"]} for item in products for each in item["images"]}
        for item in products:
            for each in item["images"]:
                checksums[each["path"]].add(each["checksum"])
        for name, path in names.items():
            content = (store / "full" / name).read_bytes()
            assert checksums[f"full/{name}"] == {hashlib.md5(content).hexdigest()}
            assert path.endswith("png") or content == picture(path)
            for folder, size in (("full", SIDE), ("thumbs/small", (8, 5))):
                with Image.open(store / folder / name) as image:
                    image.load()
                    assert (image.format, image.size) == ("JPEG", size)

    def assert_none_is_half(self) -> None:
        """Assert that every image that has its name is whole, right after a kill, too."""
        paths = {f"{url_digest(self.shop.url + path)}.jpg": path for path in self.usual if path.startswith("/image/")}
        for file in set((self.home / "images").glob("[!.]*/**/*.jpg")) - self.whole:
            if file.parent.name == "full" and paths[file.name].endswith("jpg"):
                assert file.read_bytes() == picture(paths[file.name])
            with Image.open(file) as image:
                image.load()
            self.whole.add(file)

    def assert_session_kept(self, kills: int) -> None:
        """Assert that no cookie was lost, and that nobody logged in who had logged in before."""
        hits = self.shop.hits()
        assert hits["/cookies"] == 0
        assert max(hits["/"], hits["/trade"]) <= 1 + kills
        assert set(hits) == set(self.usual)

    def assert_no_more_than(self, kills: int) -> None:
        """Assert the refetch bound: K x (concurrency + acks of one commit window) pages, and their images."""
        pages, media = self.again("/s/"), self.again("/image/shared", "/image/own")
        print(f"{kills} kills: {pages} pages and {media} images fetched again")
        bound = kills * (CONCURRENCY + self.commit_acks)
        assert pages <= bound * (1 + self.inline)
        assert media <= bound * 2
        assert max(self.shop.hits()[path] for path in self.usual if path.startswith("/image/shared")) <= 1 + kills

    def assert_remembered(self) -> None:
        """Assert that `spider.state` has every page that was committed, and so all of them."""
        with sqlite3.connect(self.home / "state/records.sqlite") as database:
            ((state,),) = database.execute("SELECT value FROM kept WHERE name = ?", (TABLE.encode(),))
        database.close()
        assert set(msgspec.msgpack.decode(state)["seen"]) == set(range(self.shop.products))

    def assert_good(self, kills: int) -> None:
        """Assert all of it."""
        self.assert_session_kept(kills)
        self.assert_images(self.assert_items())
        self.assert_no_more_than(kills)
        self.assert_remembered()
        left = {"items.jsonl", "images", "state", "stdout", "stderr", ".lycosa"}
        assert {path.name for path in self.home.iterdir()} <= left


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with opened(getattr(request, "param", 180 if PROVE else 120)) as shop:
        yield shop


def test_without_kills_every_page_is_fetched_once(shop, tmp_path):
    """The baseline of the other tests: without a kill nothing is requested twice."""
    story = Story(shop, tmp_path)
    story.ends()
    story.assert_good(0)
    assert shop.hits() == story.usual


@pytest.mark.parametrize("shop", [PRODUCTS], indirect=True)
def test_after_random_kills_each_item_and_image_is_there_once(shop, tmp_path, rng):
    assert sum("/list/" in path or "/product/" in path for path in expected(PRODUCTS)) >= 3000
    story = Story(shop, tmp_path)
    story.is_killed(KILLS, rng)
    story.ends()
    story.assert_good(KILLS)


WAYS = {
    "sync": ("--sync",),
    "threads": ("--set", "callback_mode=thread"),
    "inline": ("-a", "inline=1"),
    "inline in a cache": ("-a", "inline=1", "--set", "http_cache=rfc9111"),
}


@pytest.mark.parametrize("way", WAYS)
def test_after_kills_with_other_settings_each_item_is_there_once(shop, tmp_path, rng, way):
    story = Story(shop, tmp_path, *WAYS[way])
    story.is_killed(FEW_KILLS, rng)
    story.ends()
    story.assert_good(FEW_KILLS)


def test_after_kills_cached_responses_are_not_fetched_again(shop, tmp_path, rng):
    """Hardly anything is committed before a kill, but the cache has the responses."""
    way = ("--set", "http_cache=rfc9111", "--commit-every", 60)
    story = Story(shop, tmp_path, *way, commit_acks=10_000)
    story.is_killed(FEW_KILLS, rng)
    story.ends()
    story.assert_good(FEW_KILLS)
    assert story.again("/list/") > 0
    assert story.again("/product/") <= FEW_KILLS * CONCURRENCY
