"""One crawl over several processes of a machine: one output, one summary, the same promises (C3, C5, C6, F8).

Whoever of them is killed, at whatever instant: every page is fetched, each item is there once, hosts are asked as
slowly as they want to be, and the same command goes on.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import Running, assert_exactly_once, assert_indexed_once, assert_one_line, items, lycosa, started
from tests.conftest import PROVE
from tests.crawl.e2e.test_engine_killed import Story
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import running
from tests.servers.shop import opened
from tests.servers.sins_engine import PASSWORD, USER
from tests.servers.tree import Tree, grow

PROCESSES = 2
CONCURRENCY = 16
ACKS_OF_A_COMMIT = 256
KILLS = 20 if PROVE else 4
PAGES = 6000 if PROVE else 300
HEAD = """
import os, signal, time
from lycosa import Request, Spider
"""
PAGES_OF_A_TREE = """
class Pages(Spider):
    name = "pages"
    async def start(self):
        yield Request(f"{self.site}/0")
    def parse(self, response):
        yield {"url": response.url, "pid": os.getpid()}
        yield from response.follow_all(css="li a")
"""


def others(run: Running) -> list[int]:
    """Return the processes that a crawl has started."""
    return children(run.process.pid)


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_the_end_of(pids: list[int]) -> None:
    deadline = time.monotonic() + 30.0
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline, "a process outlives its crawl"
        time.sleep(0.01)


def of_tree(tree: Tree, *more: object) -> list[object]:
    options = ["--processes", PROCESSES, "--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY]
    return ["crawl", tree.url, "--state", "state", "-o", "items.jsonl", "--index", "index", *options, *more]


def of_spider(tree: Tree, cwd: Path, spider: str, *more: object) -> list[object]:
    (cwd / "spider.py").write_text(HEAD + dedent(spider))
    site = tree.url.removesuffix("/0")
    told = ["-a", f"site={site}", "-o", "items.jsonl", "--no-robots", "--processes", PROCESSES]
    return ["runspider", "spider.py", "--state", "state", *told, *more]


def test_one_output_one_index_one_summary(tmp_path):
    with grow(150) as tree:
        done = lycosa(*of_tree(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("finished: 150 pages, 150 items") == 1
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert_indexed_once(tmp_path / "index", tree)
        again = lycosa(*of_tree(tree), cwd=tmp_path)
        assert (again.returncode, "nothing to do" in again.stderr) == (0, True)
        assert len(tree.hits()) == 151, "one robots.txt"


def test_all_take_part_and_count_together(tmp_path):
    spider = (
        PAGES_OF_A_TREE
        + """
        self.crawler.stats.inc_value("mine", 2)
        self.crawler.stats.max_value("longest", len(response.url))
    def closed(self, reason):
        os.write(1, f"closed {reason} {os.getpid()}\\n".encode())
    """
    )
    with grow(120, delay_s=0.02) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "-L", "INFO"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        written = items(tmp_path / "items.jsonl")
        assert_exactly_once([item["url"] for item in written], tree.urls())
        assert len({item["pid"] for item in written}) == PROCESSES
        for name, value in {"mine": 240, "longest": len(tree.url) + 2, "item_scraped_count": 120}.items():
            assert f"'{name}': {value}," in done.stderr, done.stderr
        assert f"'downloader/request_count': {len(tree.hits())}," in done.stderr
        assert "'finish_reason': 'finished'" in done.stderr
        closed = [line.split() for line in done.stdout.splitlines()]
        assert len({pid for *_, pid in closed}) == PROCESSES + 1
        assert {reason for _, reason, _ in closed} == {"finished"}


def goes_on(run: Running, tree: Tree, rng: random.Random) -> bool:
    """Wait for some more pages, and a little; False when there are none."""
    goal = len(tree.hits()) + rng.randrange(2, PAGES // KILLS // 2)
    there = run.until(lambda: len(tree.hits()) >= goal)
    time.sleep(rng.uniform(0, 0.03))
    return there and bool(others(run))


def killed(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True


def test_killed_at_random_and_resumed(tmp_path, rng):
    kills = 0
    with grow(PAGES, delay_s=0.1) as tree:
        while kills < KILLS and len(tree.hits()) < PAGES:
            with started(*of_tree(tree), cwd=tmp_path) as run:
                for _ in range(rng.randrange(1, 4)):
                    kills += goes_on(run, tree, rng) and killed(rng.choice(others(run)))
                there = others(run)
                kills += goes_on(run, tree, rng) and run.kill()
                wait_for_the_end_of(there)
        assert kills >= KILLS, "there were not pages enough"
        done = lycosa(*of_tree(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert_indexed_once(tmp_path / "index", tree)
        counts = Counter(hit.path for hit in tree.hits() if hit.path != "/robots.txt")
        print(f"{kills} kills, {counts.total() - PAGES} pages fetched again")
        assert counts.total() > PAGES, "nothing was under way when they died"
        assert counts.total() - PAGES <= kills * (CONCURRENCY + ACKS_OF_A_COMMIT)


@pytest.mark.parametrize(
    "inline", [pytest.param((), marks=pytest.mark.prove), ("-a", "inline=1")], ids=["pages", "inline"]
)
def test_sessions_redirects_retries_and_images_across_kills(tmp_path, rng, inline):
    kills = 3 if PROVE else 2
    with opened(180 if PROVE else 90) as shop:
        story = Story(shop, tmp_path, *inline, "--processes", 3 if PROVE else PROCESSES)
        story.is_killed(kills, rng)
        story.ends()
        story.assert_session_kept(kills)
        story.assert_images(story.assert_items())
        bound = kills * (CONCURRENCY + story.commit_acks)
        assert story.again("/s/") <= bound * (1 + story.inline)


@pytest.mark.prove
def test_those_that_die_are_started_again_and_told_of_in_one_line(tmp_path):
    with grow(120, delay_s=0.05) as tree, started(*of_tree(tree, "--concurrency", 4), cwd=tmp_path) as run:
        assert run.until(lambda: len(tree.hits()) > 20), run.stderr
        first = others(run)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert run.end() == 0, run.stderr
        assert run.stderr.count("a process of the crawl died (SIGKILL)") == PROCESSES
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())


def test_ctrl_c_saves_all_and_ends_all(tmp_path):
    with grow(300, delay_s=0.1) as tree:
        with started(*of_tree(tree), cwd=tmp_path) as run:
            assert run.until(lambda: len(tree.hits()) > 40), run.stderr
            there = others(run)
            os.killpg(run.process.pid, signal.SIGINT)
            assert run.end() == 130, run.stderr
            wait_for_the_end_of(there)
            assert run.stderr.count("interrupted") == 1, run.stderr
            assert "died" not in run.stderr
        hits = len(tree.hits())
        done = lycosa(*of_tree(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert hits < 300
        assert len(tree.hits()) <= 302, "what was under way had its time to end; robots.txt is known"


@pytest.mark.prove
def test_those_that_are_blocked_die_with_their_owner_too(tmp_path):
    spider = PAGES_OF_A_TREE.replace('yield {"url"', 'time.sleep(1e6)\n        yield {"url"')
    with grow(30) as tree, started(*of_spider(tree, tmp_path, spider), cwd=tmp_path) as run:
        assert run.until(lambda: len(tree.hits()) > 0), run.stderr
        there = others(run)
        assert run.kill()
        assert len(there) == PROCESSES
        wait_for_the_end_of(there)


def test_interrupted_before_it_has_begun(tmp_path):
    with grow(30) as tree, started(*of_tree(tree), cwd=tmp_path) as run:
        assert run.until(lambda: len(others(run)) == PROCESSES), run.stderr
        there = others(run)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.end() == 130, run.stderr
        wait_for_the_end_of(there)
        assert "Traceback" not in run.stderr


def test_the_delay_holds_for_all_together_however_busy_they_are(tmp_path):
    """Callbacks hold their process up for longer than the delay, so that what was lent starts late."""
    busy = 'time.sleep(0.6 * (int(response.url.rpartition("/")[2]) % 3 == 0))'
    spider = PAGES_OF_A_TREE.replace('yield {"url"', busy + '\n        yield {"url"')
    delay_s = 0.2
    with grow(25) as tree:
        done = lycosa(
            *of_spider(tree, tmp_path, spider, "--delay", delay_s, "-s", "slow_callback_after=0"), cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert len(tree.hits()) == 25
        assert_paced(gaps_of(hit.at for hit in tree.hits()), delay_s)


@pytest.mark.prove
def test_the_delay_of_an_address_holds_for_all_its_hosts(tmp_path):
    busy = 'time.sleep(0.5 * (int(response.url.rpartition("/")[2]) % 3 == 0))'
    spider = PAGES_OF_A_TREE.replace('yield {"url"', busy + '\n        yield {"url"')
    spider = spider.replace("def parse", '    yield Request(f"{self.other}/0")\n    def parse', 1)
    with grow(9) as tree, grow(9) as other:
        options = ("--delay-per-ip", 0.2, "-s", "slow_callback_after=0", "-a", f"other={other.url.removesuffix('/0')}")
        done = lycosa(*of_spider(tree, tmp_path, spider, *options), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls() | other.urls())
        assert_paced(gaps_of(hit.at for hit in (*tree.hits(), *other.hits())), 0.2)


@pytest.mark.prove
def test_a_callback_that_never_returns_costs_its_process_and_not_the_crawl(tmp_path):
    spider = PAGES_OF_A_TREE.replace(
        'yield {"url"', 'time.sleep(1e6 * response.url.endswith("/7"))\n        yield {"url"'
    )
    with grow(30) as tree:
        options = ("-s", "max_lease=15", "-s", "slow_callback_after=0")
        done = lycosa(*of_spider(tree, tmp_path, spider, *options), cwd=tmp_path, timeout_s=400.0)
        assert done.returncode == 1, done.stderr
        assert "its process died again and again" in done.stderr
        urls = tree.urls() - {f"{tree.url.removesuffix('0')}7"}
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls)


@pytest.mark.prove
def test_a_callback_that_waits_too_long_is_given_up(tmp_path):
    spider = """
    import asyncio
    class Slow(Spider):
        name = "slow"
        async def start(self):
            yield Request(f"{self.site}/0")
        async def parse(self, response):
            await asyncio.sleep(60)
    """
    with grow(1) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "-s", "max_lease=1"), cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "lease expired" in done.stderr
        assert (len(tree.hits()), "hangs" in done.stderr) == (5, False)


@pytest.mark.prove
def test_what_a_spider_keeps_is_not_kept_and_that_is_told(tmp_path):
    spider = (
        PAGES_OF_A_TREE
        + """
        self.state["seen"] = response.url
    """
    )
    with grow(3) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider), cwd=tmp_path)
        assert done.returncode == 0
        assert "pages.state was changed by callbacks: with several processes it is not kept" in done.stderr


def test_a_login_is_known_to_all(tmp_path):
    log_in = """
    def log_in(self, response):
        filled, again = {"name": "USER", "password": "PASSWORD"}, {"callback": self.account, "dont_filter": True}
        yield FormRequest.from_response(response, formid="login", formdata=filled, **again)
    def account(self, response):
        for number in range(20):
            yield Request(f"{self.site}/account?{number}", self.seen)
    def seen(self, response):
        time.sleep(0.05)
        yield {"pid": os.getpid(), "path": response.url.removeprefix(self.site), "says": response.css("p::text").get()}
    """.replace("USER", USER).replace("PASSWORD", PASSWORD)
    start = PAGES_OF_A_TREE.partition("    def parse")[0].replace(
        '{self.site}/0")', '{self.site}/account", self.log_in)'
    )
    with running() as server:
        (tmp_path / "spider.py").write_text("from lycosa import FormRequest\n" + HEAD + start + log_in)
        told = ["-a", f"site={server.url('')}", "-o", "items.jsonl", "--no-robots", "--processes", PROCESSES]
        done = lycosa("runspider", "spider.py", *told, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = items(tmp_path / "items.jsonl")
        assert {item["says"] for item in found} == {f"Welcome, {USER}."}
        assert {item["path"] for item in found} == {f"/account?{number}" for number in range(20)}
        assert len({item["pid"] for item in found}) == PROCESSES


def test_what_is_fetched_inline_waits_for_its_turn(tmp_path):
    spider = """
    class Inline(Spider):
        name = "inline"
        async def start(self):
            for number in range(6):
                yield Request(f"{self.site}/{number}")
        async def parse(self, response):
            number = int(response.url.rpartition("/")[2])
            answer = await self.fetch(f"{self.site}/{number + 10}")
            yield {"url": response.url, "title": answer.css("title::text").get()}
            await self.crawler.crawl(Request(f"{self.site}/{number + 20}", self.last))
        def last(self, response):
            yield {"url": response.url}
    """
    with grow(30) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "--delay", 0.2), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        site = tree.url.removesuffix("/0")
        found = {item["url"]: item.get("title") for item in items(tmp_path / "items.jsonl")}
        assert found == {f"{site}/{n}": f"Page {n + 10}" for n in range(6)} | {
            f"{site}/{n}": None for n in range(20, 26)
        }
        assert_paced(gaps_of(hit.at for hit in tree.hits()), 0.2)


def test_a_middleware_that_fetches_from_the_host_of_its_request_does_not_wait_for_itself(tmp_path):
    token = """
