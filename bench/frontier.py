"""The frontier benchmark: `python bench/frontier.py [--urls N]... [--only KEY]... [--phase PHASE]... [--write]`.

N different URLs on 10,000 hosts (Zipf), and enough duplicates that 40 % of the pushed URLs were pushed before. The
cycle: push 50, lease 50, ack these; a commit after 256 acks or 0.1 s, as in a crawl. Beside our frontier run
bare LMDB, a frontier on SQLite, Scrapy's scheduler and crawlee's queue, each in a process of its own on one core, for
at most `--limit` seconds where it does not finish. Then a second state is made, in which all URLs are pending. The
process that makes a state is ended by kill -9, and the state is opened again: all that was committed must be there.

`--phase cycle --only lycosa --profile` is for tuning. Exit 1: a floor is not held; 3: a contender did not do its task.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import report
from cycle import Step
from running import DOCUMENT, ROOT, Figures, count, on_cores, progress
from workload import Workload

PHASES = ("cycle", "pending")
URLS = 1_000_000
PENDING_MAX = 1_000_000
LIMIT_S = 60.0
HANG_S = 300.0
"""A peer is stuck if a step takes this much longer than ten times the limit."""

FULL, HUGE = 10_000_000, 100_000_000
"""The floors are for these numbers of URLs."""

SPEED_MIN = 150_000
MEMORY_MAX_MB, HUGE_MEMORY_MAX_MB = 400, 2_500
ARCHIVED_MAX_BYTES, PENDING_MAX_BYTES = 120, 350
OPEN_MAX_S = 2.0
END_MIN = 0.6


class Contender(NamedTuple):
    """`limited`: it may be stopped early; then its size is the number of URLs done."""

    key: str
    name: str
    module: str
    sync: bool = False
    limited: bool = True


CONTENDERS = (
    Contender("lycosa", "**Lycosa**", "frontier_lycosa", limited=False),
    Contender("interpreted", "Lycosa, not compiled", "frontier_interpreted"),
    Contender("memory", "Lycosa, in memory", "frontier_memory"),
    Contender("lmdb", "bare LMDB", "frontier_lmdb"),
    Contender("sqlite", "SQLite", "frontier_sqlite"),
    Contender("scrapy", "Scrapy, JOBDIR", "frontier_scrapy"),
    Contender("scrapy-sqlite", "Scrapy, JOBDIR, its SQLite queues", "frontier_scrapy_sqlite"),
    Contender("crawlee", "crawlee, its SQL queue", "frontier_crawlee"),
    Contender("lycosa-sync", "**Lycosa**, `--sync`", "frontier_lycosa", sync=True),
    Contender("lmdb-sync", "bare LMDB, sync", "frontier_lmdb", sync=True),
    Contender("sqlite-sync", "SQLite, synchronous=FULL", "frontier_sqlite", sync=True),
)


class Failed(Exception):
    """A step ended otherwise than it should."""


class Result(NamedTuple):
    """What was measured of one contender; `problem` says why something is missing."""

    key: str
    size: int
    cycle: Figures
    pending: Figures
    problem: str = ""


class Bench:
    """Runs the steps of one contender, each in a process of its own, on the last core."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._core = max(os.sched_getaffinity(0))

    def run(self, contender: Contender, urls: int) -> Result:
        """Measure all phases. A failure is reported; the phase that failed and the following ones have no figures."""
        found: dict[str, Figures] = {phase: {} for phase in PHASES}
        try:
            for phase in self._options.phase:
                folder = self._options.folder
                with tempfile.TemporaryDirectory(prefix="frontier-", dir=folder) as place:
                    found[phase] = self._phase(contender, phase, urls, Path(place))
        except Failed as problem:
            progress(f"{contender.key}: {problem}")
            return Result(contender.key, urls, found["cycle"], found["pending"], str(problem))
        return Result(contender.key, urls, found["cycle"], found["pending"])

    def _phase(self, contender: Contender, phase: str, urls: int, place: Path) -> Figures:
        progress(f"{contender.key}, {phase}")
        if phase == "pending":
            urls = self._options.pending or min(urls, PENDING_MAX)
        figures = self._step(contender, phase, place, urls)
        progress(summary(phase, figures))
        if contender.key == "memory":
            return figures
        known, state = figures["urls"], "done" if phase == "cycle" else "pending"
        for turn, name in enumerate(("killed", "closed"), 1):
            figures[name] = self._step(contender, f"open-{state}", place, urls, known=known, turn=turn)
            opened = figures[name]
            disk = f"{opened['disk'] / known:.0f} bytes a URL"
            progress(f"    opened when {name}: first lease after {opened['lease_s']:.3f} s; {disk}")
        if phase == "pending" and figures["closed"]["leases"]:
            figures["drain"] = self._step(contender, "drain", place, urls, known=known)
            progress(summary("drain", figures["drain"]))
        return figures

    def _step(
        self, contender: Contender, what: str, place: Path, urls: int, *, known: int = 0, turn: int = 0
    ) -> Figures:
        options = self._options
        state, result = place / "state", place / "result.json"
        state.mkdir(exist_ok=True)
        result.unlink(missing_ok=True)
        limit_s = options.limit if contender.limited else 0.0
        step = Step(
            what=what,
            module=contender.module,
            sync=contender.sync,
            folder=str(state),
            result=str(result),
            urls=urls,
            known=known,
            turn=turn,
            limit_s=limit_s,
            commit_acks=options.commit_acks,
            commit_every_s=options.commit_every,
            profile=options.profile,
        )
        code = self._process(step, HANG_S + 10 * limit_s if contender.limited else None)
        wanted = -signal.SIGKILL if what in PHASES else 0
        if code != wanted or not result.exists():
            raise Failed(f"{what} ended with {code}")
        return dict(json.loads(result.read_text()))

    def _process(self, step: Step, timeout_s: float | None) -> int:
        command = [sys.executable, str(ROOT / "bench" / "cycle.py"), json.dumps(asdict(step))]
        with on_cores(self._core):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{step.what} was stuck for {timeout_s:.0f} s") from None
        finally:
            process.kill()
            process.wait()


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    contenders = [each for each in CONTENDERS if not options.only or each.key in options.only]
    results = measure(Bench(options).run, contenders, sorted(options.urls))
    floors = verdicts(results)
    blocks = {
        "frontier-about": about(options),
        "frontier-cycle": "\n\n".join(cycle_table(results, urls) for urls in sorted(options.urls)),
        "frontier-pending": pending_table(results),
        "frontier-floors": "\n".join(f"- {line}" for line in report.verdict_lines(floors)) or "None at this size.",
    }
    print("", *blocks.values(), sep="\n\n")
    if options.json:
        Path(options.json).write_text(json.dumps([each._asdict() for each in results], indent=1))
    if options.write:
        report.write(DOCUMENT, blocks)
    if any(each.problem for each in results):
        return 3
    return 0 if all(each.holds for each in floors) else 1


