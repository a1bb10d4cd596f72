"""One crawl, several workers, one Redis (C3, C6): no page is lost, each item is written once, delays are kept, the
crawl ends.

The pages are served by nginx: page n, on host n modulo HOSTS, links to the pages 10n + 1 ... 10n + 10. Workers and the
server are killed during the crawl.
"""

from __future__ import annotations

import fcntl
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from textwrap import dedent

import pytest

from tests.cli.command import AT_ONCE_S, LYCOSA, PATIENT, environment, interrupt, lycosa
from tests.conftest import PROVE
from tests.pace import assert_hosts_paced, gaps_of
from tests.queues.e2e.members import wait_until
from tests.servers.misbehaving import running
from tests.servers.nginx import Nginx, serve
from tests.servers.redis import redis_cluster, redis_server
from tests.servers.redis_client import redis_client

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES, HOSTS, KILLS, SERVER_KILLS, DELAY_S = 30_000 if PROVE else 6_000, 300, 20, 2, 0.5
FEW_PAGES, FEW_HOSTS, FEW_KILLS = 1_500, 100, 4
FULL = (PAGES, HOSTS, KILLS, SERVER_KILLS)
SMALLER = FULL if PROVE else (3_000, HOSTS, 4, 1)
"""As many hosts as in FULL, so that workers, not delays, determine how long the crawl takes. With fewer hosts the
delays would: a late request postpones all later requests to its host, and so the end of the crawl."""
CONCURRENCY, COMMIT_ACKS = 64, 64
"""The requests that a killed worker has in flight, and the acks since its last commit."""
END_MAX_S = 900.0 if PROVE else 90.0
EXIT_MAX_S = 3.0 if PROVE else 15.0
"""The maximum time from the last page to the end of the workers: three seconds on an idle machine, as documented."""

PAGE = """
    location = /page { default_type text/html; return 200 "<title>x</title>$arg_n"; }
    location = /login { add_header Set-Cookie "id=secret; path=/"; return 200 "x"; }
    location = /mine { default_type text/plain; return 200 "$http_cookie"; }
"""
MEMBERS = """
    import asyncio
    from pathlib import Path
    from lycosa import Request, Spider

    class Members(Spider):
        name = "members"
        pages = port = hosts = ""

        async def start(self):
            yield Request(f"http://localhost:{self.port}/login")

        async def parse(self, response):
            while not Path("go").exists():
                await asyncio.sleep(0.02)
            for n in range(int(self.pages)):
                yield Request(f"http://localhost:{self.port}/mine?n={n}", self.parse_mine, cb_kwargs={"n": n})

        def parse_mine(self, response, n):
            yield {"n": n, "cookie": response.text}
"""
SPIDER = """
    import asyncio
    from pathlib import Path
    from lycosa import Request, Spider

    class Small(Spider):
        name = "small"
        pages = port = hosts = ""

        async def start(self):
            while Path("wait").exists():
                await asyncio.sleep(0.02)
            yield Request(self.url_of(0), cb_kwargs={"n": 0})

        def parse(self, response, n):
            yield {"n": n}
            for child in range(10 * n + 1, min(10 * n + 11, int(self.pages))):
                yield Request(self.url_of(child), cb_kwargs={"n": child})

        def url_of(self, n):
            return f"http://h{n % int(self.hosts)}.localhost:{self.port}/page?n={n}"
"""


