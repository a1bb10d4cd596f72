"""The speed of the DHT node and of its metadata fetches: `python bench/dht.py [--runs 3] [--quick] [--write]`.

    queries     queries from thousands of addresses that one core answers, with a full table and 10,000 stored peers
    lookups     lookups of one core in a network of 50 nodes
    idle        processor time and memory of a node without queries
    metadata    info dicts fetched from canned seeders, each from another address of 127.0.0.0/8, with all limits on;
                libtorrent does the same with the same seeders

Generators and seeders run on one core, the measured program on another one. Exit 1: a result is below its floor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import median

import dht_metadata
import dht_queries
import report
from finishing import finish, in_order
from running import Figures, count

METADATA_MIN = 500
QUERIES_MIN = 20_000
IDLE_MAX_MB = 60
RUNS, QUICK = 3, 10
ANSWERING = ("lycosa", "libtorrent")


def main() -> int:
    """Measure, print the results, and compare them with the floors."""
    chosen = _options()
    asked = [dht_queries.measure(chosen.seconds) for _ in range(chosen.runs)]
    runs = [dht_metadata.measure(chosen.fetches, chosen.size) for _ in range(chosen.runs)]
    blocks = {"dht-queries": queries_table(asked), "dht": table(runs, chosen)}
    floors = [*queries_verdicts(asked), *verdicts(runs)]
    return finish("dht", blocks, floors, write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=count, default=RUNS, help="runs of each; medians count (%(default)s)")
    options.add_argument("--seconds", type=float, default=5.0, help="of queries and of lookups (%(default)s)")
    options.add_argument("--fetches", type=count, default=4000, help="metadata fetches of a run (%(default)s)")
    options.add_argument("--size", type=count, default=20_000, help="bytes of an info dict (%(default)s)")
    options.add_argument("--quick", action="store_true", help="one run, a tenth of everything: does it work at all?")
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    chosen = options.parse_args()
    if chosen.write and chosen.quick:
        options.error("--write is for the whole: leave out --quick")
    if chosen.quick:
        chosen.runs, chosen.seconds, chosen.fetches = 1, chosen.seconds / QUICK, chosen.fetches // QUICK or 1
    return chosen


def table(runs: Sequence[Figures], chosen: argparse.Namespace) -> str:
    """Return the medians."""
    lines = [
        f"Metadata of {chosen.size:,} bytes, {chosen.fetches:,} fetches, one peer each:",
        "",
        "| | fetches/s | CPU us each | peak MB |",
        "|---|---:|---:|---:|",
    ]
    for name in runs[0]:
        at = _medians([run[name] for run in runs])
        lines.append(f"| {name} | {at['rate']:,.0f} | {at['cpu_us']:,.0f} | {at['peak_mb']:,.0f} |")
    return "\n".join(lines)


def queries_table(runs: Sequence[Figures]) -> str:
    """Return the medians."""
    lines = ["| | queries answered/s | CPU us each | bytes of an answer |", "|---|---:|---:|---:|"]
    for name in runs[0]:
        if name in ANSWERING:
            at = _medians([run[name] for run in runs])
            lines.append(f"| {name} | {at['rate']:,.0f} | {at['cpu_us']:.1f} | {at['bytes']:.0f} |")
    idle = _medians([run["idle"] for run in runs])
    lookups = median(run["lookups"]["rate"] for run in runs)
    usage = f"Idle: {idle['memory_mb']:.0f} MB and {idle['cpu_percent']:.2f} % of a core."
    return "\n".join([*lines, "", f"Lookups: {lookups:,.0f}/s. {usage}"])


def queries_verdicts(runs: Sequence[Figures]) -> list[report.Verdict]:
    """Return the floors. The floor of queries is for a whole core, so the rate is computed from the processor time."""
    cpu_us = median(run["lycosa"]["cpu_us"] for run in runs)
    memory_mb = median(run["idle"]["memory_mb"] for run in runs)
    rate = 1e6 / cpu_us
    return [
        report.Verdict(
            rate >= QUERIES_MIN, f"{rate:,.0f} queries answered per second of CPU (at least {QUERIES_MIN:,})"
        ),
        report.Verdict(memory_mb <= IDLE_MAX_MB, f"{memory_mb:.0f} MB for an idle node (at most {IDLE_MAX_MB})"),
    ]


def verdicts(runs: Sequence[Figures]) -> list[report.Verdict]:
    """Return the floors."""
    rate = median(run["lycosa"]["rate"] for run in runs)
    return [report.Verdict(rate >= METADATA_MIN, f"{rate:,.0f} metadata fetches a second (at least {METADATA_MIN})")]


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


if __name__ == "__main__":
    sys.exit(in_order(main))
