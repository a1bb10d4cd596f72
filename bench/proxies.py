"""The benchmark of the proxy pool: `python bench/proxies.py [--part PART]... [--quick] [--write]`.

    memory   CPU time of a lease and its return in one process
    redis    leases and returns a second through one Redis, and the CPU time of both sides, beside other implementations

Redis has the first core, the workers the second. The figures of the server are its own (INFO). Exit 1: a floor is not
held; 2: it cannot be measured here; 3: a load ended with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import report
from finishing import finish, in_order
from proxies_load import Load, fill
from race import BadRun
from running import ROOT, Figures, on_cores, progress

sys.path.insert(0, str(ROOT))
from tests.servers.children import deferred_signals, ended
from tests.servers.redis import RedisFailed, RedisServer, redis_server

PARTS = ("memory", "redis")
RUNS = 3
QUICK = 10
MEMORY_MAX_US = 30.0
PAIRS_MIN = 10_000


class Row(NamedTuple):
    """One row: its name, the load, and the number of processes."""

    name: str
    load: Load
    processes: int = 1


MEMORY = {
    "plain": Row("any of 1,000 proxies", Load("plain", 20_000, "")),
    "million": Row("any of 1,000,000 proxies", Load("million", 20_000, "", proxies=1_000_000)),
    "tags": Row("one in a country, a tenth of 1,000 proxies", Load("tags", 20_000, "")),
    "session": Row("the proxy of a session, of 100", Load("session", 20_000, "", policy={"concurrency": 0})),
    "ban": Row("any of 1,000, a third of the first 300 banned", Load("ban", 20_000, "", policy={"delay_s": 0.0})),
}
REDIS = {
    "lycosa-1": Row("**Lycosa**, 100 workers in one process", Load("lycosa", 50_000, "")),
    "lycosa-4": Row("**Lycosa**, 100 workers in four processes", Load("lycosa", 12_500, "", workers=25), 4),
    "lycosa-lone": Row("**Lycosa**, one worker", Load("lycosa", 5_000, "", workers=1)),
    "counts": Row("sorted set by count, no lease", Load("counts", 20_000, "")),
    "jhao104": Row("jhao104's hash, no lease, not exclusive", Load("jhao104", 5_000, "")),
}
JUDGED = "lycosa-1"


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    blocks: dict[str, str] = {}
    floors: list[report.Verdict] = []
    try:
        if "memory" in options.part:
            found = _memory(options)
            blocks["proxies-memory"] = memory_table(found)
            floors += memory_verdicts(found)
        if "redis" in options.part:
            runs = _redis(options)
            blocks["proxies-redis"] = redis_table(runs)
            floors += redis_verdicts(runs)
    except RedisFailed as problem:
        print(f"bench/proxies.py: {problem}", file=sys.stderr)
        return 2
    except BadRun as problem:
        print(f"bench/proxies.py: {problem}", file=sys.stderr)
        return 3
    return finish("proxies", blocks, floors, write=options.write, quick=options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="this part; may be given again")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each; medians count (default 3)")
    parser.add_argument("--quick", action="store_true", help="one run, a tenth of everything: does it work at all?")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.quick or options.part):
        parser.error("--write is for the whole comparison: leave out --quick and --part")
    if options.runs < 1:
        parser.error("--runs: at least 1")
    options.part = options.part or list(PARTS)
    options.runs = 1 if options.quick else options.runs
    return options


def _loaded(load: Load, options: argparse.Namespace) -> Load:
    return replace(load, pairs=load.pairs // QUICK) if options.quick else load


# --------------------------------------------------------------------------------------------------------------- memory


def _memory(options: argparse.Namespace) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {key: [] for key in MEMORY}
    for _ in range(options.runs):
        for key, row in MEMORY.items():
            (figures,) = _run([_loaded(row.load, options)])
            found[key].append(figures["cpu_s"] * 1e6)
            progress(f"memory {key:10} {found[key][-1]:6.1f} us a pair")
    return found


def memory_table(found: Mapping[str, Sequence[float]]) -> str:
    """Return the medians of every row."""
    lines = ["| lease + return, in memory | CPU us |", "|---|---:|"]
    lines += [f"| {MEMORY[key].name} | {median(runs):.1f} |" for key, runs in found.items()]
    return "\n".join(lines)


def memory_verdicts(found: Mapping[str, Sequence[float]]) -> list[report.Verdict]:
    """Return the floor."""
    micros = median(found["plain"])
    line = f"{micros:.1f} us for a lease and its return in memory (at most {MEMORY_MAX_US:.0f})"
    return [report.Verdict(micros <= MEMORY_MAX_US, line)]


# ---------------------------------------------------------------------------------------------------------------- Redis


def _redis(options: argparse.Namespace) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {key: [] for key in REDIS}
    for _ in range(options.runs):
        for key, row in REDIS.items():
            figures = _on_redis(row, options)
            found[key].append(figures)
            cost = f"{figures['server_us']:5.1f} us of Redis, {figures['client_us']:5.1f} us of the workers"
            progress(f"redis {key:12} {figures['rate']:8,.0f} pairs/s, {cost}")
    return found


def _on_redis(row: Row, options: argparse.Namespace) -> Figures:
    with redis_server() as server:
        assert server.process
        os.sched_setaffinity(server.process.pid, {min(os.sched_getaffinity(0))})
        load = replace(_loaded(row.load, options), url=server.url, name="bench")
        asyncio.run(fill(load))
        before = _server_figures(server, load.how)
        runs = _run([replace(load, seed=number) for number in range(row.processes)])
        after = _server_figures(server, load.how)
    pairs = sum(run["pairs"] for run in runs)
    wall_s = max(run["ended"] for run in runs) - min(run["began"] for run in runs)
    return {
        "rate": pairs / wall_s,
        "server_us": (after["cpu_s"] - before["cpu_s"]) / pairs * 1e6,
        "client_us": sum(run["cpu_s"] for run in runs) / pairs * 1e6,
        "trips": (after["calls"] - before["calls"]) / pairs,
    }


def _server_figures(server: RedisServer, how: str) -> Figures:
    """Return the CPU time of the server and the number of commands sent to it, without those inside scripts."""
    info = dict(line.split(":", 1) for line in server.cli("INFO", "all").splitlines() if ":" in line)
    stats = (dict(part.split("=") for part in info.get(f"cmdstat_{name}", "calls=0").split(",")) for name in SENT[how])
    cpu_s = float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
    return {"cpu_s": cpu_s, "calls": sum(int(stat["calls"]) for stat in stats)}


SENT = {"lycosa": ("evalsha", "eval"), "jhao104": ("hkeys", "hget", "hdel", "hset"), "counts": ("zpopmin", "zadd")}


def redis_table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the medians of every row."""
    columns = ("leases + returns/s", "CPU us each, Redis", "CPU us each, workers", "round trips each")
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for key, runs in found.items():
        rate, *others = (median(run[name] for run in runs) for name in ("rate", "server_us", "client_us", "trips"))
        lines.append(f"| {REDIS[key].name} | {rate:,.0f} | {others[0]:.1f} | {others[1]:.1f} | {others[2]:.2f} |")
    return "\n".join(lines)