@dataclass
class Crawl:
    """The workers of one crawl, by number, and the files they write."""

    home: Path
    site: Nginx
    frontier: str
    options: tuple[str, ...] = ()
    pages: int = FEW_PAGES
    hosts: int = FEW_HOSTS
    name: str = field(default_factory=token_hex)
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: float = 0.0
    sizes: dict[int, int] = field(default_factory=dict)
    environments: dict[int, dict[str, str]] = field(default_factory=dict)
    program: tuple[str, ...] = LYCOSA

    @property
    def port(self) -> str:
        """The port of the site."""
        return self.site.url.rpartition(":")[2]

    def start(self, number: int) -> None:
        """Start or restart a worker."""
        spider_arguments = {"pages": self.pages, "hosts": self.hosts, "port": self.port}
        arguments = [part for name, value in spider_arguments.items() for part in ("-a", f"{name}={value}")]
        outputs = ("-o", f"{number}.jsonl", "--state", f"state{number}", "--frontier", self.frontier)
        commits = ("--commit-acks", str(COMMIT_ACKS))
        self.started, self.sizes[number] = time.time(), self.size(number)
        command = [*self.program, "worker", "spider.py", *arguments, *outputs, "--crawl-name", self.name, "--no-robots"]
        env = {**environment(), **self.environments.get(number, {})}
        with (self.home / f"{number}.log").open("ab") as log:
            self.workers[number] = subprocess.Popen(
                [*command, *commits, *self.options], cwd=self.home, env=env, stdout=subprocess.DEVNULL, stderr=log
            )

    @contextmanager
    def together(self, count: int) -> Iterator[None]:
        """Let no worker of the block begin before all `count` have joined, so that none fetches all pages alone.

        A worker that has never joined waits for a killed server for two seconds only.
        """
        (self.home / "wait").touch()
        yield
        joined = [self.home / f"state{number}" / "worker" for number in range(count)]
        wait_until(lambda: all(file.exists() for file in joined), END_MAX_S)
        (self.home / "wait").unlink()

    def kill(self, number: int) -> None:
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()

    def at_work(self) -> list[int]:
        """Return the running workers that have written items since their start.

        At the start a worker removes uncommitted items, so its file may get smaller first.
        """
        sizes = {number: self.size(number) for number in self.alive()}
        self.sizes = {number: min(size, self.sizes.get(number, size)) for number, size in sizes.items()}
        return [number for number, size in sizes.items() if size > self.sizes[number]]

    def size(self, number: int) -> int:
        """Return the size of a worker's items in bytes."""
        file = self.home / f"{number}.jsonl"
        return file.stat().st_size if file.exists() else 0

    def alive(self) -> list[int]:
        """Return the running workers."""
        return [number for number, worker in self.workers.items() if worker.poll() is None]

    def requests(self) -> list[tuple[float, int]]:
        """Return the time and page number of each request."""
        matches = [(each.at, re.search(r"n=(\d+)", each.uri)) for each in self.site.requests()]
        return [(time_s, int(page[1])) for time_s, page in matches if page]

    def requests_by_host(self) -> list[list[float]]:
        """Return the times of the requests to each host."""
        starts: dict[int, list[float]] = defaultdict(list)
        for time_s, page in self.requests():
            starts[page % self.hosts].append(time_s)
        return [*starts.values()]

    def gaps(self) -> list[float]:
        """Return the times between two requests to the same host."""
        return [gap for times in self.requests_by_host() for gap in gaps_of(times)]

    def items(self) -> Counter[int]:
        """Return how often each page is among the items of all workers."""
        lines = [line for number in self.workers for line in (self.home / f"{number}.jsonl").read_text().splitlines()]
        return Counter(json.loads(line)["n"] for line in lines)

    def wait(self) -> float:
        """Wait until all workers end. Return the unix time in seconds."""
        with suppress(subprocess.TimeoutExpired):
            for worker in self.workers.values():
                worker.wait(END_MAX_S)
        ended = time.time()
        codes = [worker.poll() for worker in self.workers.values()]
        logs = "\n".join((self.home / f"{number}.log").read_text()[-1500:] for number in self.workers)
        assert codes == [0] * len(codes), logs
        return ended

    def check(self, ended: float, *, kills: int) -> None:
        """Check that each item is there once, that few pages were fetched again, and that the crawl ended soon."""
        assert self.items() == Counter(range(self.pages))
        requests = self.requests()
        assert len(requests) - self.pages <= kills * (CONCURRENCY + COMMIT_ACKS)
        over_s = ended - max(self.started, *(time_s for time_s, _ in requests))
        print(f"{len(requests) - self.pages} pages again, the end {over_s:.1f} s after the last page")
        assert over_s <= EXIT_MAX_S


@contextmanager
def crawl(home: Path, frontier: str, *options: str, **size: int) -> Iterator[Crawl]:
    """Serve the pages, and kill the remaining workers afterwards."""
    (home / "site").mkdir()
    (home / "spider.py").write_text(dedent(SPIDER))
    with serve(home / "site", extra=PAGE) as site:
        running = Crawl(home, site, frontier, options, **size)
        try:
            yield running
        finally:
            for number in running.alive():
                running.kill(number)


