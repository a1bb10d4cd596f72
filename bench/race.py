"""One crawl of one contender: runs it in a separate process on its own core, measures it, and checks the result.

What is measured comes from outside the contender: CPU time and peak memory from the kernel, requests from the access
log of nginx, pages from the items. A run in which something does not fit raises `BadRun`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from running import ROOT, on_cores

PEERS = ROOT / "bench" / "peers"
CONCURRENCY = 64
RUN_MAX_S = 300.0
LOG_MAX_S = 5.0
POLL_S = 0.02
LYCOSA = ("-c", "import sys; from lycosa.cli.main import main; sys.exit(main())")
FIELDS = {
    "url", "final_url", "status", "content_type", "title", "headings", "text", "lang", "out_links", "fetched_at",
    "depth", "fingerprint",
}  # fmt: skip


class BadRun(Exception):
    """The contender failed, or did not do its task."""


class Contender(NamedTuple):
    """`key` is for `--only`, `name` for tables; `lycosa`: the program takes Lycosa's command line, not a peer's."""

    key: str
    name: str
    program: tuple[str, ...]
    lycosa: bool = False


CONTENDERS = (
    Contender("durable", "**Lycosa**, durable frontier", LYCOSA, lycosa=True),
    Contender("memory", "Lycosa, frontier in memory", (str(PEERS / "lycosa_memory.py"),), lycosa=True),
    Contender("scrapy", "Scrapy, its LinkExtractor", (str(PEERS / "scrapy_links.py"),)),
    Contender("scrapy-cut", "Scrapy, its LinkExtractor, fragments cut off", (str(PEERS / "scrapy_links_cut.py"),)),
    Contender("scrapy-light", "Scrapy at its lightest", (str(PEERS / "scrapy_light.py"),)),
    Contender("crawlee", "crawlee-python, ParselCrawler", (str(PEERS / "crawlee_parsel.py"),)),
    Contender("probe", "bare probe: the libraries in a loop", (str(PEERS / "probe.py"),)),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The cost of one crawl: `wall_s` and `cpu_s` of the whole process, `span_s` from its first request to its last."""

    pages: int
    wall_s: float
    span_s: float
    cpu_s: float
    peak_mb: float
    requests: int
    digest: str
    text_chars: int
    bytes: int

    @property
    def rate(self) -> float:
        """Pages per second of the whole process."""
        return self.pages / self.wall_s

    @property
    def steady_rate(self) -> float:
        """Pages per second between the first request and the last: without start-up."""
        return self.pages / self.span_s

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds, user and system, for 1,000 pages."""
        return self.cpu_s / self.pages * 1000

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


class Track:
    """Where the contenders run: a served site, its access log, the start pages, the core, a folder for each crawl."""

    def __init__(self, url: str, starts: Sequence[str], log: Path, core: int, folder: Path) -> None:
        self.starts = [f"{url}/{start}" for start in starts]
        self._url = url
        self._log = log
        self._core = core
        self._folder = folder

    def run(self, contender: Contender) -> Run:
        """Let one contender crawl the site. Raises `BadRun`."""
        home = self._folder / contender.key
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        os.truncate(self._log, 0)
        items = home / "items.jsonl"
        wall_s, usage, peak_mb = self._measure(contender.key, command(contender, self.starts, items), home)
        pages = self._pages(contender.key, items)
        requests = self._requests(contender.key, [url for url, _ in pages])
        at = [each["at"] for each in requests]
        urls = "\n".join(sorted(url.removeprefix(self._url) for url, _ in pages))
        shutil.rmtree(home)
        return Run(
            pages=len(pages),
            wall_s=wall_s,
            span_s=max(at) - min(at),
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_mb=peak_mb,
            requests=len(requests),
            digest=hashlib.blake2b(urls.encode(), digest_size=8).hexdigest(),
            text_chars=sum(length for _, length in pages),
            bytes=sum(each["bytes"] for each in requests if each["status"] == 200),
        )

    def _measure(self, key: str, arguments: Sequence[str], home: Path) -> tuple[float, Any, float]:
        output = home / "output.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has cached bytecode, too
        started = time.monotonic()
        with on_cores(self._core), output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        watchdog = threading.Timer(RUN_MAX_S, process.kill)
        watchdog.start()
        memory = Memory(process.pid)
        memory.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
            memory.over.set()
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise BadRun(f"{key} ended with {process.returncode}:\n{output.read_text(errors='replace')[-2000:]}")
        return wall_s, usage, memory.peak_mb

    def _pages(self, key: str, items: Path) -> list[tuple[str, int]]:
        """Return the URL and the length of the text of each item."""
        pages = []
        with items.open("rb") as file:
            for line in file:
                item = json.loads(line)
                if item.keys() != FIELDS:
                    raise BadRun(f"{key} writes other fields: {sorted(item.keys() ^ FIELDS)}")
                pages.append((item["url"], len(item["text"])))
        if not pages:
            raise BadRun(f"{key} wrote no items")
        twice = [url for url, count in Counter(url for url, _ in pages).items() if count > 1]
        if twice:
            raise BadRun(f"{key} wrote {len(twice)} pages twice, among them {twice[0]}")
        return pages

    def _requests(self, key: str, urls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the requests that nginx has answered. The pages it served must be those of the items."""
        deadline = time.monotonic() + LOG_MAX_S
        wanted = Counter(url.removeprefix(self._url) for url in urls)
        while True:
            lines = [
                json.loads(line) for line in self._log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
            ]
            served = Counter(line["uri"] for line in lines if line["status"] == 200)
            if served == wanted:
                return lines
            if time.monotonic() > deadline:
                differing = sorted((served - wanted) + (wanted - served))
                raise BadRun(f"{key}: items and requests differ in {len(differing)} pages, among them {differing[0]}")
            time.sleep(0.1)  # nginx writes its log in blocks


class Memory(threading.Thread):
    """Reads the peak memory of a process (VmHWM). The figure of wait4 includes the memory of the parent at the fork."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0
        self.over = threading.Event()
        self._status = Path(f"/proc/{pid}/status")

    def run(self) -> None:
        """Read it at once, and then at intervals."""
        while True:
            with suppress(OSError):  # it has just ended
                lines = self._status.read_text().splitlines()
                self.peak_mb = next((int(line.split()[1]) / 1024 for line in lines if "VmHWM" in line), self.peak_mb)
            if self.over.wait(POLL_S):
                return


def command(contender: Contender, starts: Sequence[str], items: Path) -> list[str]:
    """Return the arguments of Python for one crawl."""
    if not contender.lycosa:
        return [*contender.program, str(items), *starts]
    options = ["--scope", "prefix", "--allow", "*.html", "--no-robots", "--log-level", "WARNING", "-o", str(items)]
    many = ["--concurrency", str(CONCURRENCY), "--concurrency-per-host", str(CONCURRENCY)]
    return [*contender.program, "crawl", *starts, *options, *many, "--state", str(items.parent / "state")]
