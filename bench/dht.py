"""The speed of the DHT node and of its metadata fetches: `python bench/dht.py [--runs 3] [--quick] [--write]`.

    metadata    info dicts fetched from canned seeders on as many addresses of 127.0.0.0/8, all limits on;
                libtorrent does the same with the same seeders

The seeders run on one core, the program that is measured on another one. Exit 1: a floor is not held.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import median

import dht_metadata
import report
from finishing import finish, in_order
from running import Figures, count

METADATA_MIN = 500
RUNS, QUICK = 3, 10


def main() -> int:
    """Measure, print, judge."""
    chosen = _options()
    runs = [dht_metadata.measure(chosen.fetches, chosen.size) for _ in range(chosen.runs)]
    return finish("dht", {"dht": table(runs, chosen)}, verdicts(runs), write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=count, default=RUNS, help="runs of each; medians count (%(default)s)")
    options.add_argument("--fetches", type=count, default=4000, help="metadata fetches of a run (%(default)s)")
    options.add_argument("--size", type=count, default=20_000, help="bytes of an info dict (%(default)s)")
    options.add_argument("--quick", action="store_true", help="one run, a tenth of everything: does it work at all?")
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    chosen = options.parse_args()
    if chosen.write and chosen.quick:
        options.error("--write is for the whole: leave out --quick")
    if chosen.quick:
        chosen.runs, chosen.fetches = 1, chosen.fetches // QUICK or 1
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


def verdicts(runs: Sequence[Figures]) -> list[report.Verdict]:
    """Return the floors."""
    rate = median(run["lycosa"]["rate"] for run in runs)
    return [report.Verdict(rate >= METADATA_MIN, f"{rate:,.0f} metadata fetches a second (at least {METADATA_MIN})")]


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


if __name__ == "__main__":
    sys.exit(in_order(main))
