"""Spider files run by `lycosa runspider`, up to their items (C2, C5)."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.cli.command import assert_exactly_once, items, lycosa, start_command
from tests.servers.tree import Tree, grow

HEAD = """
from dataclasses import dataclass, field
import lycosa
from lycosa import DropItem, Request, Spider
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Tree]:
    with grow(60) as tree:
        yield tree


@pytest.fixture
def tree(shared) -> Tree:
    """A tree of pages with an empty log of requests."""
    (shared.home / "hits").write_bytes(b"")
    return shared


def write(cwd: Path, spider: str) -> None:
    (cwd / "spider.py").write_text(HEAD + dedent(spider))


def command(tree: Tree, *more: object) -> list[object]:
    site = tree.url.removesuffix("/0")
    return ["runspider", "spider.py", "-a", f"site={site}", "-o", "items.jsonl", "--no-robots", *more]


def run_spider(tree: Tree, cwd: Path, spider: str, *more: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Write a spider and run it: it ends with this exit code and prints nothing to standard output."""
    write(cwd, spider)
    done = lycosa(*command(tree, *more), cwd=cwd)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    return done


def written(cwd: Path) -> list[dict[str, Any]]:
    return items(cwd / "items.jsonl")


def paths(tree: Tree) -> list[str]:
    return [hit.path for hit in tree.hits()]


def test_a_spider_of_ten_lines_crawls_a_site(tree, tmp_path):
    spider = """
    @dataclass
    class Page:
        url: str
        heading: str

    class Pages(Spider):
        name = "pages"
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            yield Page(response.url, response.css("h1::text").get())
            yield from response.follow_all(css="li a")
    """
    done = run_spider(tree, tmp_path, spider)
    assert "finished: 60 pages, 60 items" in done.stderr
    assert_exactly_once([item["url"] for item in written(tmp_path)], tree.urls())
    assert {item["heading"] for item in written(tmp_path)} == {f"Heading {n}" for n in range(60)}
    second = lycosa(*command(tree), cwd=tmp_path)
    assert (second.returncode, "nothing to do" in second.stderr, len(written(tmp_path))) == (0, True, 60)


KINDS = {
    "dict": "dict(n=1)",
    "dataclass": "D(1)",
    "msgspec": "M(1)",
    "attrs": "A(1)",
    "pydantic": "P(n=1)",
    "scrapy": "S(n=1)",
}
LIBRARIES = {
    "msgspec": "import msgspec\nclass M(msgspec.Struct):\n    n: int",
    "attrs": "import attrs\n@attrs.define\nclass A:\n    n: int",
    "pydantic": "import pydantic\nclass P(pydantic.BaseModel):\n    n: int",
    "scrapy": "import scrapy\nclass S(scrapy.Item):\n    n = scrapy.Field()",
}


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_every_kind_are_written(tree, tmp_path, kind):
    if kind in LIBRARIES and find_spec("attr" if kind == "attrs" else kind) is None:
        pytest.skip(f"{kind} is not installed")
    spider = LIBRARIES.get(kind, "@dataclass\nclass D:\n    n: int") + dedent(f"""
    class Kinds(Spider):
        name = "kinds"
        def start(self):
            return self.requests()
        async def requests(self):
            yield Request(f"{{self.site}}/1")
        def parse(self, response):
            return {KINDS[kind]}
    """)
    run_spider(tree, tmp_path, spider)
    assert written(tmp_path) == [{"n": 1}]


def test_callbacks_of_every_form_work_by_method_and_by_name(tree, tmp_path):
    spider = """
    import asyncio
    class Forms(Spider):
        name = "forms"
        async def start(self):
            yield Request(f"{self.site}/0")
        async def parse(self, response):
            await asyncio.sleep(0)
            yield {"by": "parse"}
            yield response.follow("/1", self.generator, meta={"a": [1, b"x"]})
            yield response.follow("/2", "coroutine", cb_kwargs={"argument": "kwarg"})
            yield response.follow("/3", callback=self.plain_list)
            yield response.follow("/4", callback=self.nothing)
        def generator(self, response):
            yield {"by": "generator", "meta": response.meta["a"][0], "depth": response.depth}
        async def coroutine(self, response, argument):
            await asyncio.sleep(0.01)
            return {"by": "coroutine", "argument": argument, "status": response.status}
        def plain_list(self, response):
            return [{"by": "list"}, response.follow("/5", self.nothing), None]
        def nothing(self, response):
            pass
    """
    run_spider(tree, tmp_path, spider)
    assert sorted(written(tmp_path), key=lambda item: item["by"]) == [
        {"by": "coroutine", "argument": "kwarg", "status": 200},
        {"by": "generator", "meta": 1, "depth": 1},
        {"by": "list"},
        {"by": "parse"},
    ]
    assert sorted(paths(tree)) == ["/0", "/1", "/2", "/3", "/4", "/5"]


def test_pipelines_change_and_drop_items_in_their_order(tree, tmp_path):
    spider = """
    class Even:
        def process_item(self, item, spider):
            if item["n"] % 2:
                raise DropItem(f"odd: {item['n']}")
            return item
    class Named:
        def __init__(self, name):
            self.name = name
        async def open_spider(self, spider):
            open("calls", "a").write(f"open {self.name}\\n")
        async def process_item(self, item, spider):
            return item | {"by": item.get("by", "") + self.name, "spider": spider.name}
        def close_spider(self, spider):
            open("calls", "a").write(f"close {self.name}\\n")
    class Piped(Spider):
        name = "piped"
        pipelines = [Even, Named("a"), Named("b")]
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            for n in range(5):
                yield {"n": n}
        def closed(self, reason):
            open("calls", "a").write(f"closed {reason}\\n")
    """
    done = run_spider(tree, tmp_path, spider)
    assert "1 page, 3 items (2 dropped)" in done.stderr
    assert written(tmp_path) == [{"n": n, "by": "ab", "spider": "piped"} for n in (0, 2, 4)]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:2] == ["open a", "open b"]
    assert sorted(calls[2:]) == ["close a", "close b", "closed finished"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("yield {'n': 1}; raise ValueError('oh no')", "ValueError in parse: oh no"),
        ("yield {'n': 1}; yield response.follow('/1', cb_kwargs={'x': object()}); yield 1", "yielded an int (1)"),
        ("yield {'n': 1}; yield 'http://127.0.0.1/'", "parse yielded a str ('http://127.0.0.1/')"),
        ("yield {'n': 1}; yield response.follow('/1', lambda response: None)", "make it a method of Wrong"),
        ("yield {'n': 1}; yield response.follow('/1', meta={'x': object()})", "meta['x']"),
        ("yield {'n': 1}; yield {'n': object()}", "n: a 'object' cannot be written"),
        ("yield {'n': 1}; yield response.follow('javascript:1')", "not a URL that can be fetched"),
    ],
)
def test_a_page_whose_callback_fails_is_dead_and_writes_nothing(tree, tmp_path, statement, message):
    spider = f"""
    class Wrong(Spider):
        name = "wrong"
        async def start(self):
            yield Request(f"{{self.site}}/0")
            yield Request(f"{{self.site}}/1", callback=self.fine)
        def parse(self, response):
            yield response.follow("/7", self.fine)
            {statement}
        def fine(self, response):
            yield {{"n": 0}}
    """
    done = run_spider(tree, tmp_path, spider, code=1)
    assert written(tmp_path) == [{"n": 0}]
    assert sorted(paths(tree)) == ["/0", "/1"]
    (dead,) = [line for line in done.stderr.splitlines() if line.strip().startswith(f"{tree.url}  ")]
    assert message in dead
    assert "internal error" not in done.stderr


def test_a_failing_pipeline_makes_its_page_dead_and_the_crawl_continues(tree, tmp_path):
    spider = """
    class Picky:
        def process_item(self, item, spider):
            return item if item["n"] else None
    class Piped(Spider):
        name = "piped"
        pipelines = [Picky]
        async def start(self):
            for n in (0, 1):
                yield Request(f"{self.site}/{n}", cb_kwargs={"n": n})
        def parse(self, response, n):
            yield {"n": n}
    """
    done = run_spider(tree, tmp_path, spider, code=1)
    assert written(tmp_path) == [{"n": 1}]
    assert "Picky.process_item returned None: return the item, or raise DropItem" in done.stderr


def test_a_page_whose_callback_never_returns_is_dead_in_the_end(tree, tmp_path):
    spider = """
    import asyncio
    class Hangs(Spider):
        name = "hangs"
        async def start(self):
            for n in range(4):
                yield Request(f"{self.site}/{n}")
        async def parse(self, response):
            if response.url.endswith("/2"):
                await asyncio.sleep(3600)
            yield {"url": response.url}
    """
    done = run_spider(tree, tmp_path, spider, "--max-lease", 1, code=1)
    assert f"{tree.url[:-1]}2  lease expired" in [line.strip() for line in done.stderr.splitlines()]
    assert_exactly_once([item["url"] for item in written(tmp_path)], {tree.url[:-1] + n for n in "013"})
    counts = Counter(paths(tree))
    assert set(counts) == {"/0", "/1", "/2", "/3"}
    assert 1 < counts["/2"] <= 5, "on a busy machine the time may be over before the page is requested"


def test_requests_with_a_higher_priority_are_fetched_first(tree, tmp_path):
    spider = """
    class Ordered(Spider):
        name = "ordered"
        custom_settings = {"CONCURRENT_REQUESTS": 1}
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            for n, priority in ((1, 0), (2, -5), (3, 10), (4, 10), (5, 2**40), (6, -2**40), (7, 1)):
                yield response.follow(f"/{n}", self.end, priority=priority)
        def end(self, response):
            return {"url": response.url}
    """
    run_spider(tree, tmp_path, spider)
    assert paths(tree) == ["/0", "/5", "/3", "/4", "/7", "/1", "/2", "/6"]


def test_a_url_is_fetched_once_without_dont_filter(tree, tmp_path):
    spider = """
    class Again(Spider):
        name = "again"
        async def start(self):
            yield Request(f"{self.site}/0")
            yield Request(f"{self.site}/0#top")
        def parse(self, response):
            if response.meta.get("round", 0) < 3:
                again = {"round": response.meta.get("round", 0) + 1}
                yield Request(response.url, dont_filter=True, meta=again)
            yield {"round": response.meta.get("round", 0)}
            yield from response.follow_all(["/1", "/1#part", "/1", "mailto:x@y.example", "/2"], self.end)
        def end(self, response):
            return {"round": 0}
    """
    run_spider(tree, tmp_path, spider)
    assert Counter(paths(tree)) == {"/0": 4, "/1": 1, "/2": 1}
    assert sorted(item["round"] for item in written(tmp_path)) == [0, 0, 0, 1, 2, 3]


def test_not_before_applies_after_a_kill_too(tree, tmp_path):
    spider = """
    import time
    class Later(Spider):
        name = "later"
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            yield response.follow("/1", self.end, not_before=time.time() + 6)
            yield response.follow("/2", self.end)
        def end(self, response):
            yield {"url": response.url}
    """
    write(tmp_path, spider)
    with start_command(*command(tree), cwd=tmp_path) as run:
        assert run.until(lambda: (tmp_path / "items.jsonl").exists() and len(written(tmp_path)) == 1), run.stderr
        assert run.until(lambda: "/2" in paths(tree))
        assert run.kill_at(max(tree.hits()[0].at + 1.0, time.monotonic() + 0.5))  # /2 is committed
    assert lycosa(*command(tree), cwd=tmp_path).returncode == 0
    first, second, last = tree.hits()
    assert (first.path, second.path, last.path) == ("/0", "/2", "/1")
    assert 5.95 < last.at - first.at < 60.0
    assert len(written(tmp_path)) == 2


def test_allowed_domains_limit_the_spider(tree, tmp_path):
    spider = """
    class Home(Spider):
        name = "home"
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            yield {"url": response.url}
            offsite = self.site.replace("127.0.0.1", "localhost")
            yield Request(f"{offsite}/1")
            yield response.follow("/2", self.end)
        def end(self, response):
            yield {"url": response.url}
    """
    done = run_spider(tree, tmp_path, spider + "    allowed_domains = ['127.0.0.1']\n    ")
    assert paths(tree) == ["/0", "/2"]
    assert "skipped 1 link (scope: 1)" in done.stderr


def test_callback_meta_and_cb_kwargs_survive_kills(tmp_path):
    """Every page of eight chains of ten pages has the callback, meta and cb_kwargs that the page before it passed on,
    although the crawl is killed four times on the way.
    """
    spider = """
    class Chain(Spider):
        name = "chain"
        async def start(self):
            for branch in range(8):
                yield Request(f"{self.site}/{branch * 10}", self.step, meta={"branch": branch, "raw": b"\\xff"},
                              cb_kwargs={"seen": []}, headers={"X-Branch": str(branch)})
        def step(self, response, seen):
            number = int(response.url.rsplit("/", 1)[1])
            assert response.meta["raw"] == b"\\xff"
            assert response.request.headers["X-Branch"] == str(response.meta["branch"])
            seen = [*seen, number]
            if len(seen) == 10:
                yield {"branch": response.meta["branch"], "seen": seen}
            else:
                yield response.follow(f"/{number + 1}", self.step, meta=response.meta, cb_kwargs={"seen": seen},
                                      headers=response.request.headers)
    """
    write(tmp_path, spider)
    with grow(80, delay_s=0.15) as tree:
        for _ in range(4):
            hits = len(tree.hits())
            # The delay keeps the crawl from ending before the kill.
            with start_command(*command(tree, "--delay", 0.1), cwd=tmp_path) as run:
                assert run.until(lambda hits=hits: len(tree.hits()) > hits + 9), run.stderr
                assert run.kill(), run.stderr
        done = lycosa(*command(tree), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = sorted(written(tmp_path), key=lambda item: item["branch"])
    assert found == [{"branch": n, "seen": list(range(n * 10, n * 10 + 10))} for n in range(8)]


def test_an_interrupt_calls_closed_with_shutdown(tmp_path):
    spider = """
    class Interrupted(Spider):
        name = "interrupted"
        async def start(self):
            yield Request(f"{self.site}/0")
        def parse(self, response):
            yield from response.follow_all(css="a")
        async def closed(self, reason):
            open("reason", "w").write(reason)
    """
    write(tmp_path, spider)
    # The delay keeps the crawl from ending before the interrupt.
    with grow(100, delay_s=0.1) as tree, start_command(*command(tree, "--delay", 0.1), cwd=tmp_path) as run:
        assert run.until(lambda: len(tree.hits()) > 5), run.stderr
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
    assert (tmp_path / "reason").read_text() == "shutdown"
