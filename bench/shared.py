"""The benchmark of a frontier that workers share: `python bench/shared.py [--part PART]... [--quick] [--write]`.

    cycle    push, lease, ack, commit against a Redis of its own: URLs/s, CPU on both sides, round trips, network
    memory   bytes of Redis per seen URL, at each number of --seen; per pending URL; per host
    crawls   `lycosa worker` against scrapy-redis on the same pages, with one worker and with two

Redis and nginx have the first core, the worker the second; a second worker has the first core too. Each run has a Redis
of its own, whose figures are those that it reports (INFO, MEMORY USAGE). Exit 1: a floor is not held; 2: it cannot be
measured here; 3: a contender did not do its task.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import report
import shared_crawls
from finishing import finish
from race import BadRun
from running import ROOT, Figures, count, on_cores, progress
from shared_crawls import CONTENDERS, Crawled
from shared_cycle import Step

sys.path.insert(0, str(ROOT))
from tests.servers.nginx import NginxFailed
from tests.servers.redis import RedisFailed, redis_server

PARTS = ("cycle", "memory", "crawls")
RUNS = 3
FULL = 10_000_000
SEEN = (1_000_000, FULL)
"""Numbers of seen URLs. The floor is for the larger number."""

SEEN_MAX_BYTES = 15.0
TRIPS_MAX = 1.2
FASTER_MIN = 10.0
QUICK = 10
"""A quick run has this many times less to do."""


class Drive(NamedTuple):
    """One row of the cycle: how the frontier is driven, with how many URLs."""

    name: str
    what: str
    urls: int
    batch_size: int
    delay_s: float = 0.0
    hosts: int = 0
    partitions: int = 1


DRIVES = {
    "batch-50": Drive("50 pushed, 50 leased", "batch", 60_000, 50),
    "batch-500": Drive("500 pushed, 500 leased", "batch", 60_000, 500),
    "crawl": Drive("as a crawl: 64 at a time, no delay", "crawl", 20_000, 64),
    "parts": Drive("the same, 4 partitions: most children belong to another", "crawl", 20_000, 64, partitions=4),
    "polite": Drive("as a crawl: 64 at a time, 3,000 hosts, delay 1 s", "crawl", 10_000, 64, 1.0, 3_000),
    "resting": Drive("as a crawl: 64 at a time, 1,000 hosts, delay 1 s: most wait", "crawl", 6_000, 64, 1.0, 1_000),
}
JUDGED = "crawl"
"""The drive whose round trips have a floor."""

HEAPS = {"pending": (200_000, 1_000), "hosts": (100_000, 100_000)}
"""Numbers of records and hosts that are only pushed."""


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    blocks: dict[str, str] = {}
    floors: list[report.Verdict] = []
    measured: Figures = {}
    try:
        for part in options.part:
            measured[part] = {"cycle": _cycle, "memory": _memory, "crawls": _crawls}[part](options)
            more, verdicts = PRESENTED[part](measured[part])
            blocks |= more
            floors += verdicts
    except (shared_crawls.CannotMeasure, NginxFailed, RedisFailed) as problem:
        print(f"bench/shared.py: {problem}", file=sys.stderr)
        return 2
    except BadRun as problem:
        print(f"bench/shared.py: {problem}", file=sys.stderr)
        return 3
    if options.json:
        Path(options.json).write_text(json.dumps(measured, indent=1, default=lambda run: run.as_dict()))
    return finish("shared", blocks, floors, write=options.write, quick=options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="this part; may be given again")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each; medians count (default 3)")
    parser.add_argument("--seen", type=count, action="append", help="URLs seen; may be given again (1 and 10 million)")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds after which filling stops (no limit)")
    parser.add_argument("--keep", type=Path, help="folder to keep the seen URLs in; a later run goes on from there")
    parser.add_argument("--quick", action="store_true", help="one run, a tenth of everything: does it work at all?")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.quick or options.part or options.seen or options.limit):
        parser.error("--write is for the whole comparison: leave out --quick, --part, --seen and --limit")
    if options.runs < 1:
        parser.error("--runs: at least 1")
    options.part = options.part or list(PARTS)
    options.seen = options.seen or [each // QUICK if options.quick else each for each in SEEN]
    if options.quick:
        options.runs, options.seen = 1, [min(options.seen)]
    return options


# ---------------------------------------------------------------------------------------------------------------- cycle


def _cycle(options: argparse.Namespace) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {key: [] for key in DRIVES}
    for _ in range(options.runs):
        for key, drive in DRIVES.items():
            arguments = drive._asdict()
            del arguments["name"]
            if options.quick:
                arguments |= {"urls": drive.urls // QUICK, "hosts": drive.hosts // QUICK}
            figures = _step(**arguments)
            found[key].append(figures)
            shown = f"{_per(figures, 'trips') * 50:5.2f} round trips per 50 URLs"
            progress(f"cycle {key:10} {figures['urls'] / figures['wall_s']:9,.0f} URLs/s, {shown}")
    return found


def _cycle_told(found: Mapping[str, Sequence[Figures]]) -> tuple[dict[str, str], list[report.Verdict]]:
    return {"shared-cycle": cycle_table(found)}, cycle_verdicts(found)


def cycle_table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the medians of every drive."""
    columns = ("URLs/s", "CPU us per URL, worker", "CPU us per URL, Redis", "round trips per 50 URLs")
    lines = [f"| | {' | '.join((*columns, 'bytes per URL, to Redis', 'from Redis'))} |", "|---|" + "---:|" * 6]
    for key, runs in found.items():
        rate = median(run["urls"] / run["wall_s"] for run in runs)
        figures = [f"{_median(runs, name) * scale:.{digits}f}" for name, scale, digits in COSTS]
        lines.append(f"| {DRIVES[key].name} | {rate:,.0f} | {' | '.join(figures)} |")
    return "\n".join(lines)


