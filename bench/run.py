"""The comparison of whole crawls, `make bench`: `python bench/run.py [--runs N] [--quick] [--only KEY] [--write]`.

Every contender crawls the same pages of the packaged documentation, which nginx serves on the first core, in a separate
process on the second. The order is A B C A B C ..., so that a machine that gets warm or busy slows all of them. The
result is a table in Markdown and PASS or FAIL for each floor; `--write` puts them into docs/benchmarks.md. Exit code 1:
a floor does not hold; 2: it cannot be measured here; 3: a contender did not do its task.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

import budget
import report
from race import CONTENDERS, BadRun, Contender, Run, Track
from running import DOCUMENT, ROOT, on_cores, progress

sys.path.insert(0, str(ROOT))
from tests.servers.nginx import NginxFailed, find_nginx, serve

SITE = ROOT / ".cache" / "site" / "usr" / "share" / "doc"
RESULTS = ROOT / ".cache" / "bench.json"
RUNS = 5
# One page of each manual; the pages in its folder and below are crawled.
STARTS = (
    "git-doc/git.html",
    "debian-policy/policy.html/index.html",
    "postgresql-doc-*/html/index.html",
    "python3.*/html/index.html",
    "openjdk-*-jre-headless/api/java.base/module-summary.html",
)
QUICK_STARTS = (*STARTS[:2], "openjdk-*-jre-headless/api/java.base/java/util/package-summary.html")
PEER_PACKAGES = ("scrapy", "twisted", "parsel", "lxml", "crawlee", "impit", "uvloop")
OUR_PACKAGES = ("pycurl", "selectolax", "ada-url", "lmdb", "msgspec")


class CannotMeasure(Exception):
    """Something that this comparison needs is missing."""


class Measured(NamedTuple):
    """The results; `budget` is empty without a run of the durable contender."""

    about: str
    results: dict[str, list[Run]]
    budget: list[report.Part]


def main() -> int:
    """Measure, print, and check the floors."""
    options = _options()
    try:
        measured = _saved() if options.saved else _measure(options)
    except (CannotMeasure, NginxFailed) as problem:
        print(f"bench/run.py: {problem}", file=sys.stderr)
        return 2
    except BadRun as problem:
        print(f"bench/run.py: {problem}", file=sys.stderr)
        return 3
    floors = report.verdicts(measured.results)
    blocks = {
        "about": measured.about,
        "results": report.table(measured.results),
        "floors": "\n".join(f"- {line}" for line in report.verdict_lines(floors)),
        "checks": report.checks(measured.results),
        "budget": report.budget_table(measured.budget) if measured.budget else "Not measured.",
    }
    print("", *blocks.values(), sep="\n\n")
    print("", *report.verdict_lines(floors), sep="\n")
    if options.write:
        report.write(DOCUMENT, blocks)
        print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    for line in (wrong := report.differing(measured.results)):
        print(f"bench/run.py: {line}", file=sys.stderr)
    if wrong:
        return 3
    return 0 if options.quick or all(each.holds for each in floors) else 1  # a quick run is mostly start-up


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [contender.key for contender in CONTENDERS]
    parser.add_argument("--runs", type=int, default=RUNS, help="crawls of each contender; medians count (default 5)")
    parser.add_argument("--quick", action="store_true", help="one run with a tenth of the pages, as a check")
    parser.add_argument("--only", action="append", choices=keys, help="only this contender; repeatable")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    parser.add_argument("--saved", action="store_true", help="check and write the last result again, without measuring")
    options = parser.parse_args()
    if options.write and (options.quick or options.only):
        parser.error("--write is for the whole comparison: leave out --quick and --only")
    if options.runs < 1:
        parser.error("--runs: at least 1")
    return options


def _measure(options: argparse.Namespace) -> Measured:
    contenders = [each for each in CONTENDERS if not options.only or each.key in options.only]
    runs = 1 if options.quick else options.runs
    starts = _starts(QUICK_STARTS if options.quick else STARTS)
    server_core, crawler_core = _cores()
    with _track(starts, server_core, crawler_core) as track:
        progress("warming up: every page is read once")
        track.run(next(each for each in CONTENDERS if each.key == "probe"))
        results: dict[str, list[Run]] = {each.key: [] for each in contenders}
        for number in range(1, runs + 1):
            for each in contenders:
                results[each.key].append(run := track.run(each))
                speed = f"{run.pages:,} pages in {run.wall_s:5.1f} s: {run.rate:6,.0f} a second"
                cost = f"{run.cpu_per_1000:5.2f} CPU s per 1,000, {run.peak_mb:.0f} MB"
                progress(f"{number}/{runs}  {each.key:13} {speed}, {cost}")
        parts = _budget(track, results["durable"]) if results.get("durable") else []
    measured = Measured(_about(results, runs), results, parts)
    if not options.quick and not options.only:
        _save(measured)
    return measured


def _starts(patterns: Sequence[str]) -> list[str]:
    if not (ROOT / ".cache" / "site" / "complete").exists():
        raise CannotMeasure("the packaged documentation is not here: run scripts/docs-site")
    found = [max(SITE.glob(pattern), default=None) for pattern in patterns]
    if None in found:
        raise CannotMeasure(f"no page {patterns[found.index(None)]} in {SITE}")
    return [page.relative_to(SITE).as_posix() for page in found if page]


def _cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise CannotMeasure("two cores are needed, one for the server and one for the crawler")
    return cores[0], cores[1]


@contextmanager
def _track(starts: Sequence[str], server_core: int, crawler_core: int) -> Iterator[Track]:
    """Serve the site on one core. Its log has every request; it is written in blocks, which costs next to nothing."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / ".cache") as folder:  # on disk, as in a real crawl
        log = Path(folder, "access.log")
        log.touch()
        with serve(SITE, log=False, extra=f'access_log "{log}" json buffer=64k flush=1s;') as server:
            os.sched_setaffinity(server.process.pid, {server_core})
            with on_cores(server_core):
                yield Track(server.url, starts, log, crawler_core, Path(folder))


