"""Crawls that lose 30 % of their proxies on the way: `python bench/goodput.py [--pages N] [--runs N] [--write]`.

Two sites and 50 proxies (microsocks, each with its own exit address). One crawl each with our pool, with round robin,
and with the random choice and back-off of scrapy-rotating-proxies, all in our engine (`peers/proxy_strategies.py`).
After a tenth of the pages, some proxies stop responding, and the sites ban others for ever. A proxy that sends requests
too fast is banned for a while at any time. Some links lead to missing pages. Sites and proxies have the first core, the
crawl the second. The sites count the results.

Exit code 1: a floor does not hold; 2: it cannot be measured here; 3: a crawl ended with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median

import report
from finishing import finish, in_order
from goodput_crawl import Crawl
from race import BadRun
from running import ROOT, Figures, count, progress

sys.path.insert(0, str(ROOT))
from tests.servers.banning import Banning, BanResponse, Limit, banning
from tests.servers.children import deferred_signals
from tests.servers.proxies import Microsocks, running

PAGES, SITES, PROXIES = 20_000, 2, 50
STILL, BANNED = 8, 7
"""How many proxies stop responding, and how many are banned by the sites."""
RUNS = 1
CONCURRENCY = 64
DELAY_S = 0.3
"""Response time of a site."""

LIMIT = Limit(10, BanResponse.FORBIDDEN, for_s=20.0, within_s=2.0)
"""About twice the rate of each proxy when all share the load."""
CONNECT_MAX_S = 10.0
"""The default of the setting `connect_timeout`."""
CRAWL_MAX_S = 900.0
"""A longer crawl is stopped and measured by the pages it has then."""
BETTER_MIN = 2.0
RISE_MAX = 1.05
STRATEGIES = {"lycosa": "**Lycosa**", "in-turn": "round robin", "back-off": "random with back-off"}


def main() -> int:
    """Measure, print, and check the floors."""
    options = _options()
    if shutil.which("microsocks") is None:
        print("bench/goodput.py: microsocks is missing: scripts/packages microsocks:microsocks", file=sys.stderr)
        return 2
    found: dict[str, list[Figures]] = {strategy: [] for strategy in options.strategy or STRATEGIES}
    try:
        for number in range(options.runs):
            for strategy, runs in found.items():
                figures = asyncio.run(_crawl(strategy, options.pages, number))
                runs.append(figures)
                cost = f"{figures['success']:.1%} of {figures['requests']:,} requests"
                progress(f"{strategy:9} {figures['goodput']:6.1f} pages/s, {cost}, {figures['lost']:,} missing pages")
    except BadRun as problem:
        print(f"bench/goodput.py: {problem}", file=sys.stderr)
        return 3
    return finish("goodput", {"goodput": table(found)}, verdicts(found), write=options.write)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=count, default=PAGES, help="of all sites together (default 20,000)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each; medians count (default 1)")
    parser.add_argument("--strategy", action="append", choices=list(STRATEGIES), help="only this strategy; repeatable")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.strategy or options.pages != PAGES):
        parser.error("--write is for the whole comparison: leave out --strategy and --pages")
    return options


async def _crawl(strategy: str, pages: int, seed: int) -> Figures:
    """Crawl all pages with one strategy. Raises `BadRun`."""
    chance = random.Random(seed)
    proxies = [Microsocks() for _ in range(PROXIES)]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, running(*proxies):
        listed = _write_list(folder, proxies)
        async with (
            banning(sites=SITES, pages=pages // SITES, limit=LIMIT, delay_s=DELAY_S) as server,
            AsyncExitStack() as stack,
        ):
            starts = [server.url(site=site) for site in range(SITES)]
            crawl = Crawl(strategy, starts, str(listed), CONCURRENCY, CONNECT_MAX_S)
            with deferred_signals():
                process = await _start(crawl, folder)
                stack.push_async_callback(_kill, process)
            troubling = asyncio.create_task(_trouble(server, proxies, chance, pages))
            try:
                code = await _wait_for_end(process)
            finally:
                await _kill(process)
                troubling.cancel()
                for proxy in proxies[:STILL]:
                    _send(proxy, signal.SIGCONT)
            if code:
                raise BadRun(f"the crawl of {strategy} ended with {code}")
            return _figures(server, {proxy.exit for proxy in proxies[: STILL + BANNED]}, pages)


def _write_list(folder: str, proxies: Sequence[Microsocks]) -> Path:
    file = Path(folder, "proxies.txt")
    file.write_text("".join(f"{proxy.url}\n" for proxy in proxies))
    return file


async def _start(crawl: Crawl, folder: str) -> asyncio.subprocess.Process:
    command = [sys.executable, str(ROOT / "bench" / "goodput_crawl.py"), json.dumps(asdict(crawl))]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    os.sched_setaffinity(process.pid, {os.cpu_count() - 1 if os.cpu_count() else 0})
    return process


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _wait_for_end(process: asyncio.subprocess.Process) -> int:
    """Return the exit code of the process, 0 if it was stopped after CRAWL_MAX_S."""
    try:
        async with asyncio.timeout(CRAWL_MAX_S):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 0


async def _trouble(server: Banning, proxies: Sequence[Microsocks], chance: random.Random, pages: int) -> None:
    """Stop or ban one proxy after the other, while the crawl goes from a tenth to four tenths of its pages."""
    losses = [(proxy, place < STILL) for place, proxy in enumerate(proxies[: STILL + BANNED])]
    chance.shuffle(losses)
    for place, (proxy, stops) in enumerate(losses):
        await server.until(round(pages * (0.1 + 0.3 * place / len(losses))))
        if stops:
            _send(proxy, signal.SIGSTOP)
        for site in range(0 if stops else SITES):
            server.ban(proxy.exit, BanResponse.FORBIDDEN, site=site)


def _send(proxy: Microsocks, number: signal.Signals) -> None:
    if proxy.process is not None:
        proxy.process.send_signal(number)


def _figures(server: Banning, lost: set[str], pages: int) -> Figures:
    """Return the figures counted by the sites. A missing page counts neither as a page nor as a failure."""
    hits = server.hits
    good = {(hit.site, hit.path) for hit in hits if hit.good}
    began, ended = min(hit.at for hit in hits), max(hit.at for hit in hits if hit.good)
    answered = sum(hit.good or hit.status == 404 for hit in hits)
    before, after = _rate(server, lost, began, 0.1, pages), _rate(server, lost, began, 0.5, pages)
    return {
        "goodput": len(good) / (ended - began),
        "took_s": ended - began,
        "requests": len(hits),
        "success": answered / len(hits),
        "lost": pages - len(good),
        "rise": after / before if before else 0.0,
    }


def _rate(server: Banning, lost: set[str], began: float, part: float, pages: int) -> float:
    """Return the requests per second per site and surviving proxy.

    Below a half, `part` is the share of the pages that are counted from the beginning. From a half on, the pages from
    this share to nine tenths are counted, which come after the last loss.
    """
    times = [hit.at for hit in server.hits if hit.good]
    first, last = (0, round(pages * part)) if part < 0.5 else (round(pages * part), round(pages * 0.9))
    begin, end = times[min(first, len(times) - 1)] if first else began, times[min(last, len(times) - 1)]
    seen = Counter((hit.site, hit.ip) for hit in server.hits if begin <= hit.at < end and hit.ip not in lost)
    return seen.total() / max(end - begin, 0.001) / (SITES * (PROXIES - len(lost)))


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the medians of every strategy."""
    columns = ("pages/s", "s", "requests", "answered", "missing pages", "rate of surviving proxies, relative to before")
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for strategy, runs in found.items():
        goodput, took_s, requests, success, lost, rise = (
            median(run[name] for run in runs) for name in ("goodput", "took_s", "requests", "success", "lost", "rise")
        )
        figures = f"{goodput:.1f} | {took_s:.0f} | {requests:,.0f} | {success:.1%} | {lost:,.0f} | {rise:.2f}"
        lines.append(f"| {STRATEGIES[strategy]} | {figures} |")
    return "\n".join(lines)


def verdicts(found: Mapping[str, Sequence[Figures]]) -> list[report.Verdict]:
    """Return the floors that can be judged with these results."""
    ours = found.get("lycosa")
    if not ours:
        return []
    lost, rise = max(run["lost"] for run in ours), median(run["rise"] for run in ours)
    floors = [
        report.Verdict(lost == 0, f"{lost:,} pages are missing (0)"),
        report.Verdict(rise <= RISE_MAX, f"{rise:.2f} times the earlier rate of survivors (at most {RISE_MAX})"),
    ]
    for strategy in ("in-turn", "back-off"):
        if theirs := found.get(strategy):
            ratio = median(run["goodput"] for run in ours) / median(run["goodput"] for run in theirs)
            line = f"{ratio:.1f} times the pages/s of {STRATEGIES[strategy]} (at least {BETTER_MIN:.0f})"
            floors.append(report.Verdict(ratio >= BETTER_MIN, line))
    return floors


if __name__ == "__main__":
    sys.exit(in_order(main))
