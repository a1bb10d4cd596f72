"""`lycosa proxies keep`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, INTERRUPTED, one_line
from lycosa.cli.proxies.pool import pool_option, run
from lycosa.core.units import format_count
from lycosa.proxies.core.checks.checks import Checks, Finding
from lycosa.proxies.core.checks.judging import parse_judge_address
from lycosa.proxies.core.sources.sources import RefreshResult
from lycosa.proxies.ports import ProxyPool

FAULTS_SHOWN = 5
"""Maximum number of invalid lines shown per list. The others are only counted."""

REPORTED_MAX = 1_000_000
"""Maximum number of proxies and sources whose last report is remembered."""


@click.command("keep")
@pool_option
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="ADDRESS",
    help="Judge to use instead of those in lycosa.toml. May be repeated.",
)
def command(address: str | None, judges: Sequence[str]) -> int:
    """Refresh a pool from its sources and check its proxies, until Ctrl-C.

    Sources are set in [[proxies.sources]] of lycosa.toml, judges in [proxies.checks]. At least one source or judge is
    required. Only changes are reported: new and removed proxies, and changed results of sources and checks. With
    sources, a missing pool is created.

    \b
    lycosa proxies keep --pool redis://localhost:6379/0
    """
    from lycosa.app.proxies.checks import keep, project_checks, project_sources, require_sources_or_judges

    folder = Path()
    checks = project_checks(folder)
    if judges:
        checks = replace(checks, judges=tuple(map(parse_judge_address, judges)))
    sources, reporter = project_sources(folder, os.environ), ChangeReporter(checks)
    require_sources_or_judges(sources, checks)

    async def action(pool: ProxyPool) -> int:
        keeping = keep(
            pool,
            sources,
            checks,
            folder,
            on_refresh=reporter.report_refresh,
            on_finding=reporter.report_finding,
            on_forgotten=reporter.report_forgotten,
        )
        return await _run_until_signal(asyncio.ensure_future(keeping))

    return run(address, action, create=bool(sources))


async def _run_until_signal(task: asyncio.Future[None]) -> int:
    """Wait for the task, and cancel it on a signal. Return the exit code. Raises the task's error."""
    loop, codes = asyncio.get_running_loop(), [DONE]

    def stop(code: int) -> None:
        codes.append(code)
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, stop, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, stop, DONE)
    try:
        await task
    except asyncio.CancelledError:
        if len(codes) == 1:  # not cancelled by a signal
            raise
    finally:
        # From now on a further Ctrl-C interrupts the closing of the pool.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return codes[-1]


class ChangeReporter:
    """Reports results on standard error if they differ from the last report."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._last_reports: dict[str, str] = {}

    def report_refresh(self, result: RefreshResult) -> None:
        """Report a successful refresh. A failed one has already been logged."""
        if result.problem:
            return
        changes = [(result.added, "new"), (result.removed, "removed")]
        parts = [f"{number:,} {text}" for number, text in changes if number]
        parts += [format_count(result.fault_count, "invalid line")] if result.fault_count else []
        text = ", ".join([format_count(result.listed, "proxy"), *parts])
        if parts or self._is_new(f"source {result.source}", text):
            faults = [f"    {one_line(str(each))}" for each in result.faults[:FAULTS_SHOWN]]
            progress.write([one_line(f"source {result.source}: {text}"), *faults])

    def report_finding(self, finding: Finding) -> None:
        works = f"works ({finding.anonymity}, {', '.join(finding.protocols)})"
        problems = [f"{target}: {problem}" for target, problem in finding.sites.items() if problem]
        text = "; ".join([finding.outcome(self._checks).reason or works, *problems])
        if self._is_new(finding.proxy.key, text):
            progress.write([one_line(f"{finding.proxy.name}: {text}")])

    def report_forgotten(self, keys: Sequence[str]) -> None:
        progress.write([f"{format_count(len(keys), 'dead proxy')} forgotten"])

    def _is_new(self, name: str, text: str) -> bool:
        last = self._last_reports.get(name)
        if len(self._last_reports) >= REPORTED_MAX:
            self._last_reports.clear()
        self._last_reports[name] = text
        return last != text
