"""Segments and fingerprint rules through the command: a page is fetched once per segment and fingerprint (F1, F2)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import assert_exactly_once, assert_one_line, items, lycosa
from tests.servers.tree import Tree, grow

PAGES = 6
FUNCTIONS = """
from pathlib import Path

def segment(request, now):
    assert now > 1.7e9 and request.url.endswith("/0")
    return Path("segment").read_text()

def key(method, url, body):
    assert "elsewhere" not in url
    return url.partition("?")[0]

def none(method, url, body):
    return None
"""
NOTHING = "nothing to do: the crawl is finished"


@pytest.fixture(scope="module")
def shared() -> Iterator[Tree]:
    with grow(PAGES) as tree:
        yield tree


@pytest.fixture
def tree(shared) -> Tree:
    """A tree with an empty request log."""
    (shared.home / "hits").write_bytes(b"")
    return shared


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    return tmp_path


def crawl(url: str, cwd: Path, *more: object, code: int = 0, out: str = "-o") -> subprocess.CompletedProcess[str]:
    done = lycosa("crawl", url, out, "items.jsonl", "--no-robots", *more, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def fetched(tree: Tree) -> Counter[str]:
    return Counter(hit.path for hit in tree.hits())


def each(tree: Tree, times: int) -> Counter[str]:
    return Counter({f"/{number}": times for number in range(tree.pages)})


def test_segment_of_a_day_fetches_every_page_once(tree, home):
    for _ in range(2):
        day = datetime.now(UTC).date()
        crawl(tree.url, home, "--segment", "day", out="-O")
        day_before = fetched(tree)
        second_run = crawl(tree.url, home, "--segment", "day")
        if datetime.now(UTC).date() == day:  # otherwise the day changed at midnight: try again
            break
    assert NOTHING in second_run.stderr
    assert fetched(tree) == day_before
    assert_exactly_once([item["url"] for item in items(home / "items.jsonl")], tree.urls())


def test_each_segment_fetches_every_page_once(tree, home):
    for number, name in enumerate(["2020-11-21", "2020-11-24"], 1):
        (home / "segment").write_text(name)
        assert f"{PAGES} pages" in crawl(tree.url, home, "--segment", "shop:segment").stderr
        assert fetched(tree) == each(tree, number)
        assert NOTHING in crawl(tree.url, home, "--segment", "shop:segment").stderr
        assert fetched(tree) == each(tree, number)
    urls = [item["url"] for item in items(home / "items.jsonl")]
    assert_exactly_once(urls[:PAGES], tree.urls())
    assert_exactly_once(urls[PAGES:], tree.urls())


def test_run_with_a_dropped_segment_prints_a_hint(tree, home):
    for name, advice in (
        ("2001-01-01", "wait until the next segment begins, give another --segment"),
        ("a", "give another"),
    ):
        (home / "segment").write_text(name)
        options = ("--segment", "shop:segment", "--state", "state")
        assert "hint" not in crawl(tree.url, home, *options).stderr
        dropped = lycosa("frontier", "drop", name, "--state", "state", cwd=home)
        assert dropped.returncode == 0, dropped.stderr
        stderr = crawl(tree.url, home, *options).stderr
        hint = f"hint: segment {name}, the segment of this run, was dropped and takes no more requests: {advice}"
        assert hint in stderr
        assert stderr.startswith("nothing to do: ")
        assert NOTHING not in stderr


def test_later_run_also_finishes_an_earlier_segment(tree, home):
    (home / "segment").write_text("2020-11-21")
    crawl(tree.url, home, "--segment", "shop:segment", "--max-pages", 3)
    assert 3 <= fetched(tree).total() < PAGES
    (home / "segment").write_text("2020-11-24")
    crawl(tree.url, home, "--segment", "shop:segment")
    assert fetched(tree) == each(tree, 2)
    assert NOTHING in crawl(tree.url, home, "--segment", "shop:segment").stderr


SPIDER = """
from pathlib import Path
import lycosa

class Pages(lycosa.Spider):
    name = "pages"

    async def start(self):
        yield lycosa.Request(self.url)

    def segment_resolver(self, request, now):
        return Path("segment").read_text()

    def key_resolver(self, method, url, body):
        return int(url.rpartition("/")[2])

    def parse(self, response):
        Path("segment").write_text("next")  # it is another time now
        yield {"url": response.url}
        yield from response.follow_all(css="li a")
"""


def test_run_past_midnight_stays_in_its_segment(tree, home):
    (home / "spider.py").write_text(SPIDER)
    (home / "segment").write_text("first")
    command = ["runspider", "spider.py", "-a", f"url={tree.url}", "-o", "items.jsonl", "--no-robots"]
    for number in (1, 2):
        done = lycosa(*command, cwd=home)
        assert (done.returncode, fetched(tree)) == (0, each(tree, number)), done.stderr
    assert NOTHING in lycosa(*command, cwd=home).stderr
    assert fetched(tree) == each(tree, 2)


LATER = """
import time
import lycosa

class Later(lycosa.Spider):
    name = "later"

    async def start(self):
        due = time.time() + 2 * 86_400
        yield lycosa.Request(self.url, cb_kwargs={"due": due})
        yield lycosa.Request(self.url + "?again", not_before=due)

    def parse(self, response, due):
        yield {"due": due}