def _budget(track: Track, durable: Sequence[Run]) -> list[report.Part]:
    """Crawl once more, with clocks. Report how far the sum is from the crawls without clocks."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".json") as file:
        program = (str(ROOT / "bench" / "budget.py"), file.name)
        run = track.run(Contender("budget", "", program, lycosa=True))
        times = json.loads(Path(file.name).read_text())
    parts = budget.rows(times, run.cpu_s, run.pages)
    usual = median(each.cpu_per_1000 for each in durable) * 1000
    clocks = times["clocks_s"] / run.pages * 1e6
    total = sum(part.micros for part in parts)
    progress(f"budget: {total:.0f} us a page, {usual:.0f} without clocks; the clocks took {clocks:.0f}")
    return parts


def _about(results: dict[str, list[Run]], runs: int) -> str:
    """Return the machine, the versions and the size of the comparison, as a list."""
    some = next(run for each in results.values() for run in each)
    nginx = subprocess.run([find_nginx() or "nginx", "-v"], capture_output=True, text=True, check=False).stderr
    libraries = ", ".join(f"{name} {_version(name)}" for name in PEER_PACKAGES + OUR_PACKAGES)
    size = f"{some.pages:,} pages of {some.bytes / some.pages / 1000:.1f} kB on average"
    lines = [
        f"{size}; {f'medians of {runs} runs' if runs > 1 else 'one run'} each",
        f"{_cpu()}, {os.cpu_count()} cores, Linux {platform.release()}",
        f"Python {platform.python_version()}, nginx {nginx.strip().rpartition('/')[2]}, Lycosa {_lycosa()}",
        libraries,
    ]
    return "\n".join(f"- {line}" for line in lines)


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _lycosa() -> str:
    found = re.search(r'^__version__ = "(.+)"', (ROOT / "lycosa" / "__init__.py").read_text(), re.MULTILINE)
    return found[1] if found else "?"


def _save(measured: Measured) -> None:
    results = {key: [run.as_dict() for run in runs] for key, runs in measured.results.items()}
    RESULTS.write_text(json.dumps({"about": measured.about, "results": results, "budget": measured.budget}, indent=1))


def _saved() -> Measured:
    if not RESULTS.exists():
        raise CannotMeasure(f"{RESULTS.relative_to(ROOT)} is not here: nothing was measured yet")
    saved = json.loads(RESULTS.read_text())
    results = {key: [Run(**run) for run in runs] for key, runs in saved["results"].items()}
    return Measured(saved["about"], results, [report.Part(*part) for part in saved["budget"]])


if __name__ == "__main__":
    sys.exit(main())