COSTS = (("cpu_s", 1e6, 0), ("server_cpu_s", 1e6, 0), ("trips", 50, 2), ("in_bytes", 1, 0), ("out_bytes", 1, 0))


def cycle_verdicts(found: Mapping[str, Sequence[Figures]]) -> list[report.Verdict]:
    """Return the floor of the cycle."""
    if JUDGED not in found:
        return []
    trips = _median(found[JUDGED], "trips") * 50
    return [report.Verdict(trips <= TRIPS_MAX, f"{trips:.2f} round trips per 50 URLs of a crawl (at most {TRIPS_MAX})")]


def _per(figures: Figures, name: str) -> float:
    return float(figures[name] / figures["urls"])


def _median(runs: Sequence[Figures], name: str) -> float:
    return median(_per(run, name) for run in runs)


# --------------------------------------------------------------------------------------------------------------- memory


def _memory(options: argparse.Namespace) -> Figures:
    """Fill the set of seen URLs up to the largest number, then measure scrapy-redis, records and hosts."""
    found: Figures = {"seen": _fill(options)}
    size = min(options.seen)
    found["peer"] = {"urls": size, "bytes": shared_crawls.bytes_of_a_set(size)}
    for key, (urls, hosts) in HEAPS.items():
        found[key] = _step(what=key, urls=urls, hosts=hosts, batch_size=1_000)
        progress(f"memory {key}: {_per(found[key], 'bytes'):.0f} bytes each")
    return found


def _fill(options: argparse.Namespace) -> Figures:
    """Resume from the kept state, if there is one, and keep it again."""
    kept = options.keep and options.keep / "seen.json"
    before: Figures = json.loads(kept.read_text()) if kept and kept.exists() else {"done": 0, "sizes": {}}
    settings = {"dir": str(options.keep.resolve()), "dbfilename": "seen.rdb"} if options.keep else {}
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    with redis_server(**settings) as server:
        _to_first_core(server)
        arguments = {"known": before["done"], "marks": tuple(options.seen), "limit_s": options.limit}
        found = _stepped(server, "seen", urls=max(options.seen), **arguments)
        found["sizes"] = before["sizes"] | found["sizes"]
        if kept:
            server.cli("SAVE")
            kept.write_text(json.dumps({"done": found["done"], "sizes": found["sizes"]}))
    return found


def _memory_told(found: Figures) -> tuple[dict[str, str], list[report.Verdict]]:
    return {"shared-memory": memory_table(found)}, memory_verdicts(found)


def memory_table(found: Figures) -> str:
    """Return the bytes of Redis memory for one URL, or one host, of each kind."""
    lines = ["| bytes of Redis memory | |", "|---|---:|"]
    for mark, size in found["seen"]["sizes"].items():
        lines.append(f"| a done URL, of {int(mark):,} | {size / int(mark):.1f} |")
    peer = found["peer"]
    lines.append(f"| a URL seen by scrapy-redis, of {peer['urls']:,} | {_per(peer, 'bytes'):.1f} |")
    lines.append(f"| a pending URL | {_per(found['pending'], 'bytes'):.0f} |")
    lines.append(f"| a host with one pending URL | {_per(found['hosts'], 'bytes'):.0f} |")
    lines.append(f"| a host without URLs | {found['hosts']['rest'] / found['hosts']['urls']:.0f} |")
    return "\n".join(lines)