"""


def test_delayed_request_is_queued_in_the_segment_of_its_due_time(tree, home):
    (home / "spider.py").write_text(LATER)
    command = ["runspider", "spider.py", "-a", f"url={tree.url}", "-o", "items.jsonl", "--no-robots"]
    done = lycosa(*command, "--segment", "day", "--exit-when-idle", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "next due at" in done.stderr
    due = datetime.fromtimestamp(items(home / "items.jsonl")[0]["due"], UTC).date()
    listed = lycosa("frontier", "segments", "--state", ".lycosa/later", "--json", cwd=home)
    segments = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(each["state"], each["delayed"], each["done"]) for each in segments] == [("finished", 0, 1), ("open", 1, 0)]
    assert segments[1]["name"] == due.isoformat()


# Fingerprint rules.

SHOP = {
    "/": "<a href='/a?id=1&utm_source=x'>1</a> <a href='/a?%75tm_source=y&id=1'>1</a> <a href='/a?id=2'>2</a>"
    "<a href='/b'>b</a> <a href='/c?gclid=1'>c</a> <a href='/c?gclid=2'>c</a> <a href='http://elsewhere.example/'>no</a>",
    "/b": "/b/",
    "/c?gclid=1": "/c?gclid=3",
    "/c?gclid=3": "/c",
}
"""Pages and redirects. Every other path is a page without links."""


@pytest.fixture
def shop() -> Iterator[tuple[str, list[str]]]:
    """A shop that redirects to equal pages. Yields its URL, and the list of requested paths."""
    requested: list[str] = []

    class Shop(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            requested.append(self.path)
            text = SHOP.get(self.path, "page")
            body = f"<title>{self.path}</title>{text}".encode()
            self.send_response(302 if text.startswith("/") else 200)
            if text.startswith("/"):
                self.send_header("Location", text)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", requested
    server.shutdown()
    thread.join()
    server.server_close()


WITHOUT_TRACKING = ["/", "/a?id=1&utm_source=x", "/a?id=2", "/b", "/b/", "/c", "/c?gclid=1", "/c?gclid=3"]


def test_pages_with_equal_fingerprints_are_fetched_once_at_the_original_url(shop, home):
    url, requested = shop
    crawl(url, home, "--fingerprint-rules", "slash,tracking")
    assert sorted(requested) == WITHOUT_TRACKING
    final = sorted(item["final_url"].removeprefix(url) for item in items(home / "items.jsonl"))
    assert final == ["", "a?id=1&utm_source=x", "a?id=2", "b/", "c"]
    assert NOTHING in crawl(url, home, "--fingerprint-rules", "tracking", "--fingerprint-rules", "slash").stderr
    assert len(requested) == len(WITHOUT_TRACKING)


def test_without_fingerprint_rules_every_url_is_a_separate_page(shop, home):
    url, requested = shop
    crawl(url, home)
    assert sorted(requested) == sorted({*WITHOUT_TRACKING, "/a?%75tm_source=y&id=1", "/c?gclid=2"})


def test_function_as_fingerprint_rule(shop, home):
    url, requested = shop
    crawl(url, home, "--fingerprint-rules", "shop:key")
    assert sorted(requested) == ["/", "/a?id=1&utm_source=x", "/b", "/b/", "/c", "/c?gclid=1", "/c?gclid=3"]


def test_state_keeps_its_fingerprint_rules(shop, home):
    url, requested = shop
    crawl(url, home, "--fingerprint-rules", "tracking", "--depth", 0)
    for more, message in (
        (
            ["--fingerprint-rules", "sort"],
            "identifies requests by tracking, but this run by sort: all URLs would be new",
        ),
        ([], "identifies requests by tracking, but this run without --fingerprint-rules"),
    ):
        refused = assert_one_line(crawl(url, home, *more, code=3).stderr)
        assert message in refused
        assert refused.endswith("give another --state, or -O to start afresh")
    assert requested == ["/"]
    crawl(url, home, "--fingerprint-rules", "sort", "--depth", 0, out="-O")
    assert requested == ["/", "/"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--fingerprint-rules", "trackin"], "fingerprint_rules: 'trackin' is unknown: did you mean tracking?"),
        (
            ["--fingerprint-rules", "nowhere:key"],
            "fingerprint_rules: there is no module 'nowhere', neither installed nor in ",
        ),
        (["--fingerprint-rules", "shop:none"], "the key resolver shop:none returned a NoneType for http://127.0.0.1"),
        (["--segment", "30min"], "segment: '30min' is too short: each segment fetches"),
        (["--segment", "shop:segment"], "the segment resolver shop:segment failed: AssertionError"),
        (["-s", "segment=weekly"], "segment: 'weekly' is unknown: did you mean week?"),
    ],
)
def test_mistakes_print_one_line_and_nothing_is_fetched(shop, home, more, message):
    url, requested = shop
    done = lycosa("crawl", url, "-o", "items.jsonl", *more, cwd=home)
    assert done.returncode == 2
    assert assert_one_line(done.stderr).startswith(message)
    assert requested == []


def test_failing_key_function_fails_only_the_page_with_the_link(shop, home):
    url, requested = shop
    (home / "odd.py").write_text(
        dedent("""
        def key(method, url, body):
            if "gclid" in url:
                raise ValueError("odd")
            return url
        """)
    )
    done = crawl(url, home, "--fingerprint-rules", "odd:key", code=1)
    assert "the key resolver odd:key failed for" in done.stderr
    assert requested == ["/"]
