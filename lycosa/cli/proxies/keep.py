"""`lycosa proxies keep`: keeps a pool up to date with its sources, and checked, until SIGINT (exit 130) or SIGTERM."""

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
from lycosa.proxies.core.checks.checks import Checks, Finding
from lycosa.proxies.core.checks.judging import parse_judge_address
from lycosa.proxies.core.sources.sources import RefreshResult
from lycosa.proxies.ports import ProxyPool

FAULTS_SHOWN = 5
"""Faults of one list that are shown; the others are counted."""

SAID_MAX = 1_000_000
"""Proxies and sources of which is remembered what was said."""


@click.command("keep", short_help="Keep a pool up to date with its sources, and checked.")
@pool_option
@click.option("--judge", "judges", multiple=True, metavar="ADDRESS", help="A judge, instead of those of the project.")
def command(address: str | None, judges: Sequence[str]) -> int:
    """Keep a pool up to date with its sources, and its proxies checked, until Ctrl-C.

    Sources are the [[proxies.sources]] of lycosa.toml, judges those of [proxies.checks]; one of both is enough. It
    says what changes: proxies that come and go, sources that fail and recover, and what a check finds of a proxy when
    that is something else than before. With sources it makes the pool, where there is none.

    \b
    lycosa proxies keep --pool redis://localhost:6379/0
    """
    from lycosa.app.proxies.checks import keep, project_checks, project_sources, refuse_nothing

    folder = Path()
    checks = project_checks(folder)
    if judges:
        checks = replace(checks, judges=tuple(map(parse_judge_address, judges)))
    sources, said = project_sources(folder, os.environ), ChangeReporter(checks)
    refuse_nothing(sources, checks)

    async def story(pool: ProxyPool) -> int:
        kept = keep(
            pool, sources, checks, folder, on_refresh=said.report, on_finding=said.finding, on_forgotten=said.forgotten
        )
        keeping = asyncio.ensure_future(kept)
        return await _until_signal(keeping)

    return run(address, story, create=bool(sources))


async def _until_signal(keeping: asyncio.Future[None]) -> int:
    """Return the exit code when a signal has ended it. Raises what it raises."""
    loop, codes = asyncio.get_running_loop(), [DONE]

    def end(code: int) -> None:
        codes.append(code)
        keeping.cancel()

    loop.add_signal_handler(signal.SIGINT, end, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, end, DONE)
    try:
        await keeping
    except asyncio.CancelledError:
        if len(codes) == 1:
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return codes[-1]


class ChangeReporter:
    """Says what changed, and nothing twice."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._before: dict[str, str] = {}

    def report(self, report: RefreshResult) -> None:
        """A source was read. That it failed, or is there again, is in the log already."""
        if report.problem:
            return
        changes = [(report.added, "new"), (report.removed, "removed"), (report.fault_count, "with faults")]
        parts = [f"{number:,} {what}" for number, what in changes if number]
        text = ", ".join([progress.count(report.listed, "proxy"), *parts])
        if parts or self._changed(f"source {report.source}", text):
            faults = [f"    {one_line(str(each))}" for each in report.faults[:FAULTS_SHOWN]]
            progress.write([one_line(f"source {report.source}: {text}"), *faults])

    def finding(self, finding: Finding) -> None:
        """A proxy was checked."""
        what = finding.outcome(self._checks).reason or f"works ({finding.anonymity}, {', '.join(finding.protocols)})"
        refused = [f"{target}: {problem}" for target, problem in finding.sites.items() if problem]
        text = "; ".join([what, *refused])
        if self._changed(finding.proxy.key, text):
            progress.write([one_line(f"{finding.proxy.name}: {text}")])

    def forgotten(self, keys: Sequence[str]) -> None:
        """Dead proxies were forgotten."""
        progress.write([f"{progress.count(len(keys), 'dead proxy')} forgotten"])

    def _changed(self, name: str, text: str) -> bool:
        before = self._before.get(name)
        if len(self._before) >= SAID_MAX:
            self._before.clear()
        self._before[name] = text
        return before != text