def measure(
    run: Callable[[Contender, int], Result], contenders: Sequence[Contender], sizes: Sequence[int]
) -> list[Result]:
    """Run all contenders at all sizes, the small sizes first.

    A contender that did not finish in the time is not run at the larger sizes: it would only do the same again.
    """
    results: list[Result] = []
    for urls in sizes:
        progress(f"== {urls:,} URLs")
        for contender in contenders:
            smaller = next((each for each in results if each.key == contender.key and each.cycle.get("cut")), None)
            results.append(smaller._replace(size=urls) if smaller else run(contender, urls))
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [contender.key for contender in CONTENDERS]
    parser.add_argument("--urls", type=count, action="append", help=f"different URLs; may be given again ({URLS:,})")
    parser.add_argument("--pending", type=count, help=f"URLs of the pending state (as --urls, at most {PENDING_MAX:,})")
    parser.add_argument("--only", action="append", choices=keys, help="this contender; may be given again")
    parser.add_argument("--phase", action="append", choices=PHASES, help="this phase; may be given again")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each phase of a peer (60)")
    parser.add_argument("--commit-acks", type=count, default=256, help="acks in one commit (256)")
    parser.add_argument("--commit-every", type=float, default=0.1, help="maximum seconds between two commits (0.1)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes; slows what it measures")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache", help="where the states are made (.cache)")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    options.urls = options.urls or [URLS]
    options.phase = options.phase or list(PHASES)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.write and (options.only or options.profile or set(options.phase) != set(PHASES)):
        parser.error("--write is for the whole comparison: leave out --only, --phase and --profile")
    return options


