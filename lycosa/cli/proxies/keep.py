"""`lycosa proxies keep`: read the sources of a pool and check its proxies, in their time, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lycosa.cli import progress
from lycosa.cli.outcome import CANNOT, DONE, INTERRUPTED, one_line
from lycosa.cli.proxies.check import result_of, told_of
from lycosa.cli.proxies.pool import opened, pool_address, pool_option
from lycosa.core.errors import UsageError
from lycosa.core.proxies.checks import Checks, Finding
from lycosa.core.proxies.judging import read_address
from lycosa.ports import ProxyPool

SHOW_S = 10.0
"""How often is told what checks have found."""

FAULTS_SHOWN = 3


@click.command("keep", short_help="Read sources and check proxies, in their time.")
@pool_option
@click.option("--judge", "judges", multiple=True, metavar="ADDRESS", help="A judge, instead of those of the project.")
@click.option("--once", is_flag=True, help="Do all of it once.")
def command(address: str | None, judges: Sequence[str], *, once: bool) -> int:
    """Keep a pool in order: read its sources, and check its proxies, as [[proxies.sources]] and [proxies.checks] say.

    It runs until Ctrl-C, beside whatever uses the pool. What a source does not list any more goes after a time; what
    fails checks rests, and is tried again after growing pauses. Without a judge that answers nobody is blamed.

    \b
    lycosa proxies keep --pool pool
    """
    from lycosa.app.checks import project_checks, project_sources

    checks, sources = project_checks(Path()), project_sources(Path())
    if judges:
        checks = replace(checks, judges=tuple(read_address(each) for each in judges))
    if not (sources or checks.judges):
        raise UsageError("nothing to do: lycosa.toml has neither [[proxies.sources]] nor judges in [proxies.checks]")
    where = pool_address(address)

    async def story() -> int:
        async with opened(where) as pool:
            return await (_once if once else _on)(pool, checks, sources)

    return asyncio.run(story())


async def _once(pool: ProxyPool, checks: Checks, sources: Any) -> int:
    from lycosa.app.checks import check_pool, open_checker, open_refresher

    code = DONE
    async with open_refresher(pool, sources, Path()) as refresher:
        for report in await refresher.refresh():
            _tell(report)
            code = CANNOT if report.problem else code
    if checks.judges:
        results: Counter[str] = Counter()
        async with open_checker(checks) as checker:
            async for finding in check_pool(pool, checker, time.time):
                results[result_of(finding, checks)] += 1
        progress.write([told_of(results)])
    return code


async def _on(pool: ProxyPool, checks: Checks, sources: Any) -> int:
    """Go on until a signal. Return the exit code."""
    from lycosa.app.checks import open_refresher, open_upkeep

    results: Counter[str] = Counter()

    def heard(finding: Finding) -> None:
        results[result_of(finding, checks)] += 1

    async with AsyncExitStack() as stack:
        parts: list[Any] = []
        if sources:
            parts.append(await stack.enter_async_context(open_refresher(pool, sources, Path(), heard=_tell)))
        if checks.judges:
            parts.append(await stack.enter_async_context(open_upkeep(pool, checks, heard)))
        working: list[asyncio.Future[Any]] = [asyncio.create_task(part.run()) for part in parts]
        working.append(asyncio.create_task(_showing(results)))
        ended = _signalled()
        try:
            await asyncio.wait([ended, *working], return_when=asyncio.FIRST_COMPLETED)
            for task in working:
                if task.done():
                    task.result()
            return ended.result() if ended.done() else DONE
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)


def _signalled() -> asyncio.Future[int]:
    """Return what is done when a signal comes, with the exit code."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    loop.add_signal_handler(signal.SIGINT, end, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, end, DONE)
    return ended


async def _showing(results: Counter[str]) -> None:
    """Tell now and then what was found since the last time."""
    while True:
        await asyncio.sleep(SHOW_S)
        if results:
            progress.write([told_of(results)])
            results.clear()


def _tell(report: Any) -> None:
    name = one_line(report.source)
    if report.problem:
        progress.write([f"{name}: {one_line(report.problem)}"])
        return
    gone = f", {report.removed:,} gone" if report.removed else ""
    faulty = f", {progress.count(report.faulty, 'line')} with faults" if report.faulty else ""
    progress.write([f"{name}: {report.listed:,} listed, {report.added:,} new{gone}{faulty}"])
    progress.write([f"{name}: {one_line(str(fault))}" for fault in report.faults[:FAULTS_SHOWN]])
