"""Several spiders in one run (C2) share frontier, crawl delays and output; everything else is per spider."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from lycosa import Crawl, Request, Spider
from lycosa.core.errors import ForeignState
from lycosa.crawl.engine.visit import Visitors
from lycosa.frontier.core.model import RECORD_VERSION, Extras, Lease, UrlRecord
from tests.cli.command import assert_exactly_once, assert_one_line, items, lycosa, start_command
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, running
from tests.servers.tree import Tree, grow

SPIDERS = """
import lycosa
from lycosa import DropItem, Request, Spider

class Mark:
    def __init__(self, mark):
        self.mark = mark
    def process_item(self, item):
        return {**item, "mark": self.mark}

class Base(Spider):
    async def start(self):
        yield Request(self.site)
    def parse(self, response):
        yield {"spider": self.name, "url": response.url}
        yield from response.follow_all(css="a")
"""
PAIR = """
class A(Base):
    name = "a"
    pipelines = [Mark("of a")]
class B(Base):
    name = "b"
    pipelines = [Mark("of b")]
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def write(cwd: Path, spiders: str) -> None:
    (cwd / "lycosa.toml").write_text('spider_modules = ["both"]\n')
    (cwd / "both.py").write_text(SPIDERS + dedent(spiders))


def command(*names: str, site: str, more: tuple[object, ...] = ()) -> list[object]:
    return ["crawl", *names, "-a", f"site={site}", "-o", "items.jsonl", "--state", "state", "--no-robots", *more]


def crawl(cwd: Path, *names: str, site: str, code: int = 0, more: tuple[object, ...] = ()) -> str:
    done = lycosa(*command(*names, site=site, more=more), cwd=cwd)
    assert done.returncode == code, done.stderr
    return done.stderr


def items_of(tree: Tree, spider: str) -> list[str]:
    return [f"{spider} {url}" for url in tree.urls()]


def written(cwd: Path) -> list[str]:
    return [f"{item['spider']} {item['url']}" for item in items(cwd / "items.jsonl")]


def test_each_spider_fetches_each_url_once_with_its_own_parts(tmp_path):
    write(tmp_path, PAIR)
    with grow(30) as tree:
        stderr = crawl(tmp_path, "a", "b", site=tree.url)
        assert "finished: 60 pages, 60 items" in stderr
        assert Counter(hit.path for hit in tree.hits()) == {f"/{n}": 2 for n in range(30)} | {"/away": 2}
        assert_exactly_once(
            [each for each in written(tmp_path) if "away" not in each], [*items_of(tree, "a"), *items_of(tree, "b")]
        )
        assert all(item["mark"] == f"of {item['spider']}" for item in items(tmp_path / "items.jsonl"))
        assert "nothing to do" in crawl(tmp_path, "b", "a", site=tree.url), "the order of the names does not matter"


def test_spiders_share_the_delay_of_a_host(tmp_path):
    write(tmp_path, PAIR)
    delay_s = 0.12
    with grow(6) as tree:
        crawl(tmp_path, "a", "b", site=tree.url, more=("--delay", delay_s))
        starts = [hit.at for hit in tree.hits() if hit.path != "/away"]
    assert len(starts) == 12
    assert_paced(gaps_of(starts), delay_s)
    # There are 11 delays between the 12 requests; with a delay for each spider, there would be only 5. The limit is 8,
    # because the first request may arrive late.
    assert starts[-1] - starts[0] > 8 * delay_s


def test_each_spider_has_its_own_user_agent_middlewares_cookies_and_domains(tmp_path, server):
    write(
        tmp_path,
        """
        class A(Base):
            name = "a"
            allowed_domains = ["127.0.0.1"]
            custom_settings = {"user_agent": "Agent-A", "downloader_middlewares": {"both:SignA": 10}}
            def parse(self, response):
                yield response.follow(f"/echo?jar={self.name}", self.seen)
                yield Request("http://localhost:1/outside", self.seen)
            def seen(self, response):
                yield {"spider": self.name, **response.json()["headers"]}
        class B(A):
            name = "b"
            allowed_domains = []
            custom_settings = {"user_agent": "Agent-B", "retries": 0}
            async def start(self):
                yield Request(self.site.replace("jar=a", "jar=b"))
        class SignA:
            def process_request(self, request):
                request.headers["X-Spider"] = "a"
        """,
    )
    site = server.url("/set-cookies?line=jar=a%3B+Path=/")
    crawl(tmp_path, "a", "b", site=site, code=1)
    a, b = sorted(items(tmp_path / "items.jsonl"), key=lambda item: item["spider"])
    assert (a["user-agent"], b["user-agent"]) == ("Agent-A", "Agent-B")
    assert (a.get("x-spider"), b.get("x-spider")) == ("a", None)
    assert (a["cookie"], b["cookie"]) == ("jar=a", "jar=b"), "each has its own cookie jar"
    dead = lycosa("frontier", "list", "--state", "state", "--status", "dead", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["spider"] for line in dead.splitlines()] == ["b"], "the domain is not allowed for spider a"


def test_repeated_kills_lose_nothing(tmp_path):
    """Nothing is lost or written twice, and each record returns to its spider."""
    write(tmp_path, PAIR)
    rng = random.Random(seed := random.randrange(10**6))
    print("seed", seed)
    with grow(150, delay_s=0.1) as tree:
        for _ in range(3):
            with start_command(*command("a", "b", site=tree.url), cwd=tmp_path) as run:
                before = tree.hit_bytes()
                fetches = run.until(lambda before=before: tree.hit_bytes() > before)
                killed = fetches and run.kill_at(time.monotonic() + rng.uniform(0.05, 0.3))
                assert killed or run.process.returncode == 0, run.stderr  # 0 if the kill came late
        crawl(tmp_path, "a", "b", site=tree.url)
        assert_exactly_once(
            [each for each in written(tmp_path) if "away" not in each], [*items_of(tree, "a"), *items_of(tree, "b")]
        )


