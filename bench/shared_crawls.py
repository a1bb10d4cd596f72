"""Whole crawls with a shared queue on Redis, for `bench/shared.py`: `lycosa worker` and scrapy-redis on the same pages.

scrapy-redis does not end by itself: it is stopped when nginx has logged no request, and the queue has been empty, for
SILENT_S. So the time of every contender is measured from the first request that nginx answered to the last.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha1
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import redis
from race import CONCURRENCY, LYCOSA, PEERS, RUN_MAX_S, BadRun, Track
from running import ROOT, on_cores

sys.path.insert(0, str(ROOT))
from tests.servers.nginx import serve
from tests.servers.redis import RedisServer, redis_server

SITE = ROOT / ".cache" / "site" / "usr" / "share" / "doc"
STARTS = (
    "git-doc/git.html",
    "debian-policy/policy.html/index.html",
    "postgresql-doc-*/html/index.html",
    "python3.*/html/index.html",
)
QUICK_STARTS = STARTS[:2]
SILENT_S = 3.0
"""Seconds without a logged request after which a crawl of scrapy-redis is over. They are more than one, because nginx
writes its log once a second."""

NAME = "bench"
OURS, THEIRS = f"lycosa:{{{NAME}.0}}:", "docs:"
PIPELINE = 10_000


class CannotMeasure(Exception):
    """Something this comparison needs is not here."""


class Contender(NamedTuple):
    """`workers` of one program; `shared`: over a Redis; `lycosa`: it takes Lycosa's command line; `once`: one run."""

    key: str
    name: str
    workers: int
    program: tuple[str, ...]
    lycosa: bool = False
    shared: bool = True
    once: bool = False


CONTENDERS = (
    Contender("embedded", "Lycosa, local frontier", 1, LYCOSA, lycosa=True, shared=False),
    Contender("lycosa-1", "**Lycosa**, frontier on Redis", 1, LYCOSA, lycosa=True),
    Contender("lycosa-2", "**Lycosa**, frontier on Redis", 2, LYCOSA, lycosa=True),
    Contender("scrapy-redis-1", "scrapy-redis", 1, (str(PEERS / "scrapy_redis_links.py"),)),
    Contender("scrapy-redis-2", "scrapy-redis", 2, (str(PEERS / "scrapy_redis_links.py"),)),
    Contender(
        "scrapy-redis-cut", "scrapy-redis, fragments cut off", 1, (str(PEERS / "scrapy_redis_cut.py"),), once=True
    ),
)


