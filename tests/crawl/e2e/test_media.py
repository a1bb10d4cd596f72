"""Images and files in a complete crawl (C10, C6): each is requested once, and stored once even after random kills.

A page has an image of its own and one of five that all pages share. `make prove` kills more often.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from PIL import Image

from lycosa.config import Settings
from tests.cli.command import END_MAX_S, assert_exactly_once, items, lycosa, start_command
from tests.conftest import PROVE
from tests.servers.misbehaving import Server, running
from tests.servers.sins import SINS, Exchange

KILLS = 100 if PROVE else 3
PAGES = 3000 if PROVE else 200
SHARED = 5
CONCURRENCY = 16
BIG = 20 << 20
"""Size in bytes of a file above the limit for pages."""

SPIDER = """
    from lycosa import FilesPipeline, ImagesPipeline, Spider

    class Shop(Spider):
        name = "shop"
        pipelines = [ImagesPipeline, FilesPipeline]
        custom_settings = {"images_store": "images", "files_store": "files", "images_thumbs": {"small": [8, 8]}}

        def __init__(self, site, **arguments):
            super().__init__(**arguments)
            self.start_urls = [site + "/shop/0"]

        def parse(self, response):
            names = response.css("img::attr(src)").getall()
            files = response.css("a.file::attr(href)").getall()
            yield {
                "n": int(response.css("h1::text").get()),
                "image_urls": [response.urljoin(name) for name in names],
                "file_urls": [response.urljoin(name) for name in files],
            }
            yield from response.follow_all(css="a.next")
"""


def picture(number: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (32, 16), (number % 256, number // 256, 0)).save(out, "PNG")
    return out.getvalue()


async def shop(x: Exchange) -> None:
    """A page with two images and links to three other pages."""
    number = int(x.rest)
    more = [child for child in range(number * 3 + 1, number * 3 + 4) if child < x.server.pages]
    links = "".join(f'<a class="next" href="/shop/{child}">{child}</a>' for child in more)
    images = f'<img src="/picture/{number}"><img src="/picture/{number % SHARED}">'
    files = "" if number else '<a class="file" href="/big">big</a><a class="file" href="/404/x">none</a>'
    await x.answer(200, f"<html><h1>{number}</h1>{images}{files}{links}</html>")


async def show(x: Exchange) -> None:
    """An image."""
    await x.answer(200, picture(int(x.rest)), kind="image/png")


async def big(x: Exchange) -> None:
    """A file above the limit for pages."""
    await x.answer(200, bytes(BIG), kind="application/octet-stream")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for path, handler in {"/shop": shop, "/picture": show, "/big": big}.items():
        monkeypatch.setitem(SINS, path, handler)
    with running() as server:
        server.pages = 40  # type: ignore[attr-defined]
        yield server


def command(server: Server, cwd: Path) -> list[object]:
    (cwd / "spider.py").write_text(dedent(SPIDER))
    fast = ["--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY]
    return ["runspider", "spider.py", "-a", f"site={server.url('')}", "-o", "items.jsonl", "--state", "state", *fast]


def check(server: Any, cwd: Path) -> list[dict[str, Any]]:
    """Assert that every item exists once with its images, and every image once, complete, with its thumbnail."""
    found = items(cwd / "items.jsonl")
    assert_exactly_once([str(item["n"]) for item in found], [str(n) for n in range(server.pages)])
    for item in found:
        assert [each["url"] for each in item["images"]] == item["image_urls"]
        for each in item["images"]:
            data = (cwd / "images" / each["path"]).read_bytes()
            assert hashlib.md5(data).hexdigest() == each["checksum"]
    for folder, size in (("full", (32, 16)), ("thumbs/small", (8, 4))):
        files = list((cwd / "images" / folder).iterdir())
        assert len(files) == server.pages
        for path in files:
            with Image.open(path) as image:
                image.load()
                assert image.size == size
    assert sorted(path.name for path in (cwd / "images").iterdir()) == ["full", "thumbs"]
    return found


def test_each_image_and_file_of_an_item_is_requested_once(server: Any, tmp_path: Path) -> None:
    done = lycosa(*command(server, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = check(server, tmp_path)
    requests = Counter(server.paths())
    assert max(requests.values()) == 1
    (first,) = (item["files"] for item in found if item["n"] == 0)
    assert [(each["url"], each["status"]) for each in first] == [(server.url("/big"), "downloaded")]
    assert (tmp_path / "files" / first[0]["path"]).stat().st_size == BIG
    assert "/404/x: status 404" in done.stderr


def test_after_kills_every_item_and_image_exists_once(server: Any, tmp_path: Path, rng: random.Random) -> None:
    server.pages = PAGES
    line = command(server, tmp_path)
    kills = 0
    while kills < KILLS:
        with start_command(*line, cwd=tmp_path) as run:
            goal = len(server.hits) + rng.randrange(1, 3 * PAGES // KILLS)
            if not run.until(lambda goal=goal: len(server.hits) >= goal) or not run.kill():
                break
        kills += 1
    done = lycosa(*line, cwd=tmp_path, timeout_s=4 * END_MAX_S)
    assert done.returncode == 0, done.stderr
    check(server, tmp_path)
    requests = Counter(server.paths())
    refetched = sum(count - 1 for path, count in requests.items() if path.startswith("/picture"))
    window = min(Settings().commit_acks, PAGES)
    assert refetched <= kills * (CONCURRENCY + window) * 2
