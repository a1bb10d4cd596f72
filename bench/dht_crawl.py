"""The speed of the DHT crawler: `python bench/dht_crawl.py [--part PART]... [--known N]... [--write]`.

    discovery   a million synthetic infohashes on 2,000 nodes in virtual time (tests/dht/sim/discovery.py): the share
                that is found over time, beside the share of an ideal sweep that knows all nodes; the memory of the
                sweep with all tables full
    triage      how many infohashes a second are looked up in a queue with N known infohashes, and added if they are
                new; 95 of 100 are known ones, drawn at random; the memory

Exit 1: a result is below its floor.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import report
from dht_triage import ASKED_FOR
from finishing import finish, in_order
from running import ROOT, Figures, count, progress

sys.path.insert(0, str(ROOT))

from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.crawler.core import lane
from lycosa.dht.crawler.core import sweep as sweeps
from lycosa.dht.crawler.core.sampler_trust import SamplerTrust
from lycosa.dht.crawler.core.sweep import Ask, Search, Sweep
from tests.dht.sim.discovery import Discovery, KeySpace, OracleSweep, Population, bootstrap
from tests.servers.children import started

PARTS = ("discovery", "triage")
KNOWN = (10_000_000, 30_000_000)
SEED = 19
MINUTES = (2, 5, 10, 30, 60, 120, 240, 360)
NEAR_MIN, NEAR_FROM = 0.9, 5
"""The least share of the ideal, and the minute from which it is required: before, the sweep has to find the nodes."""
RATE_MIN = 200_000
MEMORY_MAX_MB, MEMORY_KNOWN = 400, 10_000_000
QUICK = 100


def main() -> int:
    """Measure, print the results, and compare them with the floors."""
    chosen = _options()
    blocks: dict[str, str] = {}
    floors: list[report.Verdict] = []
    if "discovery" in chosen.part:
        curve = discover(Population(2000 // chosen.divisor, 1_000_000 // chosen.divisor))
        blocks["dht-discovery"] = discovery_table(curve)
        floors += discovery_verdicts(curve)
    if "triage" in chosen.part:
        runs = measure_triage([max(known // chosen.divisor, 2 * ASKED_FOR) for known in chosen.known])
        blocks["dht-triage"] = triage_table(runs)
        floors += triage_verdicts(runs)
    return finish("dht-crawl", blocks, floors, write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", action="append", choices=PARTS, help="only this part (default: all)")
    options.add_argument("--known", action="append", type=count, help="known infohashes, in ascending order")
    options.add_argument("--quick", action="store_true", help="a hundredth of everything: does it work at all?")
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    chosen = options.parse_args()
    if chosen.write and (chosen.quick or chosen.part):
        options.error("--write is for the whole: leave out --quick and --part")
    chosen.part, chosen.known = chosen.part or PARTS, chosen.known or KNOWN
    chosen.divisor = QUICK if chosen.quick else 1
    return chosen


# --- discovery


def discover(population: Population) -> Figures:
    """Return the curves of an ideal sweep and of ours, as {minutes: (ideal, found, estimate)}, and more."""
    space = KeySpace(population, random.Random(SEED))
    until = 60.0 * MINUTES[-1]
    best = Discovery(space, OracleSweep(space), SEED, NodeLimits()).run(until)
    progress(f"ideal: {best.share_at(until):.1%} after {until / 3600:.0f} hours")
    sweep = Sweep(0.0)
    sweep.add(bootstrap(space, random.Random(SEED)))
    found = Discovery(space, sweep, SEED, NodeLimits(), trust=SamplerTrust()).run(until)
    progress(f"sweep: {found.share_at(until):.1%}")
    estimates = dict(found.estimates)
    return {
        "curve": {
            each: (best.share_at(60.0 * each), found.share_at(60.0 * each), estimates[60.0 * each]) for each in MINUTES
        },
        "asks": (best.asked.total(), found.asked.total()),
        "searches": found.searches,
        "missed": sum(not found.asked[each.contact.endpoint] for each in space.answering),
        "memory_mb": sweep_memory_mb(),
    }


def sweep_memory_mb() -> float:
    """Return the memory of a sweep whose tables are full."""
    chance = random.Random(SEED)
    tracemalloc.start()
    sweep = Sweep(0.0)
    step = sweep.next_step(0.0)
    assert isinstance(step, Search)
    sweep.searched(step.target, [Contact((each << 140).to_bytes(20), b"\x14\0\0" + bytes(3)) for each in range(8)])
    for number in range(sweeps.NODES_MAX + 16 * lane.CANDIDATES_MAX):
        contact = Contact(chance.randbytes(20), chance.randbytes(4) + b"\x1a\xe1")
        if number < sweeps.NODES_MAX:
            ask = Ask(contact, contact.id)
            sweep.answered(ask, (), 0.0, interval_s=21_600, num=1000, sampled=20, new=1)
        else:
            sweep.add([contact])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / 1e6


def discovery_table(figures: Figures) -> str:
    """Return the curve."""
    lines = ["| minutes | ideal | found | of the ideal | our estimate |", "|---:|---:|---:|---:|---:|"]
    for minutes, (best, found, estimate) in figures["curve"].items():
        lines.append(f"| {minutes} | {best:.1%} | {found:.1%} | {found / best:.0%} | {estimate:.1%} |")
    ideal, ours = figures["asks"]
    asked = f"Questions: {ours:,}, of the ideal one {ideal:,}; lookups: {figures['searches']:,}."
    missed = f"Nodes that answer and were never asked: {figures['missed']:,}."
    memory = f"A sweep with all tables full takes {figures['memory_mb']:.0f} MB."
    return "\n".join([*lines, "", f"{asked} {missed} {memory}"])


def discovery_verdicts(figures: Figures) -> list[report.Verdict]:
    """Return the floor."""
    least = min(found / best for minute, (best, found, _) in figures["curve"].items() if minute >= NEAR_FROM)
    return [
        report.Verdict(
            least >= NEAR_MIN, f"{least:.0%} of the ideal from minute {NEAR_FROM} on (at least {NEAR_MIN:.0%})"
        )
    ]


# --- triage


def measure_triage(known: Sequence[int]) -> dict[int, Figures]:
    """Return the figures for each number of known infohashes. Each step runs in a separate process."""
    runs: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number in known:
            queue = Path(temporary) / str(number)
            _child("fill", queue, number)
            runs[number] = _child("measure", queue, number)
            progress(f"{number:,} known: {runs[number]['rate']:,.0f}/s, {runs[number]['anonymous_mb']:.0f} MB")
    return runs


def _child(role: str, folder: Path, known: int) -> Figures:
    command = [sys.executable, str(Path(__file__).with_name("dht_triage.py")), role, str(folder), str(known)]
    with started(command) as process:
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"bench/dht_triage.py {role}: exit {process.returncode}")
    figures: Figures = json.loads(output)
    return figures


def triage_table(runs: dict[int, Figures]) -> str:
    """Return the table."""
    lines = [
        "| known | infohashes/s | CPU us each | memory MB | with mapped files | opened in s | all read in s of CPU |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for known, at in runs.items():
        speed = f"{at['rate']:,.0f} | {at['cpu_us']:.1f}"
        memory = f"{at['anonymous_mb']:.0f} | {at['resident_mb']:.0f}"
        lines.append(f"| {known:,} | {speed} | {memory} | {at['open_s']:.1f} | {at['load_s']:.0f} |")
    return "\n".join(lines)


def triage_verdicts(runs: dict[int, Figures]) -> list[report.Verdict]:
    """Return the floors. The rate is computed for a whole core, since other programs may use the core, too."""
    floors = []
    for known, at in runs.items():
        rate = 1e6 / at["cpu_us"]
        floors.append(
            report.Verdict(
                rate >= RATE_MIN, f"{rate:,.0f} infohashes per second of CPU at {known:,} known (at least {RATE_MIN:,})"
            )
        )
        if known <= MEMORY_KNOWN:
            memory_mb = at["anonymous_mb"]
            floors.append(
                report.Verdict(memory_mb <= MEMORY_MAX_MB, f"{memory_mb:.0f} MB at {known:,} (at most {MEMORY_MAX_MB})")
            )
    return floors


if __name__ == "__main__":
    sys.exit(in_order(main))