def about(options: argparse.Namespace) -> str:
    """Return the conditions of the run, as a list."""
    length = Workload(max(options.urls)).mean_length()
    bounds = f"a commit after {options.commit_acks} acks or {options.commit_every:g} s"
    return (
        f"- URLs of {length:.0f} characters on average, 10,000 hosts (Zipf), 40 % of the pushes duplicates\n"
        f"- {bounds}; one core; one run each; peers stop after {options.limit:g} s\n"
        f"- Lycosa is {'compiled' if compiled() else 'not compiled'} (`make compiled`), unless stated otherwise"
    )


def compiled() -> bool:
    """Whether Python finds the frontier compiled."""
    found = find_spec("lycosa.frontier.lsm.store")
    return found is not None and str(found.origin).endswith(".so")


def cycle_table(results: Sequence[Result], size: int) -> str:
    """Return the figures of the cycle at one size, and how many times faster ours is."""
    columns = ("URLs", "pushed/s", "CPU us per push", "last tenth to first", "anonymous MB", "bytes per archived URL")
    columns += ("first lease after kill -9, s", "after close, s", "ours is faster")
    lines = [f"**{size:,} URLs**", "", *header(columns)]
    rows = {each.key: each.cycle for each in results if each.size == size}
    for contender in CONTENDERS:
        figures = rows.get(contender.key)
        if figures:
            ours = rows.get("lycosa-sync" if contender.sync else "lycosa")
            lines.append(f"| {contender.name} | {' | '.join(_cycle_cells(figures, ours))} |")
        elif contender.key in rows:
            lines.append(f"| {contender.name} | failed |{' |' * (len(columns) - 1)}")
    return "\n".join(lines)


def _cycle_cells(figures: Figures, ours: Figures | None) -> list[str]:
    ratio = speed(ours) / speed(figures) if ours and ours is not figures else 0
    return [
        f"{figures['urls']:,}",
        f"{speed(figures):,.0f}",
        f"{figures['cpu_s'] / figures['count'] * 1e6:.1f}",
        f"{slope(figures):.0%}",
        f"{figures['peak_mb']:,.0f}",
        f"{figures['disk'] / figures['urls']:,.0f}" if figures["disk"] else "",
        _opened(figures, "killed"),
        _opened(figures, "closed"),
        f"{ratio:.{0 if ratio >= 10 else 1}f} x" if ratio else "",
    ]


