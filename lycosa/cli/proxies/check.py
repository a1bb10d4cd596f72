"""`lycosa proxies check`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import TextTable, json_option, print_json
from lycosa.cli.parameters import Number
from lycosa.cli.proxies.pool import COLORS, find_proxies, format_latency, pool_option, run
from lycosa.cli.task_progress import task_progress
from lycosa.proxies.core.checks.anonymity import Anonymity
from lycosa.proxies.core.checks.checks import CONCURRENCY_MAX, GRAVE, TIMEOUT_MAX_S, TIMEOUT_MIN_S, Checks, Finding
from lycosa.proxies.core.checks.judging import parse_judge_address
from lycosa.proxies.ports import ProxyPool, ProxyView

PROTOCOLS_MAX = len("http https")
IPV4_MAX, IPV6_MAX = len("255.255.255.255"), len(":".join(["ffff"] * 8))
WORKS, UNFIT, FAILS = "works", "not fit", "fails"
SUMMARY = {WORKS: "work", UNFIT: "are not fit", FAILS: "fail"}
STYLES = {**COLORS, WORKS: "green", UNFIT: "red", FAILS: "yellow"}


@click.command("check")
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="ADDRESS",
    help="Judge to use instead of those in lycosa.toml. May be repeated.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(TIMEOUT_MIN_S, TIMEOUT_MAX_S),
    metavar="SECONDS",
    help="Timeout of each request.",
)
@click.option("--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), metavar="N", help="Maximum concurrent checks.")
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
    """Check all or some proxies of a pool: whether they work, their latency and exit address, and what they alter.

    Results are saved in the pool. A proxy that works again is leased again. A proxy that fails cools down. A proxy that
    alters pages is no longer leased. `lycosa proxies judge` runs a judge and prints its address. The requirements for
    proxies are in [proxies.checks] of lycosa.toml.

    \b
    lycosa proxies check --pool pool --judge ADDRESS
    """
    from lycosa.app.proxies.checks import check_pool, open_checker, project_checks

    checks = project_checks(Path())
    checks = replace(
        checks,
        judges=tuple(map(parse_judge_address, judges)) or checks.judges,
        timeout_s=timeout_s or checks.timeout_s,
        concurrency=concurrency or checks.concurrency,
    )

    async def action(pool: ProxyPool) -> Counter[str]:
        views = await pool.proxies()
        keys = {each.key for each in find_proxies(proxies, views)} if proxies else None
        selected = [view for view in views if keys is None or view.proxy.key in keys]
        results: Counter[str] = Counter()
        table, total = _table(selected, checks.timeout_s), len(selected)
        async with open_checker(checks) as checker, aclosing(check_pool(pool, checker, time.time, keys)) as findings:
            with task_progress("proxy", "checked", total, shares_terminal=True) as show:
                async for finding in findings:
                    results[_result(finding, checks)] += 1
                    show(results.total(), results.total())
                    if as_json:
                        print_json(_row(finding, checks))
                    else:
                        table.write([_cells(finding, checks)])
        return results

    results = run(address, action)
    summary = ", ".join(f"{results[name]:,} {text}" for name, text in SUMMARY.items() if results[name])
    progress.write([f"{results.total():,} checked" + (f": {summary}" if summary else "")])


def _result(finding: Finding, checks: Checks) -> str:
    return UNFIT if finding.unfit(checks) else WORKS if finding.alive else FAILS


def _problem(finding: Finding, checks: Checks) -> str:
    sites = [f"{target}: {problem}" for target, problem in finding.sites.items() if problem]
    changes = [f"alters the {each}" if each in GRAVE else each for each in finding.changes]
    problems = [finding.unfit(checks), finding.problem, *changes, *sites]
    return "; ".join(dict.fromkeys(each for each in problems if each))


def _table(views: Sequence[ProxyView], timeout_s: float) -> TextTable:
    """Return a table with columns wide enough for all results of these proxies."""
    addresses = [address for view in views for address in (view.proxy.host, view.exit_ip)]
    widths = {
        "result": max(map(len, SUMMARY)),
        "latency": len(format_latency(timeout_s)),
        "carries": PROTOCOLS_MAX,
        "anonymity": max(len(each) for each in Anonymity),
        "exit": IPV6_MAX if any(":" in address for address in addresses) else IPV4_MAX,
        "proxy": max((len(one_line(view.proxy.name)) for view in views), default=0),
    }
    names = ("result", ">latency", "carries", "anonymity", "proxy", "exit", "problem")
    return TextTable(*names, style=0, colors=STYLES, min_widths=widths)


def _cells(finding: Finding, checks: Checks) -> list[str]:
    return [
        _result(finding, checks),
        format_latency(finding.latency_s),
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
        "result": _result(finding, checks),
        "latency_s": finding.latency_s,
        "protocols": finding.protocols,
        "anonymity": finding.anonymity,
        "exit_ip": finding.exit_ip,
        "changes": finding.changes,
        "kinds": finding.kinds,
        "sites": dict(finding.sites),
        "problem": _problem(finding, checks),
    }
