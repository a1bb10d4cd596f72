"""kill -9 in the middle of a crawl with cookies, retries, redirects and images (C1, C2, C10; issue 4).

In the end every item and every image exists once. `tests/servers/shop.py` is the site, `shop_spider.py` the spider.
The shop redirects a request without its cookies to /cookies, so a lost cookie shows in the hits. Each page fails as
often as the retries allow, so a kill that counted as a failure would make it dead. Kills are drawn by progress, not by
time: each kill comes a short random time after a random number of further requests. `make prove` kills a hundred times.
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
from tests.cli.command import assert_exactly_once, items, lycosa, start_command
from tests.conftest import PROVE
from tests.servers.shop import SECTIONS, SIDE, Shop, expected, images, open_shop, picture, way_to

SPIDER = Path(__file__).with_name("shop_spider.py")
PRODUCTS = 95 * SECTIONS
"""With their lists and entry pages, 3,002 pages."""

KILLS = 100 if PROVE else 10
FEW_KILLS = 3 if PROVE else 2
CONCURRENCY = 16
COMMIT_ACKS = 32
LATER_S = 0.03
END_MAX_S = 300.0


class KilledCrawl:
    """A crawl that is killed repeatedly and resumed by the same command, and assertions about its results."""

    def __init__(self, shop: Shop, home: Path, *more: object, commit_acks: int = COMMIT_ACKS) -> None:
        self.shop = shop
        self.home = home
        self.inline = "inline=1" in more
        self.commit_acks = commit_acks
        self.checked_images: set[Path] = set()
        self.expected_hits = expected(shop.products, stock=self.inline)
        self.command = [
            *("runspider", SPIDER, "-a", f"site={shop.url}", "-o", "items.jsonl", "--state", "state", "-q"),
            *("--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY, "--commit-acks", commit_acks),
            *more,
        ]

    def kill_times(self, kills: int, rng: random.Random) -> bool:
        """Kill the crawl `kills` times, spread over the requests that are left. False if it ended before a kill."""
        for left in range(kills, 0, -1):
            before = self.shop.busy()
            share = max(self.expected_hits.total() - before, 0) / (left + 1)
            goal = before + 1 + int(rng.uniform(0, 1.5) * share)
            with start_command(*self.command, cwd=self.home) as run:
                progressed = run.until(lambda goal=goal: self.shop.busy() >= goal)
                killed = progressed and run.kill_at(time.monotonic() + rng.uniform(0, LATER_S))
                assert killed or run.process.returncode == 0, f"{left} kills to go: {run.stderr}"
                assert "Traceback" not in run.stderr
            self.assert_images_so_far()
            if not killed:
                print(f"the crawl ended with {left} kills to go")
                return False
        return True

    def finish(self) -> None:
        """Run the command to its end, then once more: the second run has nothing to do."""
        done = lycosa(*self.command, cwd=self.home, timeout_s=END_MAX_S)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "Traceback" not in done.stderr
        before = self.shop.busy()
        second = lycosa(*[part for part in self.command if part != "-q"], cwd=self.home)
        assert (second.returncode, "nothing to do" in second.stderr) == (0, True), second.stderr
        assert self.shop.busy() == before

    def refetches(self, *parts: str) -> int:
        """Return the requests beyond those of an uninterrupted crawl, for paths that contain one of `parts`."""
        extra = self.shop.hits() - self.expected_hits
        return sum(count for path, count in extra.items() if any(part in path for part in parts))

    def assert_items(self) -> list[dict[str, Any]]:
        """Assert that every page has one complete item. Return the items of the products."""
        found = items(self.home / "items.jsonl")
        missing = [path for path in self.expected_hits if "/missing/" in path]
        missing_urls = [item["missing"] for item in found if "missing" in item]
        assert_exactly_once(missing_urls, [self.shop.url + path for path in missing])
        assert {item["status"] for item in found if "missing" in item} == {404}
        products = [item for item in found if "missing" not in item]
        assert_exactly_once([str(item["n"]) for item in products], [str(n) for n in range(self.shop.products)])
        for item in products:
            number = item["n"]
            way = way_to(number, self.shop.products)
            assert (item["price"], item["way"], item["hops"]) == (number + 0.5, way[0], len(way) - 1)
            assert item["depth"] >= 2
            assert item.get("stock") == (number % 17 if self.inline else None)
            assert item["image_urls"] == [self.shop.url + path for path in images(number)]
            available = [path for path in images(number) if "lost" not in path]
            assert [each["url"] for each in item["images"]] == [self.shop.url + path for path in available]
        return products

    def assert_images(self, products: list[dict[str, Any]]) -> None:
        """Assert that every image is stored once, complete, with its thumbnail, and that nothing else is stored."""
        available = {path for path in self.expected_hits if path.startswith("/image/") and "lost" not in path}
        names = {f"{url_digest(self.shop.url + path)}.jpg": path for path in available}
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

    def assert_images_so_far(self) -> None:
        """Assert that every image under its final name is complete; call it right after a kill."""
        images = [path for path in self.expected_hits if path.startswith("/image/")]
        paths = {f"{url_digest(self.shop.url + path)}.jpg": path for path in images}
        for file in set((self.home / "images").glob("[!.]*/**/*.jpg")) - self.checked_images:
            if file.parent.name == "full" and paths[file.name].endswith("jpg"):
                assert file.read_bytes() == picture(paths[file.name])
            with Image.open(file) as image:
                image.load()
            self.checked_images.add(file)

    def assert_session_kept(self, kills: int) -> None:
        """Assert that no cookie was lost, and that each login ran at most once more per kill."""
        hits = self.shop.hits()
        assert hits["/cookies"] == 0
        assert max(hits["/"], hits["/trade"]) <= 1 + kills
        assert set(hits) == set(self.expected_hits)

    def assert_refetches_bounded(self, kills: int) -> None:
        """Assert the refetch bound: K x (concurrency + acks of one commit window) pages, and their images."""
        pages, media = self.refetches("/s/"), self.refetches("/image/shared", "/image/own")
        print(f"{kills} kills: {pages} pages and {media} images fetched again")
        bound = kills * (CONCURRENCY + self.commit_acks)
        assert pages <= bound * (1 + self.inline)
        assert media <= bound * 2
        shared = [path for path in self.expected_hits if path.startswith("/image/shared")]
        assert max(self.shop.hits()[path] for path in shared) <= 1 + kills

    def assert_state_kept(self) -> None:
        """Assert that `spider.state` has every committed page: at the end, these are the pages of all products."""
        with sqlite3.connect(self.home / "state/records.sqlite") as database:
            ((state,),) = database.execute("SELECT value FROM kept WHERE name = ?", (TABLE.encode(),))
        database.close()
        assert set(msgspec.msgpack.decode(state)["seen"]) == set(range(self.shop.products))

    def assert_all(self, kills: int) -> None:
        """Assert everything above."""
        self.assert_session_kept(kills)
        self.assert_images(self.assert_items())
        self.assert_refetches_bounded(kills)
        self.assert_state_kept()
        left = {"items.jsonl", "images", "state", "stdout", "stderr", ".lycosa"}
        assert {path.name for path in self.home.iterdir()} <= left


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with open_shop(getattr(request, "param", 180 if PROVE else 120)) as shop:
        yield shop


def test_without_kills_every_page_is_fetched_once(shop, tmp_path):
    """The baseline of the other tests: without a kill no URL is requested twice."""
    crawl = KilledCrawl(shop, tmp_path)
    crawl.finish()
    crawl.assert_all(0)
    assert shop.hits() == crawl.expected_hits


@pytest.mark.parametrize("shop", [PRODUCTS], indirect=True)
def test_after_random_kills_every_item_and_image_exists_once(shop, tmp_path, rng):
    assert sum("/list/" in path or "/product/" in path for path in expected(PRODUCTS)) >= 3000
    crawl = KilledCrawl(shop, tmp_path)
    crawl.kill_times(KILLS, rng)
    crawl.finish()
    crawl.assert_all(KILLS)


VARIANTS = {
    "sync": ("--sync",),
    "threads": ("--set", "callback_mode=thread"),
    "inline": ("-a", "inline=1"),
    "inline in a cache": ("-a", "inline=1", "--set", "http_cache=rfc9111"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_after_kills_with_other_settings_every_item_exists_once(shop, tmp_path, rng, variant):
    crawl = KilledCrawl(shop, tmp_path, *VARIANTS[variant])
    crawl.kill_times(FEW_KILLS, rng)
    crawl.finish()
    crawl.assert_all(FEW_KILLS)


def test_after_kills_cached_responses_are_not_fetched_again(shop, tmp_path, rng):
    """Hardly anything is committed before a kill, but the cache has the responses."""
    options = ("--set", "http_cache=rfc9111", "--commit-every", 60)
    crawl = KilledCrawl(shop, tmp_path, *options, commit_acks=10_000)
    killed = crawl.kill_times(FEW_KILLS, rng)
    lists_fetched = any("/list/" in path for path in crawl.shop.hits())
    crawl.finish()
    crawl.assert_all(FEW_KILLS)
    assert crawl.refetches("/list/") > 0 or not (killed and lists_fetched)
    assert crawl.refetches("/product/") <= FEW_KILLS * CONCURRENCY