def pending_table(results: Sequence[Result]) -> str:
    """Return the figures of the state in which everything is pending."""
    columns = ("pending URLs", "pushed/s", "bytes per pending URL", "anonymous MB", "first lease after kill -9, s")
    lines = header((*columns, "after close, s", "drained/s", "drained"))
    shown = set()
    for contender in CONTENDERS:
        for each in results:
            figures = each.pending
            if each.key != contender.key or not figures or (each.key, figures["urls"]) in shown:
                continue
            shown.add((each.key, figures["urls"]))
            drained = figures.get("drain")
            cells = [
                f"{figures['urls']:,}",
                f"{speed(figures):,.0f}",
                f"{figures['disk'] / figures['urls']:,.0f}" if figures["disk"] else "",
                f"{figures['peak_mb']:,.0f}",
                _opened(figures, "killed"),
                _opened(figures, "closed"),
                f"{speed(drained):,.0f}" if drained else "",
                _drained(figures),
            ]
            lines.append(f"| {contender.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def header(columns: Sequence[str]) -> list[str]:
    return [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]


def _opened(figures: Figures, name: str) -> str:
    opened = figures.get(name)
    if opened is None:
        return ""
    if not opened["leases"]:
        return "nothing left"
    forgotten = opened.get("forgotten")
    return f"{opened['lease_s']:.3f}" + (f" (forgot {forgotten} of the last 50)" if forgotten else "")


def _drained(figures: Figures) -> str:
    if "killed" not in figures:
        return ""
    if "drain" not in figures:
        return "none"
    count = figures["drain"]["count"]
    return "all" if count == figures["urls"] else f"{count:,}" + (" in the time" if figures["drain"]["cut"] else "")


def verdicts(results: Sequence[Result]) -> list[report.Verdict]:
    """Return the floors for our frontier, at the sizes they are for."""
    floors = []
    for each in results:
        if each.key == "lycosa" and each.size >= FULL and each.cycle:
            floors += _cycle_floors(each.cycle, each.size)
        if each.key == "lycosa" and each.size >= FULL and each.pending:
            floors += _pending_floors(each.pending)
    return floors


def _cycle_floors(figures: Figures, size: int) -> list[report.Verdict]:
    floors = [_at_most(figures["killed"]["lease_s"], OPEN_MAX_S, "s to a first lease after kill -9, all done", "g")]
    if size >= HUGE:
        floors.append(_at_most(figures["peak_mb"], HUGE_MEMORY_MAX_MB, "MB of anonymous memory"))
        end = slope(figures)
        floors.append(report.Verdict(end >= END_MIN, f"at the end {end:.0%} of the speed at the start (at least 60 %)"))
    else:
        rate = speed(figures)
        floors.append(report.Verdict(rate >= SPEED_MIN, f"{rate:,.0f} pushed URLs/s (at least {SPEED_MIN:,})"))
        floors.append(_at_most(figures["peak_mb"], MEMORY_MAX_MB, "MB of anonymous memory"))
        disk = figures["disk"] / figures["urls"]
        floors.append(_at_most(disk, ARCHIVED_MAX_BYTES, "bytes on disk per archived URL"))
    return [each._replace(line=f"{size:,} URLs: {each.line}") for each in floors]


def _pending_floors(figures: Figures) -> list[report.Verdict]:
    disk, opened = figures["disk"] / figures["urls"], figures["killed"]["lease_s"]
    floors = [
        _at_most(disk, PENDING_MAX_BYTES, "bytes on disk per pending URL"),
        _at_most(opened, OPEN_MAX_S, "s to a first lease after kill -9, all pending", "g"),
    ]
    return [each._replace(line=f"{figures['urls']:,} pending URLs: {each.line}") for each in floors]


def _at_most(value: float, most: float, what: str, form: str = ".0f") -> report.Verdict:
    shown = f"{value:.3f}" if form == "g" else f"{value:,.0f}"
    return report.Verdict(value <= most, f"{shown} {what} (at most {most:,g})")


def speed(figures: Figures) -> float:
    """Return URLs a second of wall time."""
    return float(figures["count"] / figures["wall_s"])


def slope(figures: Figures) -> float:
    """Return the speed in the last tenth of the run, divided by the speed in the first tenth."""
    return float(figures["rates"][-1] / figures["rates"][0])


def summary(what: str, figures: Figures) -> str:
    """Return a line of progress."""
    parts = [f"{figures['count']:,} in {figures['wall_s']:.1f} s: {speed(figures):,.0f}/s"]
    parts.append(f"CPU {figures['cpu_s'] / max(1, figures['count']) * 1e6:.2f} us")
    parts.append(f"{figures['peak_mb']:.0f} MB anonymous, {figures['base_mb']:.0f} before")
    if figures.get("disk"):
        parts.append(f"{figures['disk'] / figures['urls']:.0f} bytes a URL")
    tenths = " ".join(f"{rate:,.0f}" for rate in figures["rates"])
    return f"    {what}: {', '.join(parts)}\n    tenths: {tenths}"


if __name__ == "__main__":
    sys.exit(main())