class Token:
    async def process_request(self, request, spider):
        if request.url.endswith("/0"):
            await spider.fetch(f"{spider.site}/1")
"""
    uses = 'name = "pages"\n    custom_settings = {"downloader_middlewares": {Token: 50}}'
    spider = token + PAGES_OF_A_TREE.replace('name = "pages"', uses)
    with grow(3) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "--delay", 0.05), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())


def test_a_page_that_kills_its_process_is_dead_and_nothing_else_is(tmp_path):
    spider = (
        PAGES_OF_A_TREE
        + """
        if response.url.endswith("/7"):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    with grow(30) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "-s", "backoff_base=0.1"), cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "its process died again and again" in done.stderr
        lost = {f"{tree.url.removesuffix('0')}{n}" for n in (7,)}
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls() - lost)


@pytest.mark.prove
def test_one_that_cannot_start_ends_the_crawl_in_one_line(tmp_path):
    spider = (
        PAGES_OF_A_TREE
        + """
    if "lycosa.app.crawl.worker_main" in __import__("sys").modules:
        os._exit(7)
    """
    )
    with grow(5) as tree:
        done = lycosa(*of_spider(tree, tmp_path, spider, "-q"), cwd=tmp_path)
        assert done.returncode == 3
        assert re.search(r"lycosa: a process of the crawl died \(exit code 7\), 4 times in a row", done.stderr), (
            done.stderr
        )


def test_what_a_pipeline_cannot_open_is_told_as_ever(tmp_path):
    spider = """
    class Broken:
        def open_spider(self, spider):
            raise ValueError("no database")
    """ + dedent(PAGES_OF_A_TREE).replace('name = "pages"', 'name = "pages"\n    pipelines = [Broken]')
    with grow(5) as tree:
        alone = lycosa(*of_spider(tree, tmp_path, spider, "--processes", 1), cwd=tmp_path)
        done = lycosa(*of_spider(tree, tmp_path, spider), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)
        assert_one_line(done.stderr)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--processes", 0), "processes"),
        (("--processes", 2, "--frontier", "redis://127.0.0.1:1/0"), "start several workers"),
    ],
)
def test_what_is_refused(tmp_path, options, says):
    done = lycosa("crawl", "http://127.0.0.1:9/", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert says in assert_one_line(done.stderr)