@dataclass(frozen=True, slots=True)
class Crawled:
    """What one crawl took: `span_s` from its first request to its last, CPU of all workers, and of Redis."""

    pages: int
    workers: int
    span_s: float
    cpu_s: float
    server_cpu_s: float
    trips: int
    seen_bytes: float
    digest: str
    bytes: int

    @property
    def rate(self) -> float:
        """Pages per second and worker."""
        return self.pages / self.span_s / self.workers

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds of the workers for 1,000 pages."""
        return self.cpu_s / self.pages * 1000

    @property
    def server_cpu_per_1000(self) -> float:
        """CPU seconds of Redis for 1,000 pages."""
        return self.server_cpu_s / self.pages * 1000

    @property
    def trips_per_50(self) -> float:
        """Answers of Redis for 50 pages."""
        return self.trips / self.pages * 50

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


class SharedTrack(Track):
    """A track on which several workers may run together, with a Redis."""

    def crawl(self, contender: Contender) -> Crawled:
        """Let the workers crawl the site. Raises `BadRun`."""
        home = self._folder / contender.key
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        os.truncate(self._log, 0)
        with redis_server() as server:
            assert server.process
            os.sched_setaffinity(server.process.pid, os.sched_getaffinity(0))
            with redis.Redis.from_url(server.url) as client:
                before = client.info("everything")
                cpu_s = self._race(contender, home, server, client)
                after = client.info("everything")
                seen_bytes = seen_of(client) if contender.shared else 0.0
        return self._crawl(contender, home, cpu_s, before, after, seen_bytes)

    def _crawl(
        self,
        contender: Contender,
        home: Path,
        cpu_s: float,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        seen_bytes: float,
    ) -> Crawled:
        items = home / "items.jsonl"
        items.write_bytes(b"".join((home / f"{each}.jsonl").read_bytes() for each in range(contender.workers)))
        pages = self._pages(contender.key, items)
        requests = self._requests(contender.key, [url for url, _ in pages])
        at = [each["at"] for each in requests]
        urls = "\n".join(sorted(url.removeprefix(self._url) for url, _ in pages))
        shutil.rmtree(home)
        server_cpu_s = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
        answers = after["total_writes_processed"] - before["total_writes_processed"]
        return Crawled(
            pages=len(pages),
            workers=contender.workers,
            span_s=max(at) - min(at),
            cpu_s=cpu_s,
            server_cpu_s=server_cpu_s if contender.shared else 0.0,
            trips=answers if contender.shared else 0,
            seen_bytes=seen_bytes,
            digest=hashlib.blake2b(urls.encode(), digest_size=8).hexdigest(),
            bytes=sum(each["bytes"] for each in requests if each["status"] == 200),
        )

    def _race(self, contender: Contender, home: Path, server: RedisServer, client: Any) -> float:
        """Run all workers to their end. Return their CPU seconds."""
        workers = [self._start(contender, home, server, number) for number in range(contender.workers)]
        try:
            if not contender.lycosa:
                self._until_silent(client, workers)
                for worker in workers:
                    worker.send_signal(signal.SIGTERM)
            return sum(_wait_for_end(contender.key, worker, home / "output.log") for worker in workers)
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.kill()
                    worker.wait()

    def _start(self, contender: Contender, home: Path, server: RedisServer, number: int) -> subprocess.Popen[bytes]:
        items = home / f"{number}.jsonl"
        arguments = command(contender, self.starts, items, server.url)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "BENCH_REDIS": server.url}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cores = {self._core} if number == 0 else os.sched_getaffinity(0)
        with on_cores(*cores), (home / "output.log").open("ab") as file:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=home, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file,
            )  # fmt: skip

    def _until_silent(self, client: Any, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        """Wait until the queue has been empty, and nginx has logged no request, for SILENT_S."""
        deadline = time.monotonic() + RUN_MAX_S
        size, since = -1, time.monotonic()
        while time.monotonic() - since < SILENT_S:
            if any(worker.poll() is not None for worker in workers) or time.monotonic() > deadline:
                return  # its result is checked later
            now = self._log.stat().st_size
            if now != size or not now or client.zcard(f"{THEIRS}requests"):
                size, since = now, time.monotonic()
            time.sleep(0.1)


def _wait_for_end(key: str, worker: subprocess.Popen[bytes], output: Path) -> float:
    deadline = time.monotonic() + RUN_MAX_S
    while True:
        pid, status, usage = os.wait4(worker.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            raise BadRun(f"{key} did not end")
        time.sleep(0.02)
    worker.returncode = os.waitstatus_to_exitcode(status)
    if worker.returncode:
        raise BadRun(f"{key} ended with {worker.returncode}:\n{output.read_text(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def command(contender: Contender, starts: Sequence[str], items: Path, address: str) -> list[str]:
    """Return the arguments of Python for one worker."""
    if not contender.lycosa:
        return [*contender.program, str(items), *starts]
    options = ["--scope", "prefix", "--allow", "*.html", "--no-robots", "--log-level", "WARNING", "-o", str(items)]
    many = ["--concurrency", str(CONCURRENCY), "--concurrency-per-host", str(CONCURRENCY)]
    mine = ["--state", str(items.with_suffix(".state"))]
    if not contender.shared:
        return [*contender.program, "crawl", *starts, *options, *many, *mine]
    return [*contender.program, "worker", *starts, *options, *many, *mine, "--frontier", address, "--crawl-name", NAME]


def seen_of(client: Any) -> float:
    """Return the bytes per URL in the set of seen URLs."""
    ours = list(client.scan_iter(f"{OURS}s|*", count=1000))
    members = sum(client.scard(key) for key in ours) or client.scard(f"{THEIRS}dupefilter")
    keys = ours or [f"{THEIRS}dupefilter"]
    return float(sum(client.memory_usage(key, samples=0) for key in keys) / members)


def bytes_of_a_set(urls: int) -> int:
    """Return the bytes that Redis needs for this many fingerprints of scrapy-redis: SHA-1 in hex, in one set."""
    with redis_server() as server, redis.Redis.from_url(server.url) as client:
        before = int(client.info("memory")["used_memory"])
        for first in range(0, urls, PIPELINE):
            numbers = range(first, min(first + PIPELINE, urls))
            client.sadd(f"{THEIRS}dupefilter", *(sha1(str(number).encode()).hexdigest() for number in numbers))
        return int(client.info("memory")["used_memory"]) - before


def measure(runs: int, *, quick: bool, progress: Callable[[str], None]) -> dict[str, list[Crawled]]:
    """Let all contenders crawl in turn. Raises `CannotMeasure`, and `BadRun` if they fetch different pages.

    A run of scrapy-redis with two workers that loses pages is reported and does not count.
    """
    found: dict[str, list[Crawled]] = {each.key: [] for each in CONTENDERS}
    with track(QUICK_STARTS if quick else STARTS) as racing:
        racing.crawl(CONTENDERS[0])  # warm-up: reads all pages into the page cache; the result is not used
        for number in range(1, runs + 1):
            for each in (each for each in CONTENDERS if number == 1 or not each.once):
                try:
                    found[each.key].append(run := racing.crawl(each))
                except BadRun as problem:
                    if each.key != "scrapy-redis-2" or not found[each.key]:
                        raise
                    progress(f"crawls {number}/{runs}  {each.key:16} does not count: {problem}")
                    continue
                speed = f"{run.pages:,} pages, {run.rate:6,.0f} a second and worker"
                progress(f"crawls {number}/{runs}  {each.key:16} {speed}, {run.cpu_per_1000:5.2f} CPU s per 1,000")
    digests = {run.digest for crawls in found.values() for run in crawls}
    if len(digests) > 1:
        digests = {key: sorted({run.digest for run in crawls}) for key, crawls in found.items()}
        raise BadRun(f"not all fetched the same pages: {digests}")
    return found


@contextmanager
def track(patterns: Sequence[str]) -> Iterator[SharedTrack]:
    """Serve the site on the first core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise CannotMeasure("two cores are needed, one for the servers and one for the worker")
    found = [max(SITE.glob(pattern), default=None) for pattern in patterns]
    if None in found:
        raise CannotMeasure("the packaged documentation is not here: run scripts/docs-site")
    starts = [page.relative_to(SITE).as_posix() for page in found if page]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / ".cache") as folder:
        log = Path(folder, "access.log")
        log.touch()
        with serve(SITE, log=False, extra=f'access_log "{log}" json buffer=64k flush=1s;') as server:
            os.sched_setaffinity(server.process.pid, {cores[0]})
            with on_cores(cores[0]):
                yield SharedTrack(server.url, starts, log, cores[1], Path(folder))


def about(found: Mapping[str, Sequence[Crawled]]) -> str:
    """Return the size of the site and the versions, as a Markdown list."""
    some = next(run for runs in found.values() for run in runs)
    size = f"{some.pages:,} pages of {some.bytes / some.pages / 1000:.1f} kB on average"
    runs = max(map(len, found.values()))
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("scrapy-redis", "scrapy", "redis", "hiredis"))
    redis_is = f"Redis {server.removeprefix('v=')}, without persistence"
    lines = [
        f"{size}; {f'medians of {runs} runs' if runs > 1 else 'one run'} each",
        f"{redis_is}; Python {platform.python_version()}, {libraries}",
    ]
    return "\n".join(f"- {line}" for line in lines)