def kill_workers(running: Crawl, rng: random.Random, kills: int) -> int:
    """Kill random workers that are at work, and restart each of them soon.

    Return the number of kills, which is below `kills` if the crawl ends before.
    """
    for count in range(kills):
        wait_until(lambda: running.at_work() or not running.alive())
        time.sleep(rng.uniform(0.0, 0.4))
        candidates = running.at_work()
        if not candidates:
            return count
        number = rng.choice(candidates)
        running.kill(number)
        time.sleep(rng.uniform(0.0, 0.3))
        running.start(number)
    return kills


@pytest.mark.parametrize(("partitions", "size"), [(1, SMALLER), (4, FULL)], ids=["1", "4"])
def test_three_workers_and_the_server_are_killed(
    tmp_path: Path, partitions: int, size: tuple[int, int, int, int]
) -> None:
    pages, hosts, kills_of_workers, kills_of_servers = size
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    options = ("--delay", str(DELAY_S), "-s", f"partitions={partitions}")
    with (
        redis_server(append="everysec") as server,
        crawl(tmp_path, server.url, *options, pages=pages, hosts=hosts) as running,
    ):
        with running.together(3):
            for number in range(3):
                running.start(number)
        kills = kill_workers(running, rng, kills_of_workers // 2)
        for _ in range(kills_of_servers):
            server.kill()
            time.sleep(rng.uniform(0.0, 2.0))
            server.start()
            kills += kill_workers(running, rng, kills_of_workers // 2 // kills_of_servers)
        assert kills >= kills_of_workers // 2, "the crawl ended too soon"
        running.check(running.wait(), kills=kills + kills_of_servers)
        print(f"{kills} kills, minimum gap {min(running.gaps()):.3f} s")
        assert_hosts_paced(running.requests_by_host(), DELAY_S)


@pytest.mark.parametrize("silent_s", [pytest.param(0.5, marks=pytest.mark.prove), 4.0])
def test_a_paused_worker_expires_and_joins_again(tmp_path: Path, redis, silent_s: float) -> None:
    """After two seconds the other workers get the URLs of the paused worker, which joins again when it continues.
    After a shorter pause it has not expired, and just continues.
    """
    with crawl(tmp_path, redis.url, "--delay", "0.5") as running:
        with running.together(2):
            for number in range(2):
                running.start(number)
        wait_until(lambda: all(len(running_items(tmp_path, f"{number}.jsonl")) >= 100 for number in range(2)))
        running.workers[0].send_signal(signal.SIGSTOP)
        time.sleep(silent_s)
        if silent_s > 2:  # nobody expires while the other worker is paused, too, by a busy machine
            wait_until(lambda: redis_client(redis.url).zcard(f"lycosa:{{{running.name}.0}}:workers") == 1)
        running.workers[0].send_signal(signal.SIGCONT)
        ended = running.wait()
        rejoins = [(tmp_path / f"{number}.log").read_text().count("this worker rejoins") for number in range(2)]
        running.check(ended, kills=sum(rejoins))
        assert (rejoins[0] > 0) == (silent_s > 2)


def test_a_server_that_lost_its_data_ends_the_workers_with_an_error(tmp_path: Path) -> None:
    with redis_server() as server, crawl(tmp_path, server.url, "--delay", "0.5") as running:
        with running.together(2):
            for number in range(2):
                running.start(number)
        # Both workers must have joined: a new worker would start the crawl afresh.
        wait_until(lambda: all(len(running_items(tmp_path, f"{number}.jsonl")) >= 20 for number in range(2)))
        server.kill()
        server.start(keep=False)
        for number, worker in running.workers.items():
            assert worker.wait(END_MAX_S) == 3
            log = (tmp_path / f"{number}.log").read_text()
            assert "is missing: the server has lost it" in log
            assert "Traceback" not in log


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
def test_workers_of_a_crawl_on_a_cluster_are_killed(tmp_path: Path) -> None:
    with redis_cluster() as cluster:
        first = cluster.nodes[0]
        with crawl(tmp_path, f"redis://127.0.0.1:{first.port}/0", "-s", "partitions=6") as running:
            for number in range(3):
                running.start(number)
            kills = kill_workers(running, random.Random(1), FEW_KILLS)
            running.check(running.wait(), kills=kills)


RECONNECT_S, LEAVE_S = 15.0, 1.0
SHORT_LIMITS = f"""
import sys
from lycosa.app.crawl import frontier
from lycosa.cli.crawl import progress
from lycosa.infra.redis import server
progress.PLAIN_EVERY_S, frontier.LEAVE_MAX_S = 0.2, {LEAVE_S}
server.RECONNECT_MAX_S = {RECONNECT_S}
from lycosa.cli.main import main
sys.exit(main())
"""


def test_an_unreachable_server_is_waited_for_once(tmp_path: Path) -> None:
    """The worker does not wait again for its summary, nor for leaving the crawl."""
    with redis_server() as server, (tmp_path / "stderr").open("w") as stderr:
        options = ("--frontier", server.url, "--crawl-name", "x", "--keep-alive", "--no-robots", "-s", "retries=0")
        command = [sys.executable, "-c", SHORT_LIMITS, "worker", "http://127.0.0.1:9/", *options]
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=stderr, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: "1 failed" in (tmp_path / "stderr").read_text())
            server.kill()
            killed_at = time.monotonic()
            assert worker.wait(END_MAX_S) == 3
        finally:
            worker.kill()
            worker.wait()
    assert time.monotonic() - killed_at < 2 * RECONNECT_S - 1.0  # one more wait would take RECONNECT_S longer


@pytest.mark.parametrize("method", ["kill", "pause"])
def test_a_second_interrupt_waits_for_no_server(tmp_path: Path, method: str) -> None:
    with redis_server() as server, crawl(tmp_path, server.url, "--keep-alive", pages=1) as running:
        running.program = PATIENT
        running.start(0)
        worker, log = running.workers[0], tmp_path / "0.log"
        wait_until(lambda: bool(running_items(tmp_path)))
        time.sleep(0.5)  # until it has committed and waits
        getattr(server, method)()
        time.sleep(1.0)
        interrupt(worker)
        interrupted_at = time.monotonic()
        worker.send_signal(signal.SIGINT)
        assert worker.wait(END_MAX_S) == 130, log.read_text()
        assert time.monotonic() - interrupted_at < AT_ONCE_S
        assert "Traceback" not in log.read_text()


def test_an_idle_worker_calls_the_server_a_few_times_a_second(tmp_path: Path) -> None:
    """The calls are for leases, heartbeats, and the progress of the crawl."""

    def scripts() -> int:
        (calls,) = re.findall(r"cmdstat_evalsha:calls=(\d+)", server.cli("INFO", "commandstats"))
        return int(calls)

    def calls_per_s() -> float:
        calls_before, started = scripts(), time.monotonic()
        time.sleep(4.0)
        found = (scripts() - calls_before) / (time.monotonic() - started)
        print(f"{found:.1f} calls per second")
        return found

    with redis_server() as server, crawl(tmp_path, server.url, "--keep-alive", pages=1) as running:
        running.start(0)
        wait_until(lambda: bool(running_items(tmp_path)))
        time.sleep(0.5)  # until it has committed and waits, unless the machine is busy
        assert any(calls_per_s() < 5.5 for _ in range(3))


def test_a_worker_with_keep_alive_fetches_records_that_come_later(tmp_path: Path, redis) -> None:
    with crawl(tmp_path, redis.url, "--keep-alive") as running:
        running.start(0)
        wait_until(lambda: len(running_items(tmp_path)) >= running.pages)
        running.options = ()
        running.start(1)  # finds nothing to do, and ends
        assert running.workers[1].wait(END_MAX_S) == 0
        assert running.alive() == [0]
        running.workers[0].send_signal(signal.SIGTERM)
        assert running.workers[0].wait(END_MAX_S) == 0
        assert running.items() == Counter(range(running.pages))


def test_workers_with_shared_cookies_are_one_user(tmp_path: Path, redis) -> None:
    options = ("-s", "cookies_shared=true", "-s", "partitions=3", "--delay", "0.02")
    with crawl(tmp_path, redis.url, *options, pages=200) as running:
        (tmp_path / "spider.py").write_text(dedent(MEMBERS))
        for number in range(3):
            running.start(number)
        wait_until(lambda: all((tmp_path / f"state{number}" / "worker").exists() for number in range(3)))
        (tmp_path / "go").touch()  # all of them have joined
        running.wait()
        assert running.items() == Counter(range(200))
        assert {json.loads(line)["cookie"] for line in running_items(tmp_path)} == {"id=secret"}
        assert all((tmp_path / f"{number}.jsonl").stat().st_size for number in range(3))


def test_a_shared_crawl_is_not_started_afresh(tmp_path: Path, redis) -> None:
    done = lycosa("crawl", "http://127.0.0.1:9/", "--frontier", redis.url, "-O", "items.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "give another --crawl-name, --state and -o" in done.stderr


def test_a_worker_requeues_the_dead_urls_of_a_shared_crawl(tmp_path: Path, redis) -> None:
    url, name = "http://127.0.0.1:9/", token_hex(4)
    common = ("worker", url, "--frontier", redis.url, "--crawl-name", name, "--no-robots", "-s", "retries=0")
    command = (*common, "-o", "items.jsonl", "--state", "mine")
    assert lycosa(*command, cwd=tmp_path).returncode == 1
    second_run = lycosa(*command, cwd=tmp_path).stderr
    assert "(0 done, 1 dead); --retry-dead queues the dead URLs again, another --crawl-name" in second_run
    retried = lycosa(*command, "--retry-dead", cwd=tmp_path)
    assert retried.returncode == 1
    assert "finished: 0 pages" in retried.stderr


def test_dead_urls_of_a_shared_crawl_are_requeued_although_robots_txt_was_unreachable(tmp_path: Path, redis) -> None:
    """Redis keeps the failure for hours: a robots.txt that cannot be fetched forbids everything."""
    with running(robots="500") as server:
        common = ("worker", server.url("/good"), "--frontier", redis.url, "--crawl-name", token_hex(4))
        command = (*common, "-s", "retries=0", "-o", "items.jsonl", "--state", "mine")
        first = lycosa(*command, cwd=tmp_path)
        assert (first.returncode, f"cannot fetch {server.url('/robots.txt')}: 500" in first.stderr) == (1, True)
        server.robots = "404"
        retried = lycosa(*command, "--retry-dead", cwd=tmp_path)
        assert (retried.returncode, "finished: 1 page, 1 item " in retried.stderr) == (0, True), retried.stderr


def test_a_state_belongs_to_one_crawl(tmp_path: Path, redis) -> None:
    """Without --state the state is found by the name of the crawl."""
    first, second = token_hex(4), token_hex(4)
    common = ("crawl", "http://127.0.0.1:9/", "--no-robots", "-s", "retries=0")

    def stderr_of(code: int, *more: str) -> str:
        done = lycosa(*common, "-q", *more, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stderr

    shared = ("--frontier", redis.url, "--crawl-name")
    started = f" INFO lycosa.notices: Started crawl '{first}' in {redis.url}; workers can join."
    assert started in lycosa(*common, *shared, first, "--state", "mine", cwd=tmp_path).stderr
    assert stderr_of(1, *shared, first, "--state", "mine") == ""
    mismatch = f"a worker of the crawl '{first}', not of '{second}'"
    assert (
        stderr_of(3, *shared, second, "--state", "mine")
        == f"lycosa: mine is the state of {mismatch}: give another --state and -o\n"
    )
    assert "mine is the state of a worker of a shared crawl: give the --frontier" in stderr_of(3, "--state", "mine")
    membership = (tmp_path / "mine" / "worker").read_bytes()
    (tmp_path / "mine" / "worker").write_bytes(membership[:-9])
    damaged = "lycosa: mine/worker is damaged: to join as a new worker give another --state and -o\n"
    assert stderr_of(3, *shared, first, "--state", "mine") == damaged
    stderr_of(1, "--state", "mine", "-O", "afresh.jsonl")
    assert lycosa("frontier", "status", "--state", "mine", cwd=tmp_path).returncode == 0
    for name in (first, second):
        stderr_of(1, *shared, name)
        assert (tmp_path / ".lycosa" / name / "worker").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (("-o", "items.jsonl"), "another process writes to it"),
        (("-o", "no/folder/items.jsonl"), "there is no folder"),
        (("-o", "redis://127.0.0.1:1/0?stream=x"), "the connection was refused: is Redis running there?"),
        (("-o", "other.jsonl", "--index", "other"), "not a search index"),
    ],
)
def test_a_worker_that_cannot_write_its_output_changes_nothing(
    tmp_path: Path, redis, output: tuple[str, ...], message: str
) -> None:
    name = token_hex(4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").touch()
    with (tmp_path / "items.jsonl").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        options = ("--frontier", redis.url, "--crawl-name", name, *output)
        done = lycosa("worker", "http://127.0.0.1:9/", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert message in done.stderr
    status = lycosa("frontier", "status", "--frontier", redis.url, "--crawl-name", name, cwd=tmp_path)
    assert "there is no crawl" in status.stderr


WITHOUT_REDIS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from lycosa.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        (("redis", "hiredis"), "worker http://a.example/ --frontier redis://127.0.0.1:1"),
        (("redis", "hiredis"), "top redis://127.0.0.1:1"),
        (("redis", "hiredis"), "seed http://a.example/ --frontier redis://127.0.0.1:1"),
        (("hiredis",), "worker http://a.example/ --frontier redis://127.0.0.1:1"),
    ],
)
def test_missing_packages_are_reported(tmp_path: Path, missing: tuple[str, ...], arguments: str) -> None:
    command = [sys.executable, "-c", WITHOUT_REDIS.format(missing=missing), *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "lycosa: Redis support needs the packages redis and hiredis: pip install 'lycosa[redis]'\n"


def running_items(home: Path, files: str = "*.jsonl") -> list[str]:
    """Return the lines of all items so far."""
    return [line for file in home.glob(files) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("server", "frontier", "message"),
    [
        ({}, "redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0: "),
        ({"password": "secret"}, "redis://:wrong@127.0.0.1:{port}/0", "redis://127.0.0.1:{port}/0: the server rejects"),
        ({"password": "secret"}, "redis://127.0.0.1:{port}/0", "the server rejects this user and password"),
        ({"tls": True}, "redis://127.0.0.1:{port}/0", "if it requires TLS, write rediss://"),
        ({"tls": True}, "rediss://127.0.0.1:{port}/0", "name its authority with ca=FILE"),
        ({"maxmemory": "100mb", "policy": "allkeys-lru"}, "redis://127.0.0.1:{port}/0", "maxmemory-policy allkeys-lru"),
        ({}, "http://127.0.0.1:{port}/", "write redis://host:6379/0"),
    ],
)
def test_an_unusable_frontier_is_reported_in_one_line(tmp_path: Path, server, frontier: str, message: str) -> None:
    with redis_server(**server) as running:
        address = frontier.format(port=running.port)
        done = lycosa("crawl", "http://127.0.0.1:9/", "--frontier", address, "-q", cwd=tmp_path)
    lines = done.stderr.strip().splitlines()
    assert done.returncode in (2, 3), lines
    assert message.format(port=running.port) in lines[-1]
    assert len(lines) <= 2
    assert "wrong" not in done.stderr


def test_a_worker_of_another_spider_is_refused(tmp_path: Path, redis) -> None:
    for name in ("shop", "news"):
        spider = (
            "from lycosa import Spider\nclass Mine(Spider):\n    name, start_urls = {!r}, ['http://127.0.0.1:9/']\n"
        )
        (tmp_path / f"{name}.py").write_text(spider.format(name))
    options = ("--frontier", redis.url, "--crawl-name", token_hex(4), "--no-robots", "-s", "retries=0", "-q")
    assert lycosa("worker", "shop.py", *options, "--state", "1", cwd=tmp_path).returncode == 1
    done = lycosa("worker", "news.py", *options, "--state", "2", cwd=tmp_path)
    assert done.returncode == 3
    assert "belongs to spider shop, not to spider news: give another --crawl-name" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
