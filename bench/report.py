"""Turns results into Markdown and verdicts. Pure, except for `write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from race import CONTENDERS, Run

SPEED_FLOOR, SPEED_GOAL = 12.0, 20.0
DURABILITY_MAX = 1.3
MEMORY_MAX_MB = 200.0

Results = Mapping[str, Sequence[Run]]


class Verdict(NamedTuple):
    """One floor: whether it holds, with the measured and the required figure."""

    holds: bool
    line: str


class Part(NamedTuple):
    """One row of the budget: microseconds of CPU time per page."""

    name: str
    micros: float
    remedy: str


def table(results: Results) -> str:
    """Return the medians of every contender, and their ratios to Scrapy."""
    lines = [
        "| | pages/s | without start-up | CPU s per 1,000 pages | peak MB | pages/s to Scrapy | CPU to Scrapy |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    scrapy = results.get("scrapy")
    for contender in CONTENDERS:
        runs = results.get(contender.key)
        if not runs:
            continue
        rates = [run.rate for run in runs]
        spread = f" ({min(rates):,.0f}-{max(rates):,.0f})" if len(runs) > 1 else ""
        cpu = _median(runs, "cpu_per_1000")
        faster = f"{median(rates) / _median(scrapy, 'rate'):.1f}" if scrapy else ""
        lighter = f"1/{_median(scrapy, 'cpu_per_1000') / cpu:.1f}" if scrapy else ""
        lines.append(
            f"| {contender.name} | {median(rates):,.0f}{spread} | {_median(runs, 'steady_rate'):,.0f} | {cpu:.2f} "
            f"| {_median(runs, 'peak_mb'):.0f} | {faster} | {lighter} |"
        )
    return "\n".join(lines)


def checks(results: Results) -> str:
    """Return the table that shows that all contenders did the same work."""
    lines = ["| | items | digest of their URLs | requests | mean text |", "|---|---:|---|---:|---:|"]
    for contender in CONTENDERS:
        for run in results.get(contender.key, ())[:1]:
            mean = run.text_chars / run.pages
            lines.append(
                f"| {contender.name} | {run.pages:,} | `{run.digest}` | {run.requests:,} | {mean:,.0f} characters |"
            )
    return "\n".join(lines)


def differing(results: Results) -> list[str]:
    """Return a line for every run whose pages differ from those of most runs."""
    digests = [run.digest for runs in results.values() for run in runs]
    usual = max(set(digests), key=digests.count)
    return [
        f"{key} wrote {run.pages:,} pages with digest {run.digest}, the others have {usual}"
        for key, runs in results.items()
        for run in runs
        if run.digest != usual
    ]


def verdicts(results: Results) -> list[Verdict]:
    """Return the floors that can be judged with these results."""
    durable, memory, scrapy = (results.get(key) for key in ("durable", "memory", "scrapy"))
    floors = []
    if durable and scrapy:
        ratio = _median(durable, "rate") / _median(scrapy, "rate")
        goal = "reached" if ratio >= SPEED_GOAL else "not reached"
        wanted = f"at least {SPEED_FLOOR:.0f}; the goal of {SPEED_GOAL:.0f} is {goal}"
        floors.append(
            Verdict(ratio >= SPEED_FLOOR, f"{ratio:.1f} times the pages/s of Scrapy with its LinkExtractor ({wanted})")
        )
    if durable and memory:
        ratio = _median(memory, "rate") / _median(durable, "rate")
        floors.append(
            Verdict(
                ratio <= DURABILITY_MAX,
                f"in memory it is {ratio:.2f} times as fast as durable (at most {DURABILITY_MAX})",
            )
        )
    if durable:
        peak = max(run.peak_mb for run in durable)
        floors.append(Verdict(peak <= MEMORY_MAX_MB, f"peak memory {peak:.0f} MB (at most {MEMORY_MAX_MB:.0f})"))
    return floors


def verdict_lines(floors: Sequence[Verdict]) -> list[str]:
    """Return PASS or FAIL for each floor."""
    return [f"{'PASS' if each.holds else 'FAIL'}  {each.line}" for each in floors]


def budget_table(parts: Sequence[Part]) -> str:
    """Return where the time of a page goes."""
    total = sum(part.micros for part in parts)
    lines = ["| part | us/page | share | how to reduce it |", "|---|---:|---:|---|"]
    lines += [f"| {part.name} | {part.micros:.0f} | {part.micros / total:.0%} | {part.remedy} |" for part in parts]
    return "\n".join([*lines, f"| **all** | **{total:.0f}** | | |"])


def write(document: Path, blocks: Mapping[str, str]) -> None:
    """Put each block between its marks in the document: `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`."""
    text = document.read_text("utf-8")
    for name, block in blocks.items():
        start, end = f"<!-- bench:{name} -->\n", f"<!-- /bench:{name} -->\n"
        before, found, rest = text.partition(start)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"{document} has no marks for {name!r}")
        text = f"{before}{start}\n{block}\n\n{end}{after}"
    document.write_text(text, "utf-8")


def _median(runs: Sequence[Run], figure: str) -> float:
    return float(median(getattr(run, figure) for run in runs))
