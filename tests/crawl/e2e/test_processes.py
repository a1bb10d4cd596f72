"""One crawl in several processes of a machine: one output, one summary, the same guarantees (C3, C5, C6, F8).

Whichever process is killed, at any moment: every page is fetched, every item is written once, the delays of hosts hold,
and the same command resumes the crawl.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import (
    Running,
    assert_exactly_once,
    assert_indexed_once,
    assert_one_line,
    items,
    lycosa,
    start_command,
)
from tests.conftest import PROVE
from tests.crawl.e2e.test_engine_killed import KilledCrawl
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import running
from tests.servers.shop import open_shop
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
TREE_SPIDER = """
class Pages(Spider):
    name = "pages"
    async def start(self):
        yield Request(f"{self.site}/0")
    def parse(self, response):
        yield {"url": response.url, "pid": os.getpid()}
        yield from response.follow_all(css="li a")
"""


def workers(run: Running) -> list[int]:
    """Return the process ids of the workers of a crawl."""
    return children(run.process.pid)


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + 30.0
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "a process outlives its crawl"
        time.sleep(0.01)


def tree_command(tree: Tree, *more: object) -> list[object]:
    options = ["--processes", PROCESSES, "--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY]
    return ["crawl", tree.url, "--state", "state", "-o", "items.jsonl", "--index", "index", *options, *more]


def spider_command(tree: Tree, cwd: Path, spider: str, *more: object) -> list[object]:
    (cwd / "spider.py").write_text(HEAD + dedent(spider))
    site = tree.url.removesuffix("/0")
    options = ["-a", f"site={site}", "-o", "items.jsonl", "--no-robots", "--processes", PROCESSES]
    return ["runspider", "spider.py", "--state", "state", *options, *more]


def test_a_crawl_in_several_processes_has_one_output_one_index_and_one_summary(tmp_path):
    with grow(150) as tree:
        done = lycosa(*tree_command(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("finished: 150 pages, 150 items") == 1
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert_indexed_once(tmp_path / "index", tree)
        second = lycosa(*tree_command(tree), cwd=tmp_path)
        assert (second.returncode, "nothing to do" in second.stderr) == (0, True)
        assert len(tree.hits()) == 151, "robots.txt is fetched once"


def test_all_workers_crawl_and_their_counts_are_summed(tmp_path):
    spider = (
        TREE_SPIDER
        + """
        self.crawler.stats.inc_value("mine", 2)
        self.crawler.stats.max_value("longest", len(response.url))
    def closed(self, reason):
        os.write(1, f"closed {reason} {os.getpid()}\\n".encode())
    """
    )
    with grow(120, delay_s=0.02) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider, "-L", "INFO"), cwd=tmp_path)
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


def progresses(run: Running, tree: Tree, rng: random.Random) -> list[int]:
    """Wait for some more pages, then for a moment. Return the workers: none when no page is left."""
    goal = len(tree.hits()) + rng.randrange(2, PAGES // KILLS // 2)
    progressed = run.until(lambda: len(tree.hits()) >= goal)
    time.sleep(rng.uniform(0, 0.03))
    return workers(run) if progressed else []


def kill_one(pids: list[int], rng: random.Random) -> bool:
    """Kill one of these processes; False if it has just ended, as they do at the end of a crawl."""
    with suppress(ProcessLookupError):
        os.kill(rng.choice(pids), signal.SIGKILL)
        return True
    return False


def test_random_kills_lose_and_duplicate_nothing(tmp_path, rng):
    kills = 0
    with grow(PAGES, delay_s=0.1) as tree:
        while kills < KILLS and len(tree.hits()) < PAGES:
            # The delay keeps the crawl from ending before the kills.
            with start_command(*tree_command(tree, "--delay", 0.03), cwd=tmp_path) as run:
                for _ in range(rng.randrange(1, 4)):
                    pids = progresses(run, tree, rng)
                    kills += bool(pids) and kill_one(pids, rng)
                pids = workers(run)
                kills += bool(progresses(run, tree, rng)) and run.kill()
                wait_until_ended(pids)
        assert kills, "the site has too few pages"
        done = lycosa(*tree_command(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert_indexed_once(tmp_path / "index", tree)
        counts = Counter(hit.path for hit in tree.hits() if hit.path != "/robots.txt")
        print(f"{kills} kills, {counts.total() - PAGES} pages fetched again")
        assert counts.total() > PAGES, "no kill interrupted a fetch"
        assert counts.total() - PAGES <= kills * (CONCURRENCY + ACKS_OF_A_COMMIT)


def test_errors_in_all_processes_count_for_the_limit_that_closes_the_crawl(tmp_path):
    starts = """for number in range(120):
            yield Request(f"{self.site}/{number}")"""
    spider = TREE_SPIDER.replace('yield Request(f"{self.site}/0")', starts)
    spider = spider.replace('yield {"url"', 'raise ValueError(response.url)\n        yield {"url"')
    with grow(120, delay_s=0.2) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider, "-s", "close_after_errors=2"), cwd=tmp_path)
        assert "closed (closespider_errorcount): " in done.stderr
        assert len(tree.hits()) < 60


@pytest.mark.parametrize(
    "inline", [pytest.param((), marks=pytest.mark.prove), ("-a", "inline=1")], ids=["pages", "inline"]
)
def test_after_kills_sessions_items_and_images_are_complete(tmp_path, rng, inline):
    kills = 3 if PROVE else 2
    with open_shop(180 if PROVE else 90) as shop:
        crawl = KilledCrawl(shop, tmp_path, *inline, "--processes", 3 if PROVE else PROCESSES)
        crawl.kill_times(kills, rng)
        crawl.finish()
        crawl.assert_session_kept(kills)
        crawl.assert_images(crawl.assert_items())
        bound = kills * (CONCURRENCY + crawl.commit_acks)
        assert crawl.refetches("/s/") <= bound * (1 + crawl.inline)


@pytest.mark.prove
def test_killed_workers_are_restarted_with_one_line_each(tmp_path):
    with grow(120, delay_s=0.05) as tree, start_command(*tree_command(tree, "--concurrency", 4), cwd=tmp_path) as run:
        assert run.until(lambda: len(tree.hits()) > 20), run.stderr
        for pid in workers(run):
            os.kill(pid, signal.SIGKILL)
        assert run.end() == 0, run.stderr
        assert run.stderr.count("a process of the crawl died (SIGKILL)") == PROCESSES
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())


def test_ctrl_c_saves_the_state_and_ends_all_processes(tmp_path):
    with grow(300, delay_s=0.1) as tree:
        # The delay keeps the crawl from ending before the signal.
        with start_command(*tree_command(tree, "--delay", 0.02), cwd=tmp_path) as run:
            assert run.until(lambda: len(tree.hits()) > 40), run.stderr
            pids = workers(run)
            os.killpg(run.process.pid, signal.SIGINT)
            assert run.end() == 130, run.stderr
            wait_until_ended(pids)
            assert run.stderr.count("interrupted") == 1, run.stderr
            assert "died" not in run.stderr
        hits = len(tree.hits())
        done = lycosa(*tree_command(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())
        assert hits < 300
        assert len(tree.hits()) <= 302, "transfers under way were completed; robots.txt is stored"


@pytest.mark.prove
def test_blocked_workers_end_when_the_main_process_is_killed(tmp_path):
    spider = TREE_SPIDER.replace('yield {"url"', 'time.sleep(1e6)\n        yield {"url"')
    with grow(30) as tree, start_command(*spider_command(tree, tmp_path, spider), cwd=tmp_path) as run:
        assert run.until(lambda: len(tree.hits()) > 0), run.stderr
        pids = workers(run)
        assert run.kill()
        assert len(pids) == PROCESSES
        wait_until_ended(pids)


def test_an_interrupt_before_the_first_fetch_ends_the_crawl_cleanly(tmp_path):
    # The delay keeps the crawl from ending before the signal.
    with grow(30) as tree, start_command(*tree_command(tree, "--delay", 1), cwd=tmp_path) as run:
        assert run.until(lambda: len(workers(run)) == PROCESSES), run.stderr
        pids = workers(run)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.end() == 130, run.stderr
        wait_until_ended(pids)
        assert "Traceback" not in run.stderr


def test_the_delay_of_a_host_holds_across_busy_workers(tmp_path):
    """Callbacks block their process for longer than the delay, so leased requests start late."""
    busy = 'time.sleep(0.6 * (int(response.url.rpartition("/")[2]) % 3 == 0))'
    spider = TREE_SPIDER.replace('yield {"url"', busy + '\n        yield {"url"')
    delay_s = 0.2
    with grow(25) as tree:
        done = lycosa(
            *spider_command(tree, tmp_path, spider, "--delay", delay_s, "-s", "slow_callback_after=0"), cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert len(tree.hits()) == 25
        assert_paced(gaps_of(hit.at for hit in tree.hits()), delay_s)


@pytest.mark.prove
def test_the_delay_of_an_address_holds_for_all_its_hosts(tmp_path):
    busy = 'time.sleep(0.5 * (int(response.url.rpartition("/")[2]) % 3 == 0))'
    spider = TREE_SPIDER.replace('yield {"url"', busy + '\n        yield {"url"')
    spider = spider.replace("def parse", '    yield Request(f"{self.other}/0")\n    def parse', 1)
    with grow(9) as tree, grow(9) as other:
        options = ("--delay-per-ip", 0.2, "-s", "slow_callback_after=0", "-a", f"other={other.url.removesuffix('/0')}")
        done = lycosa(*spider_command(tree, tmp_path, spider, *options), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls() | other.urls())
        assert_paced(gaps_of(hit.at for hit in (*tree.hits(), *other.hits())), 0.2)


@pytest.mark.prove
def test_a_callback_that_never_returns_ends_its_worker_but_not_the_crawl(tmp_path):
    spider = TREE_SPIDER.replace('yield {"url"', 'time.sleep(1e6 * response.url.endswith("/7"))\n        yield {"url"')
    with grow(30) as tree:
        options = ("-s", "max_lease=15", "-s", "slow_callback_after=0")
        done = lycosa(*spider_command(tree, tmp_path, spider, *options), cwd=tmp_path, timeout_s=400.0)
        assert done.returncode == 1, done.stderr
        assert "its worker process died repeatedly" in done.stderr
        urls = tree.urls() - {f"{tree.url.removesuffix('0')}7"}
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], urls)


@pytest.mark.prove
def test_a_callback_that_outlives_its_lease_is_cancelled(tmp_path):
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
        done = lycosa(*spider_command(tree, tmp_path, spider, "-s", "max_lease=1"), cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "lease expired" in done.stderr
        assert (len(tree.hits()), "hangs" in done.stderr) == (5, False)


@pytest.mark.prove
def test_changes_of_spider_state_in_workers_are_reported_as_not_saved(tmp_path):
    spider = (
        TREE_SPIDER
        + """
        self.state["seen"] = response.url
    """
    )
    with grow(3) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider), cwd=tmp_path)
        assert done.returncode == 0
        assert "pages.state was changed by callbacks: with several processes, it is not saved" in done.stderr


def test_all_workers_share_the_cookies_of_a_login(tmp_path):
    log_in = """
    def log_in(self, response):
        fields, options = {"name": "USER", "password": "PASSWORD"}, {"callback": self.account, "dont_filter": True}
        yield FormRequest.from_response(response, formid="login", formdata=fields, **options)
    def account(self, response):
        for number in range(20):
            yield Request(f"{self.site}/account?{number}", self.seen)
    def seen(self, response):
        time.sleep(0.05)
        yield {"pid": os.getpid(), "path": response.url.removeprefix(self.site), "text": response.css("p::text").get()}
    """.replace("USER", USER).replace("PASSWORD", PASSWORD)
    start = TREE_SPIDER.partition("    def parse")[0].replace('{self.site}/0")', '{self.site}/account", self.log_in)')
    with running() as server:
        (tmp_path / "spider.py").write_text("from lycosa import FormRequest\n" + HEAD + start + log_in)
        options = ["-a", f"site={server.url('')}", "-o", "items.jsonl", "--no-robots", "--processes", PROCESSES]
        done = lycosa("runspider", "spider.py", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = items(tmp_path / "items.jsonl")
        assert {item["text"] for item in found} == {f"Welcome, {USER}."}
        assert {item["path"] for item in found} == {f"/account?{number}" for number in range(20)}
        assert len({item["pid"] for item in found}) == PROCESSES


def test_inline_requests_keep_the_delay_of_their_host(tmp_path):
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
        done = lycosa(*spider_command(tree, tmp_path, spider, "--delay", 0.2), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        site = tree.url.removesuffix("/0")
        found = {item["url"]: item.get("title") for item in items(tmp_path / "items.jsonl")}
        assert found == {f"{site}/{n}": f"Page {n + 10}" for n in range(6)} | {
            f"{site}/{n}": None for n in range(20, 26)
        }
        assert_paced(gaps_of(hit.at for hit in tree.hits()), 0.2)


def test_a_middleware_may_fetch_from_the_host_of_its_request(tmp_path):
    token = """