class Good(Spider):
    """A spider without a name; the test makes subclasses with names."""

    async def start(self):
        yield Request(self.site)

    def parse(self, response):
        return None


@pytest.mark.parametrize(
    ("first", "second", "owners"),
    [
        (("a", "b"), ("a",), "the spiders 'a', 'b'"),
        (("a",), ("a", "b"), "the spider 'a'"),
        (("a", "b"), ("a", "c"), "the spiders 'a', 'b'"),
        (("a", "b"), ("a+b",), "the spiders 'a', 'b'"),
    ],
)
def test_the_state_of_other_spiders_is_refused_in_one_line(tmp_path, server, first, second, owners):
    async def run(names: tuple[str, ...]) -> None:
        spiders = [type("Named", (Good,), {"name": name}) for name in names]
        site = {"site": server.url("/good")}
        async with Crawl(spiders, spider_args=site, state=str(tmp_path / "state"), robots=False) as crawl:
            await crawl.run()

    asyncio.run(run(first))
    with pytest.raises(ForeignState) as caught:
        asyncio.run(run(second))
    message = f"{tmp_path / 'state'} is the state of {owners}; give another --state, or -O to start afresh"
    assert str(caught.value) == message


def test_shared_settings_must_agree(tmp_path, server):
    write(
        tmp_path,
        PAIR.replace('name = "a"', 'name = "a"\n    custom_settings = {"delay": 2}').replace(
            'name = "b"', 'name = "b"\n    custom_settings = {"delay": 3}'
        ),
    )
    line = assert_one_line(crawl(tmp_path, "a", "b", site=server.url("/good"), code=2))
    assert line.startswith("the spiders a and b have different values of delay (2.0, 3.0), which they must share")
    crawl(tmp_path, "a", "b", site=server.url("/good"), more=("--delay", "0"))


def test_explain_list_and_export_name_the_spider(tmp_path, server):
    write(
        tmp_path,
        """
        class A(Base):
            name = "a"
            allowed_domains = ["127.0.0.1"]
        class B(Base):
            name = "b"
            custom_settings = {"depth": 0, "deny": "*/nowhere"}
            def parse(self, response):
                raise ValueError("b")
        """,
    )
    url = server.url("/good")
    crawl(tmp_path, "a", "b", site=url, code=1)

    def explain(url: str) -> list[str]:
        done = lycosa("frontier", "explain", url, "--state", "state", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [line.strip() for line in done.stdout.splitlines()[1:]]

    lines = explain(url)
    assert [line.partition(" at ")[0] for line in lines if " at " in line] == ["a: done", "b: marked dead"]
    assert any("ValueError in parse" in line for line in lines)
    unseen = explain(server.url("/nowhere"))
    assert "a: never seen" in unseen
    assert "b: --deny */nowhere matches it" in unseen
    assert not any(line.startswith("a: --deny") for line in unseen)
    assert any(line.startswith("a: out of scope") for line in explain("http://elsewhere.example/"))
    assert not any(line.startswith("b: out of scope") for line in explain("http://elsewhere.example/"))
    exported = lycosa("frontier", "export", "-", "--state", "state", cwd=tmp_path).stdout
    rows = [json.loads(line) for line in exported.splitlines()]
    assert sorted(row["spider"] for row in rows if row["url"] == url) == ["a", "b"]


def test_spiders_share_the_cache(tmp_path, server):
    write(tmp_path, PAIR)
    url = server.url("/cached?control=max-age=900")
    for state in ("one", "other"):
        options = ("-s", "http_cache=rfc9111", "--concurrency", "1", "--state", state)
        crawl(tmp_path, "a", "b", site=url, more=options)
    assert Counter(written(tmp_path)) == {f"a {url}": 2, f"b {url}": 2}
    assert server.paths().count("/cached?control=max-age=900") == 1


def test_a_record_of_a_spider_that_is_not_running_is_dead_with_the_reason():
    lease = Lease(
        1, UrlRecord(RECORD_VERSION, 1, "http://a.example/", "http://a.example:80", extras=Extras(spider="c")), 0
    )
    failed = asyncio.run(Visitors({"a": None, "b": None}).visit(lease))
    assert (failed.reason, failed.retry_at) == ("no spider 'c' takes part in this run", None)


def test_imported_records_belong_to_a_spider(tmp_path, server):
    write(tmp_path, PAIR)
    crawl(tmp_path, "a", "b", site=server.url("/good"))
    (tmp_path / "bare").write_text(server.url("/slow?ms=1") + "\n")
    done = lycosa("frontier", "import", "bare", "--state", "state", "--strict", cwd=tmp_path)
    assert (done.returncode, "this crawl has several spiders: name one in the field spider: a or b" in done.stderr) == (
        2,
        True,
    ), done.stderr
    (tmp_path / "rows").write_text(
        "".join(json.dumps({"url": server.url(path), "spider": "b"}) + "\n" for path in ("/slow?ms=1", "/good"))
    )
    done = lycosa("frontier", "import", "rows", "--state", "state", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    crawl(tmp_path, "a", "b", site=server.url("/good"))
    assert Counter(written(tmp_path))[f"b {server.url('/slow?ms=1')}"] == 1
    assert Counter(written(tmp_path))[f"b {server.url('/good')}"] == 1, "b has fetched it already"