def memory_verdicts(found: Figures) -> list[report.Verdict]:
    """Return the floor, where it was measured."""
    size = found["seen"]["sizes"].get(str(FULL))
    if size is None:
        return []
    line = f"{size / FULL:.1f} bytes of Redis memory per seen URL at {FULL:,} (at most {SEEN_MAX_BYTES:.0f})"
    return [report.Verdict(size / FULL <= SEEN_MAX_BYTES, line)]


# --------------------------------------------------------------------------------------------------------------- crawls


def _crawls(options: argparse.Namespace) -> dict[str, list[Crawled]]:
    return shared_crawls.measure(options.runs, quick=options.quick, progress=progress)


def _crawls_told(found: Mapping[str, Sequence[Crawled]]) -> tuple[dict[str, str], list[report.Verdict]]:
    return {"shared-about": shared_crawls.about(found), "shared-crawls": crawls_table(found)}, crawls_verdicts(found)


def crawls_table(found: Mapping[str, Sequence[Crawled]]) -> str:
    """Return the medians of every contender."""
    columns = ("workers", "pages/s per worker", "CPU s per 1,000 pages, workers", "Redis", "round trips per 50 pages")
    columns += ("bytes per seen URL", "pages/s, ratio to scrapy-redis")
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for contender in CONTENDERS:
        runs = found.get(contender.key)
        if not runs:
            continue
        rates = [run.rate for run in runs]
        spread = f" ({min(rates):,.0f}-{max(rates):,.0f})" if len(runs) > 1 else ""
        peer = found.get(f"scrapy-redis-{contender.workers}")
        ratio = f"{median(rates) / median(run.rate for run in peer):.1f}" if peer else ""
        figures = [_of(runs, name, form) for name, form in SHOWN]
        rate = f"{median(rates):,.0f}{spread}"
        lines.append(f"| {contender.name} | {contender.workers} | {' | '.join([rate, *figures, ratio])} |")
    return "\n".join(lines)


SHOWN = (("cpu_per_1000", ".2f"), ("server_cpu_per_1000", ".2f"), ("trips_per_50", ".1f"), ("seen_bytes", ".0f"))


def _of(runs: Sequence[Crawled], name: str, form: str) -> str:
    value = median(getattr(run, name) for run in runs)
    return format(value, form) if value else ""


def crawls_verdicts(found: Mapping[str, Sequence[Crawled]]) -> list[report.Verdict]:
    """Return the floors that can be judged with these results."""
    floors = []
    for workers in (1, 2):
        ours, theirs = found.get(f"lycosa-{workers}"), found.get(f"scrapy-redis-{workers}")
        if ours and theirs:
            ratio = median(run.rate for run in ours) / median(run.rate for run in theirs)
            many = "one worker" if workers == 1 else f"{workers} workers"
            line = f"{many}: {ratio:.1f} times the pages/s per worker of scrapy-redis (at least {FASTER_MIN:.0f})"
            floors.append(report.Verdict(ratio >= FASTER_MIN, line))
    return floors


PRESENTED = {"cycle": _cycle_told, "memory": _memory_told, "crawls": _crawls_told}


# ---------------------------------------------------------------------------------------------------------------- steps


def _step(*, what: str, **arguments: Any) -> Figures:
    with redis_server() as server:
        _to_first_core(server)
        return _stepped(server, what, **arguments)


def _stepped(server: Any, what: str, **arguments: Any) -> Figures:
    """Run one step in a process of its own, on the second core."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".json") as file:
        step = Step(what=what, redis=server.url, result=file.name, **arguments)
        command = [sys.executable, str(ROOT / "bench" / "shared_cycle.py"), json.dumps(asdict(step))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with on_cores(max(os.sched_getaffinity(0))):
            code = subprocess.run(command, check=False, env=environment, stdin=subprocess.DEVNULL).returncode
        if code:
            raise BadRun(f"{what} ended with {code}")
        return dict(json.loads(Path(file.name).read_text()))


def _to_first_core(server: Any) -> None:
    os.sched_setaffinity(server.process.pid, {min(os.sched_getaffinity(0))})


if __name__ == "__main__":
    sys.exit(main())