def redis_verdicts(found: Mapping[str, Sequence[Figures]]) -> list[report.Verdict]:
    """Return the floor."""
    rate = median(run["rate"] for run in found[JUDGED])
    micros = median(run["server_us"] for run in found[JUDGED])
    line = f"{rate:,.0f} leases and returns a second through one Redis (at least {PAIRS_MIN:,})"
    return [report.Verdict(rate >= PAIRS_MIN, f"{line}, {micros:.0f} us of CPU there each")]


# ---------------------------------------------------------------------------------------------------------------- loads


def _run(loads: Sequence[Load]) -> list[dict[str, Any]]:
    """Run these loads at the same time, each in a process of its own, on the second core. Raises `BadRun`."""
    with ExitStack() as stack, on_cores(max(os.sched_getaffinity(0))):
        running = []
        for load in loads:
            with deferred_signals():
                file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="bench-", suffix=".json"))
                argument = json.dumps(asdict(replace(load, result=file.name)))
                command = [sys.executable, str(ROOT / "bench" / "proxies_load.py"), argument]
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
                running.append((stack.enter_context(ended(process)), Path(file.name)))
        for process, _ in running:
            if process.wait():
                raise BadRun(f"a load ended with {process.returncode}")
        return [dict(json.loads(path.read_text())) for _, path in running]


if __name__ == "__main__":
    sys.exit(in_order(main))