class Token:
    async def process_request(self, request, spider):
        if request.url.endswith("/0"):
            await spider.fetch(f"{spider.site}/1")
"""
    uses = 'name = "pages"\n    custom_settings = {"downloader_middlewares": {Token: 50}}'
    spider = token + TREE_SPIDER.replace('name = "pages"', uses)
    with grow(3) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider, "--delay", 0.05), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls())


def test_only_a_page_that_kills_its_worker_is_dead(tmp_path):
    spider = (
        TREE_SPIDER
        + """
        if response.url.endswith("/7"):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    with grow(30) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider, "-s", "backoff_base=0.1"), cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "its worker process died repeatedly" in done.stderr
        lost = {f"{tree.url.removesuffix('0')}7"}
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], tree.urls() - lost)


@pytest.mark.prove
def test_a_worker_that_cannot_start_ends_the_crawl_with_one_line(tmp_path):
    spider = (
        TREE_SPIDER
        + """
    if "lycosa.app.crawl.worker_main" in __import__("sys").modules:
        os._exit(7)
    """
    )
    with grow(5) as tree:
        done = lycosa(*spider_command(tree, tmp_path, spider, "-q"), cwd=tmp_path)
        assert done.returncode == 3
        assert re.search(r"lycosa: a process of the crawl died \(exit code 7\), 4 times in a row", done.stderr), (
            done.stderr
        )


def test_an_error_of_open_spider_reads_the_same_as_in_one_process(tmp_path):
    spider = """
    class Broken:
        def open_spider(self, spider):
            raise ValueError("no database")
    """ + dedent(TREE_SPIDER).replace('name = "pages"', 'name = "pages"\n    pipelines = [Broken]')
    with grow(5) as tree:
        single = lycosa(*spider_command(tree, tmp_path, spider, "--processes", 1), cwd=tmp_path)
        done = lycosa(*spider_command(tree, tmp_path, spider), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (single.returncode, single.stderr)
        assert_one_line(done.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--processes", 0), "processes"),
        (("--processes", 2, "--frontier", "redis://127.0.0.1:1/0"), "start several workers"),
    ],
)
def test_invalid_options_are_refused(tmp_path, options, message):
    done = lycosa("crawl", "http://127.0.0.1:9/", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in assert_one_line(done.stderr)
