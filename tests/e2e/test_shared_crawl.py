"""One crawl, several workers, one Redis: nothing lost, each item once, polite together, over when it is over (C3, C6).

The pages are made by nginx: page n, on host n modulo HOSTS, leads to the pages 10n + 1 ... 10n + 10. Workers and the
server are killed while they crawl.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from textwrap import dedent

import pytest

from tests.conftest import PROVE
from tests.e2e.command import LYCOSA, environment, lycosa
from tests.servers.nginx import serve
from tests.servers.redis import redis_cluster, redis_server

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES = 30_000 if PROVE else 1_500
HOSTS = 300 if PROVE else 100
KILLS = 20 if PROVE else 4
SERVER_KILLS = 2 if PROVE else 1
DELAY_S = 0.5 if PROVE else 0.2
CONCURRENCY = 64
ACKS_OF_A_COMMIT = 256
END_MAX_S = 900.0 if PROVE else 90.0
EXIT_MAX_S = 3.0
LATE_S = 0.05
"""How much later than its turn a request may be heard of in this crowd, unknown to the worker."""

PAGE = 'location = /page { default_type text/html; return 200 "<title>x</title>$arg_n"; }'
SPIDER = """
    from lycosa import Request, Spider

    class Small(Spider):
        name = "small"
        pages = port = hosts = ""

        async def start(self):
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
    """The workers of one crawl, by number, and where what they did is written."""

    home: Path
    port: str
    frontier: str
    options: tuple[str, ...] = ()
    name: str = field(default_factory=token_hex)
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Start a worker, or start it again."""
        told = {"pages": PAGES, "hosts": HOSTS, "port": self.port}
        arguments = [part for name, value in told.items() for part in ("-a", f"{name}={value}")]
        mine = ("-o", f"{number}.jsonl", "--state", f"state{number}", "--frontier", self.frontier)
        command = [*LYCOSA, "worker", "spider.py", *arguments, *mine, "--crawl-name", self.name, "--no-robots"]
        with (self.home / f"{number}.log").open("ab") as log:
            self.workers[number] = subprocess.Popen(
                [*command, *self.options], cwd=self.home, env=environment(), stdout=subprocess.DEVNULL, stderr=log
            )

    def kill(self, number: int) -> None:
        """Kill a worker."""
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()

    def alive(self) -> list[int]:
        """Return those that run."""
        return [number for number, worker in self.workers.items() if worker.poll() is None]

    def requests(self) -> list[tuple[float, int]]:
        """Return when which page was asked for."""
        lines = [json.loads(line) for line in (self.home / "access.log").read_text().splitlines()]
        return [(line["at"], int(re.findall(r"n=(\d+)", line["uri"])[0])) for line in lines]

    def items(self) -> Counter[int]:
        """Return how often each page is among the items of all workers."""
        lines = [line for number in self.workers for line in (self.home / f"{number}.jsonl").read_text().splitlines()]
        return Counter(json.loads(line)["n"] for line in lines)

    def wait(self) -> float:
        """Wait for the end of all. Return when (unix seconds) that was."""
        for worker in self.workers.values():
            worker.wait(END_MAX_S)
        ended = time.time()
        codes = [worker.returncode for worker in self.workers.values()]
        said = "\n".join((self.home / f"{number}.log").read_text()[-1500:] for number in self.workers)
        assert codes == [0] * len(codes), said
        time.sleep(1.5)  # nginx writes its log in blocks
        return ended

    def check(self, ended: float, *, kills: int) -> None:
        """Each item once, few pages again, and the end soon after the last page."""
        assert self.items() == Counter(range(PAGES))
        requests = self.requests()
        assert len(requests) - PAGES <= kills * (2 * CONCURRENCY + ACKS_OF_A_COMMIT)
        assert ended - max(at for at, _ in requests) <= EXIT_MAX_S


@contextmanager
def crawl(home: Path, frontier: str, *options: str) -> Iterator[Crawl]:
    """Serve the pages, and end what is left of the workers afterwards."""
    (home / "site").mkdir()
    (home / "spider.py").write_text(dedent(SPIDER))
    logged = f'access_log "{home}/access.log" json buffer=64k flush=1s;'
    with serve(home / "site", log=False, extra=PAGE + logged) as server:
        running = Crawl(home, server.url.rpartition(":")[2], frontier, options)
        try:
            yield running
        finally:
            for number in running.alive():
                running.kill(number)


def kill_workers(running: Crawl, chance: random.Random, kills: int) -> int:
    """Kill workers at random, each soon started again. Return how many there were to kill."""
    for count in range(kills):
        time.sleep(chance.uniform(0.3, 1.2))
        if not running.alive():
            return count
        number = chance.choice(running.alive())
        running.kill(number)
        time.sleep(chance.uniform(0.0, 0.5))
        running.start(number)
    return kills


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.prove), 4])
def test_three_workers_that_are_killed(tmp_path: Path, redis, partitions: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    options = ("--delay", str(DELAY_S), "-s", f"partitions={partitions}")
    with crawl(tmp_path, redis.url, *options) as running:
        for number in range(3):
            running.start(number)
        time.sleep(1.0)
        kills = kill_workers(running, random.Random(seed), KILLS)
        running.check(running.wait(), kills=kills)
        starts: dict[int, list[float]] = defaultdict(list)
        for at, page in running.requests():
            starts[page % HOSTS].append(at)
        gaps = [later - sooner for times in starts.values() for sooner, later in pairwise(sorted(times))]
        assert min(gaps) >= DELAY_S - LATE_S


@pytest.mark.parametrize("silent_s", [pytest.param(0.5, marks=pytest.mark.prove), 4.0])
def test_a_worker_that_stands_still(tmp_path: Path, redis, silent_s: float) -> None:
    """After two seconds the others have its URLs; when it wakes it takes part again."""
    with crawl(tmp_path, redis.url, "--delay", "0.3") as running:
        for number in range(2):
            running.start(number)
        while len(running_items(tmp_path)) < 200:
            time.sleep(0.02)
        running.workers[0].send_signal(signal.SIGSTOP)
        time.sleep(silent_s)
        running.workers[0].send_signal(signal.SIGCONT)
        running.check(running.wait(), kills=int(silent_s > 2))
        assert ("takes part again" in (tmp_path / "0.log").read_text()) == (silent_s > 2)


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """What it had written is there when it starts again; workers wait meanwhile."""
    with redis_server(append="everysec") as server, crawl(tmp_path, server.url, "--delay", "0.3") as running:
        for number in range(3):
            running.start(number)
        for _ in range(SERVER_KILLS):
            time.sleep(2.0)
            server.kill()
            time.sleep(1.0)
            server.start()
        running.check(running.wait(), kills=SERVER_KILLS)


def test_a_server_that_comes_back_empty_is_no_end(tmp_path: Path) -> None:
    with redis_server() as server, crawl(tmp_path, server.url, "--delay", "0.5") as running:
        for number in range(2):
            running.start(number)
        while len(running_items(tmp_path)) < 100:
            time.sleep(0.02)
        server.kill()
        server.start(keep=False)
        for number, worker in running.workers.items():
            assert worker.wait(END_MAX_S) == 3
            said = (tmp_path / f"{number}.log").read_text()
            assert "is gone: the server has lost it" in said
            assert "Traceback" not in said


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
def test_a_cluster(tmp_path: Path) -> None:
    with redis_cluster() as cluster:
        first = cluster.nodes[0]
        with crawl(tmp_path, f"redis://127.0.0.1:{first.port}/0", "-s", "partitions=6") as running:
            for number in range(3):
                running.start(number)
            kills = kill_workers(running, random.Random(1), KILLS)
            running.check(running.wait(), kills=kills)


def test_a_worker_that_is_kept_alive_takes_what_comes_later(tmp_path: Path, redis) -> None:
    with crawl(tmp_path, redis.url, "--keep-alive") as running:
        running.start(0)
        while len(running_items(tmp_path)) < PAGES:
            time.sleep(0.05)
        running.options = ()
        running.start(1)  # finds nothing, and ends
        assert running.workers[1].wait(END_MAX_S) == 0
        assert running.alive() == [0]
        running.workers[0].send_signal(signal.SIGTERM)
        assert running.workers[0].wait(END_MAX_S) == 0
        assert running.items() == Counter(range(PAGES))


def test_a_crawl_that_others_share_is_not_started_afresh(tmp_path: Path, redis) -> None:
    done = lycosa("crawl", "http://127.0.0.1:9/", "--frontier", redis.url, "-O", "items.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "give it another --crawl-name" in done.stderr


def running_items(home: Path) -> list[str]:
    """Return the lines of all items so far."""
    return [line for file in home.glob("*.jsonl") for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("server", "frontier", "says"),
    [
        ({}, "redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0: "),
        ({"password": "secret"}, "redis://:wrong@127.0.0.1:{port}/0", "redis://:***@127.0.0.1:{port}/0: "),
        ({"password": "secret"}, "redis://127.0.0.1:{port}/0", "it wants a password"),
        ({"tls": True}, "redis://127.0.0.1:{port}/0", "redis://127.0.0.1:{port}/0: "),
        ({"maxmemory": "100mb", "policy": "allkeys-lru"}, "redis://127.0.0.1:{port}/0", "allkeys-lru throws keys away"),
        ({}, "http://127.0.0.1:{port}/", "write redis://host:6379/0"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(tmp_path: Path, server, frontier: str, says: str) -> None:
    with redis_server(**server) as running:
        address = frontier.format(port=running.port)
        done = lycosa("crawl", "http://127.0.0.1:9/", "--frontier", address, "-q", cwd=tmp_path)
    said = done.stderr.strip().splitlines()
    assert done.returncode in (2, 3), said
    assert says.format(port=running.port) in said[-1]
    assert len(said) <= 2
    assert "wrong" not in done.stderr
