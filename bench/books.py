"""The comparison of spiders, part of `make bench`: `python bench/books.py [--runs N] [--quick] [--only KEY] [--write]`.

Every contender crawls the same lists and the pages they lead to (`bookstore.py`), with the same selectors, and writes
the same items. There are three workloads: `shop` has generated product pages of 3 kB, `docs` has real pages of the
packaged documentation, and `awaiting` is a small shop where the callback of each product waits a second, with 8
transfers at a time. As in `run.py`, nginx has the first core and the contender the second. The contenders take turns,
and a run with other pages or items than the rest is an error. Exit 1: a floor is not held; 2: it cannot be measured
here; 3: a contender did not do what it was asked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import books_budget
import bookstore
import report
from finishing import finish
from race import CONCURRENCY, LYCOSA, PEERS, BadRun, Contender, Run, Track
from running import ROOT, on_cores, progress

sys.path.insert(0, str(ROOT))
from tests.servers.nginx import NginxFailed, serve

SITE = ROOT / ".cache" / "site" / "usr" / "share" / "doc"
RUNS = 5
PAGES = 10_000
QUICK_PAGES = 300
LOG_FLUSH = "1s"
KINDS = {
    "shop": "generated pages of 3 kB",
    "docs": "real pages of documentation",
    "awaiting": "generated pages of 3 kB whose callbacks await 1 s",
}
AWAITING_PAGES = 1_000
AWAITING_PER_HOST = 8
AWAITING_CONCURRENCY = 1024
"""For Lycosa only: its `concurrency` also counts pages in callbacks. Scrapy limits the bytes of such pages instead."""

AWAITING = frozenset({"parsel", "scrapy"})
"""The contenders of `awaiting`. Only their spiders have callbacks that wait."""

FLOORS = {("shop", "parsel"): 6.0, ("shop", "lexbor"): 12.0, ("docs", "parsel"): 3.0, ("docs", "lexbor"): 6.0}
FLOORS["awaiting", "parsel"] = 1.0
MIDDLEWARES_MAX = 1.15

DOWNLOADER = ("offsite", "robots", "httpauth", "retry", "metarefresh", "redirect", "cookies", "stats", "httpcache")
SPIDER = ("httperror", "referer", "urllength", "depth")


def _none_of(setting: str, names: Sequence[str]) -> tuple[str, str]:
    return "-s", f"{setting}={json.dumps(dict.fromkeys(names))}"


# ALL_ON leaves out two that are slow by design: the HTTP cache writes every page to disk, and auto-throttle waits.
ALL_ON = ("--robots", "-s", "http_user=ada", "-s", "http_pass=secret", "-s", "http_auth_domain=127.0.0.1")
ALL_OFF = ("--no-robots", *_none_of("downloader_middlewares", DOWNLOADER), *_none_of("spider_middlewares", SPIDER))


def _lycosa(selectors: str, *options: str) -> tuple[str, ...]:
    return (*LYCOSA, "runspider", str(PEERS / f"lycosa_books_{selectors}.py"), *options)


CONTENDERS = (
    Contender("parsel", "**Lycosa**, parsel", _lycosa("parsel", "--no-robots"), lycosa=True),
    Contender("lexbor", "**Lycosa**, lexbor", _lycosa("lexbor", "--no-robots"), lycosa=True),
    Contender("all-on", "Lycosa, parsel, all middlewares", _lycosa("parsel", *ALL_ON), lycosa=True),
    Contender("all-off", "Lycosa, parsel, no middlewares", _lycosa("parsel", *ALL_OFF), lycosa=True),
    Contender("scrapy", "Scrapy", (str(PEERS / "scrapy_books.py"),)),
    Contender("crawlee", "crawlee-python, ParselCrawler", (str(PEERS / "crawlee_books.py"),)),
)

Results = Mapping[str, Sequence[Run]]


class CannotMeasure(Exception):
    """Something this comparison needs is not here."""


class Shelves(NamedTuple):
    """One workload: its kind, the folder nginx serves, the folder of its lists, the paths of its products."""

    kind: str
    root: Path
    home: Path
    products: Sequence[str]

    def uris(self) -> list[str]:
        """Return the paths of all pages."""
        lists = (path.relative_to(self.home).as_posix() for path in (self.home / "catalogue").iterdir())
        return [*lists, *self.products]


class BookTrack(Track):
    """A track with known pages: each must be fetched once, and each product must become an item."""

    def __init__(self, url: str, shelves: Shelves, log: Path, core: int, folder: Path) -> None:
        super().__init__(url, [bookstore.START], log, core, folder)
        self._shelves = shelves
        self._uris = shelves.uris()

    def run(self, contender: Contender) -> Run:
        """Let one contender crawl the shelves. Raises `BadRun`."""
        home = self._folder / contender.key
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        os.truncate(self._log, 0)
        items = home / "items.jsonl"
        wall_s, usage, peak_mb = self._measure(contender.key, self.command(contender, items), home)
        requests = self._requests(contender.key, [f"{self._url}/{uri}" for uri in self._uris])
        digest, chars = self._items(contender.key, items)
        at = [each["at"] for each in requests]
        shutil.rmtree(home)
        return Run(
            pages=len(self._uris),
            wall_s=wall_s,
            span_s=max(at) - min(at),
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_mb=peak_mb,
            requests=len(requests),
            digest=digest,
            text_chars=chars,
            bytes=sum(each["bytes"] for each in requests),
        )

    def command(self, contender: Contender, items: Path) -> list[str]:
        """Return the arguments of Python for one crawl."""
        kind, start = self._shelves.kind, self.starts[0]
        if not contender.lycosa:
            return [*contender.program, str(items), kind, start]
        arguments = [
            "-a",
            f"kind={kind}",
            "-a",
            f"start_url={start}",
            "-o",
            str(items),
            "--state",
            str(items.parent / "state"),
        ]
        total, per_host = CONCURRENCY, CONCURRENCY
        if kind == "awaiting":
            total, per_host = AWAITING_CONCURRENCY, AWAITING_PER_HOST
        many = ["--concurrency", str(total), "--concurrency-per-host", str(per_host)]
        return [*contender.program, *arguments, *many, "--log-level", "WARNING"]

    def _items(self, key: str, file: Path) -> tuple[str, int]:
        """Return an order-independent digest of the items, and their total number of characters."""
        said, urls = [], Counter[str]()
        with file.open("rb") as lines:
            for line in lines:
                item = json.loads(line)
                item["url"] = item["url"].removeprefix(self._url + "/")
                urls[item["url"]] += 1
                said.append(json.dumps(item, sort_keys=True, ensure_ascii=False))
        if urls != (wanted := Counter(self._shelves.products)):
            differing = sorted((urls - wanted) + (wanted - urls))
            wrong = f"{len(differing)}, among them {differing[0]}"
            raise BadRun(f"{key}: URLs with too few or too many items: {wrong}")
        digest = hashlib.blake2b("\n".join(sorted(said)).encode(), digest_size=8).hexdigest()
        return digest, sum(map(len, said))


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    try:
        found = {kind: _measure(kind, options) for kind in options.kind or KINDS}
    except (CannotMeasure, NginxFailed) as problem:
        print(f"bench/books.py: {problem}", file=sys.stderr)
        return 2
    except BadRun as problem:
        print(f"bench/books.py: {problem}", file=sys.stderr)
        return 3
    floors = [verdict for kind, (results, _) in found.items() for verdict in verdicts(kind, results)]
    blocks = {f"books-{kind}": table(kind, results) for kind, (results, _) in found.items()}
    blocks |= {f"books-{kind}-budget": books_budget.table(parts) for kind, (_, parts) in found.items() if parts}
    code = finish("books", blocks, floors, write=options.write, quick=options.quick)
    wrong = [line for results, _ in found.values() for line in report.differing(results)]
    for line in wrong:
        print(f"bench/books.py: {line}", file=sys.stderr)
    if wrong:
        return 3
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [contender.key for contender in CONTENDERS]
    parser.add_argument("--runs", type=int, default=RUNS, help="crawls of each contender; medians count (default 5)")
    parser.add_argument("--pages", type=int, default=PAGES, help="pages of each workload (default 10,000)")
    parser.add_argument("--quick", action="store_true", help=f"one run of {QUICK_PAGES} pages: does it work at all?")
    parser.add_argument("--kind", action="append", choices=KINDS, help="this workload; may be given again")
    parser.add_argument("--only", action="append", choices=keys, help="this contender; may be given again")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.quick or options.only or options.kind or options.pages != PAGES):
        parser.error("--write is for the whole comparison: leave out --quick, --only, --kind and --pages")
    if options.runs < 1 or options.pages < 1:
        parser.error("--runs, --pages: at least 1")
    return options


def _measure(kind: str, options: argparse.Namespace) -> tuple[Results, Mapping[str, Sequence[report.Part]]]:
    contenders = [each for each in CONTENDERS if not options.only or each.key in options.only]
    runs, pages = (1, min(options.pages, QUICK_PAGES)) if options.quick else (options.runs, options.pages)
    if kind == "awaiting":
        contenders = [each for each in contenders if each.key in AWAITING]
        pages = min(pages, AWAITING_PAGES)
    results: dict[str, list[Run]] = {each.key: [] for each in contenders}
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=_cache()) as folder,
        track(kind, pages, Path(folder)) as racing,
    ):
        for number in range(1, runs + 1):
            for each in contenders:
                results[each.key].append(run := racing.run(each))
                speed = f"{run.pages:,} pages in {run.wall_s:5.1f} s: {run.rate:6,.0f} a second"
                progress(f"{kind} {number}/{runs}  {each.key:8} {speed}, {run.cpu_per_1000:5.2f} CPU s per 1,000 pages")
        budgets = {}
        for each in (each for each in contenders if each.key in ("parsel", "lexbor") and kind != "awaiting"):
            budgets[each.key] = books_budget.measure(racing, each)
    return results, budgets


def _cache() -> Path:
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    return cache


def _cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise CannotMeasure("two cores are needed, one for the server and one for the crawler")
    return cores[0], cores[1]


def shelves(kind: str, pages: int, folder: Path, site: Path = SITE) -> Shelves:
    """Write the workload into the folder. Raises `CannotMeasure`."""
    products = bookstore.products_of(pages)
    if kind != "docs":
        return Shelves(kind, folder, folder, bookstore.write_shop(folder, products))
    if not site.is_dir():
        raise CannotMeasure("the packaged documentation is not here: run scripts/docs-site")
    paths = bookstore.real_pages(site, products)
    bookstore.write_catalogue(folder, paths)
    return Shelves(kind, site, folder, paths)


@contextmanager
def track(kind: str, pages: int, folder: Path, site: Path = SITE) -> Iterator[BookTrack]:
    """Serve the workload on one core; contenders run on the other."""
    server_core, crawler_core = _cores()
    stock = folder / "site"
    stock.mkdir()
    log = folder / "access.log"
    log.touch()
    here = shelves(kind, pages, stock, site)
    lists = f'location /catalogue/ {{ alias "{stock}/catalogue/"; }}'
    logged = f'access_log "{log}" json buffer=64k flush={LOG_FLUSH};'
    with serve(here.root, log=False, extra=f"{logged} {lists}") as server:
        os.sched_setaffinity(server.process.pid, {server_core})
        with on_cores(server_core):
            yield BookTrack(server.url, here, log, crawler_core, folder)


def table(kind: str, results: Results) -> str:
    """Return the medians of every contender, and their ratios to Scrapy."""
    some = next(run for runs in results.values() for run in runs)
    size = f"{some.pages:,} {KINDS[kind]}, {some.bytes / some.pages / 1000:.1f} kB on average"
    lines = [
        f"{size}:\n",
        "| | pages/s | CPU s per 1,000 pages | peak MB | pages/s to Scrapy | CPU to Scrapy |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    scrapy = results.get("scrapy")
    for contender in CONTENDERS:
        runs = results.get(contender.key)
        if not runs:
            continue
        rate, cpu = _median(runs, "rate"), _median(runs, "cpu_per_1000")
        spread = (
            f" ({min(run.rate for run in runs):,.0f}-{max(run.rate for run in runs):,.0f})" if len(runs) > 1 else ""
        )
        faster = f"{rate / _median(scrapy, 'rate'):.1f}" if scrapy else ""
        lighter = f"1/{_median(scrapy, 'cpu_per_1000') / cpu:.1f}" if scrapy else ""
        figures = f"{rate:,.0f}{spread} | {cpu:.2f} | {_median(runs, 'peak_mb'):.0f} | {faster} | {lighter}"
        lines.append(f"| {contender.name} | {figures} |")
    return "\n".join(lines)


def verdicts(kind: str, results: Results) -> list[report.Verdict]:
    """Return a verdict on each limit whose contenders are all in these results."""
    floors = []
    scrapy, on, off = (results.get(key) for key in ("scrapy", "all-on", "all-off"))
    for key in ("parsel", "lexbor"):
        if scrapy and (runs := results.get(key)):
            ratio, floor = _median(runs, "rate") / _median(scrapy, "rate"), FLOORS[kind, key]
            line = f"{KINDS[kind]}, {key}: {ratio:.1f} times the pages/s of Scrapy (at least {floor:.0f})"
            floors.append(report.Verdict(ratio >= floor, line))
    if on and off:
        ratio = _median(on, "cpu_per_1000") / _median(off, "cpu_per_1000")
        added = f"{ratio - 1:.0%} to the CPU time of a page (at most {MIDDLEWARES_MAX - 1:.0%})"
        line = f"{KINDS[kind]}: all middlewares add {added}"
        floors.append(report.Verdict(ratio <= MIDDLEWARES_MAX, line))
    return floors


def _median(runs: Sequence[Run], figure: str) -> float:
    return float(median(getattr(run, figure) for run in runs))


if __name__ == "__main__":
    sys.exit(main())
