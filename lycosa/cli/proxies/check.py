"""`lycosa proxies check`: what a judge sees of requests through proxies, told to the pool."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import TextTable, print_json
from lycosa.cli.parameters import Number
from lycosa.cli.proxies.pool import COLORS, json_option, latency, meant, pool_option, run
from lycosa.proxies.core.checks.anonymity import Anonymity
from lycosa.proxies.core.checks.checks import CONCURRENCY_MAX, GRAVE, TIMEOUT_MAX_S, TIMEOUT_MIN_S, Checks, Finding
from lycosa.proxies.core.checks.judging import parse_judge_address
from lycosa.proxies.ports import ProxyPool, ProxyView

PLAIN_EVERY_S = 5.0
CARRIES_MAX = len("http https")
TIMEOUTS = Number(TIMEOUT_MIN_S, TIMEOUT_MAX_S)
IPV4_MAX, IPV6_MAX = len("255.255.255.255"), len(":".join(["ffff"] * 8))
WELL, UNFIT, NOT = "works", "not fit", "fails"
TOLD = {WELL: "work", UNFIT: "are not fit", NOT: "fail"}
STYLES = {**COLORS, WELL: "green", UNFIT: "red", NOT: "yellow"}


@click.command("check", short_help="Check proxies against a judge, and tell the pool.")
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option("--judge", "judges", multiple=True, metavar="ADDRESS", help="A judge, instead of those of the project.")
@click.option(
    "--timeout",
    "timeout_s",
    type=TIMEOUTS,
    metavar="SECONDS",
    help="For each request.",
)
@click.option("--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), metavar="N", help="So many at a time.")
@json_option
def command(
    proxies: Sequence[str],
    address: str | None,
    judges: Sequence[str],
    timeout_s: float | None,
    concurrency: int | None,
    *,
    as_json: bool,
) -> None:
    """Check all proxies of a pool, or some: whether they work, how near they are, where they come out, what they alter.

    What is found is told to the pool: one that works again is lent again, one that fails rests, one that alters pages
    is lent no more. A judge is a server of your own (lycosa proxies judge prints its address); what to ask of proxies,
    and which sites they have to serve, is said in [proxies.checks] of lycosa.toml.

    \b
    lycosa proxies check --pool pool --judge ADDRESS
    """
    from lycosa.app.proxies.checks import check_pool, open_checker, project_checks

    checks = _wanted(project_checks(Path()), judges, timeout_s, concurrency)

    async def story(pool: ProxyPool) -> Counter[str]:
        views = await pool.proxies()
        keys = {each.key for each in meant(proxies, views)} if proxies else None
        results: Counter[str] = Counter()
        table = _table([view for view in views if keys is None or view.proxy.key in keys], checks.timeout_s)
        async with open_checker(checks) as checker, aclosing(check_pool(pool, checker, time.time, keys)) as findings:
            with _shown(len(views) if keys is None else len(keys)) as done:
                async for finding in findings:
                    results[result_of(finding, checks)] += 1
                    done()
                    if as_json:
                        print_json(_row(finding, checks))
                    else:
                        table.write([_cells(finding, checks)])
        return results

    results = run(address, story)
    progress.write([told_of(results)])


def told_of(results: Counter[str]) -> str:
    """Return results in one line."""
    told = ", ".join(f"{results[name]:,} {text}" for name, text in TOLD.items() if results[name])
    return f"{sum(results.values()):,} checked" + (f": {told}" if told else "")


def _wanted(checks: Checks, judges: Sequence[str], timeout_s: float | None, concurrency: int | None) -> Checks:
    """Return the checks of the project with what options say. Raises `UsageError`."""
    if judges:
        checks = replace(checks, judges=tuple(parse_judge_address(each) for each in judges))
    return replace(checks, timeout_s=timeout_s or checks.timeout_s, concurrency=concurrency or checks.concurrency)


def result_of(finding: Finding, checks: Checks) -> str:
    """Return what came of a check, as a word."""
    return UNFIT if finding.unfit(checks) else WELL if finding.alive else NOT


def _problem(finding: Finding, checks: Checks) -> str:
    """Return what is to be said of it, "" for nothing."""
    sites = [f"{target}: {problem}" for target, problem in finding.sites.items() if problem]
    changes = [f"alters the {each}" if each in GRAVE else each for each in finding.changes]
    return "; ".join(
        dict.fromkeys([each for each in [finding.unfit(checks), finding.problem, *changes, *sites] if each])
    )


def _table(views: Sequence[ProxyView], timeout_s: float) -> TextTable:
    """Return a table with room for what may be found of these."""
    names = ("result", ">latency", "carries", "anonymity", "proxy", "exit", "what")
    seen = [address for view in views for address in (view.proxy.host, view.exit_ip)]
    widest = {
        "result": max(map(len, TOLD)),
        "latency": len(latency(timeout_s)),
        "carries": CARRIES_MAX,
        "anonymity": max(len(each) for each in Anonymity),
        "exit": IPV6_MAX if any(":" in address for address in seen) else IPV4_MAX,
        "proxy": max((len(one_line(view.proxy.name)) for view in views), default=0),
    }
    return TextTable(*names, style=0, colors=STYLES, least=widest)


def _cells(finding: Finding, checks: Checks) -> list[str]:
    return [
        result_of(finding, checks),
        latency(finding.latency_s),
        " ".join(finding.protocols) or "-",
        str(finding.anonymity or "-"),
        finding.proxy.name,
        finding.exit_ip or "-",
        _problem(finding, checks) or "-",
    ]


def _row(finding: Finding, checks: Checks) -> dict[str, Any]:
    return {
        "key": finding.proxy.key,
        "name": finding.proxy.name,
        "result": result_of(finding, checks),
        "latency_s": finding.latency_s,
        "protocols": finding.protocols,
        "anonymity": str(finding.anonymity) if finding.anonymity else None,
        "exit_ip": finding.exit_ip,
        "changes": finding.changes,
        "kinds": finding.kinds,
        "sites": dict(finding.sites),
        "problem": _problem(finding, checks),
    }


@contextmanager
def _shown(total: int) -> Iterator[Callable[[], None]]:
    """Yield what to call for each proxy: a bar on a terminal that shows nothing else, else a line now and then."""
    if sys.stderr.isatty() and not sys.stdout.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("checking", total=total)
            yield lambda: bar.update(task, advance=1)
        return
    count, due = 0, time.monotonic() + PLAIN_EVERY_S

    def done() -> None:
        nonlocal count, due
        count += 1
        if time.monotonic() >= due:
            due += PLAIN_EVERY_S
            progress.write([f"{count:,} of {total:,} checked"])

    yield done
