"""Crawls through proxies of which 30 % are lost on the way: `python bench/goodput.py [--pages N] [--runs N] [--write]`.

Two sites, 50 proxies (microsocks, each with an address to leave by), one crawl after the other with our pool, round
robin, and the random choice with a back-off of scrapy-rotating-proxies, all in our engine (`peers/proxy_ways.py`). When
a tenth of the pages is there, trouble begins: a part of the proxies stands still without an answer, and the sites ban
another part for ever; who asks a site too fast is banned there for a while at any time. Some links lead to pages that
are missing. Sites and proxies have the first core, the crawl the second. What happened is what the sites have seen.

Exit 1: a floor is not held; 2: it cannot be measured here; 3: a crawl ended with an error.
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
from finishing import finish, in_order, undivided
from goodput_crawl import Crawl
from race import BadRun
from running import ROOT, Figures, count, say

sys.path.insert(0, str(ROOT))
from tests.servers.banning import Banning, BanResponse, Limit, banning
from tests.servers.proxies import Microsocks, running

PAGES, SITES, PROXIES = 20_000, 2, 50
STILL, BANNED = 8, 7
RUNS = 1
CONCURRENCY = 64
DELAY_S = 0.3
"""Before each answer of a site."""

LIMIT = Limit(10, BanResponse.FORBIDDEN, for_s=20.0, within_s=2.0)
"""Some twice the rate of each when all share the load."""
CONNECT_MAX_S = 10.0
"""As it is when nothing is said."""
CRAWL_MAX_S = 900.0
"""A crawl that takes longer is ended, and measured by what it has until then."""
BETTER_MIN = 2.0
RISE_MAX = 1.05
WAYS = {"lycosa": "**Lycosa**", "in-turn": "round robin", "back-off": "random with back-off"}


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    if shutil.which("microsocks") is None:
        print("bench/goodput.py: microsocks is not here: scripts/packages microsocks:microsocks", file=sys.stderr)
        return 2
    found: dict[str, list[Figures]] = {way: [] for way in options.way or WAYS}
    try:
        for number in range(options.runs):
            for way, runs in found.items():
                figures = asyncio.run(_crawled(way, options.pages, number))
                runs.append(figures)
                cost = f"{figures['success']:.1%} of {figures['requests']:,} requests"
                say(f"{way:9} {figures['goodput']:6.1f} pages/s, {cost}, {figures['lost']:,} missing pages")
    except BadRun as problem:
        print(f"bench/goodput.py: {problem}", file=sys.stderr)
        return 3
    return finish("goodput", {"goodput": table(found)}, verdicts(found), write=options.write)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=count, default=PAGES, help="of all sites together (default 20,000)")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each; medians count (default 1)")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="this one; may be given again")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.way or options.pages != PAGES):
        parser.error("--write is for the whole comparison: leave out --way and --pages")
    return options


async def _crawled(way: str, pages: int, seed: int) -> Figures:
    """Let one way crawl all pages. Raises `BadRun`."""
    chance = random.Random(seed)
    proxies = [Microsocks() for _ in range(PROXIES)]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, running(*proxies):
        listed = _listed(folder, proxies)
        async with (
            banning(sites=SITES, pages=pages // SITES, limit=LIMIT, delay_s=DELAY_S) as server,
            AsyncExitStack() as stack,
        ):
            starts = [server.url(site=site) for site in range(SITES)]
            crawl = Crawl(way, starts, str(listed), CONCURRENCY, CONNECT_MAX_S)
            with undivided():
                process = await _started(crawl, folder)
                stack.push_async_callback(_killed, process)
            troubling = asyncio.create_task(_trouble(server, proxies, chance, pages))
            try:
                code = await _ended(process)
            finally:
                await _killed(process)
                troubling.cancel()
                for proxy in proxies[:STILL]:
                    _send(proxy, signal.SIGCONT)
            if code:
                raise BadRun(f"the crawl of {way} ended with {code}")
            return _figures(server, {proxy.exit for proxy in proxies[: STILL + BANNED]}, pages)


def _listed(folder: str, proxies: Sequence[Microsocks]) -> Path:
    file = Path(folder, "proxies.txt")
    file.write_text("".join(f"{proxy.url}\n" for proxy in proxies))
    return file


async def _started(crawl: Crawl, folder: str) -> asyncio.subprocess.Process:
    command = [sys.executable, str(ROOT / "bench" / "goodput_crawl.py"), json.dumps(asdict(crawl))]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    os.sched_setaffinity(process.pid, {os.cpu_count() - 1 if os.cpu_count() else 0})
    return process


async def _killed(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Return its code, 0 when its time was over."""
    try:
        async with asyncio.timeout(CRAWL_MAX_S):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 0


async def _trouble(server: Banning, proxies: Sequence[Microsocks], chance: random.Random, pages: int) -> None:
    """One proxy after the other is lost between a tenth and four tenths of the pages."""
    losses = [(proxy, place < STILL) for place, proxy in enumerate(proxies[: STILL + BANNED])]
    chance.shuffle(losses)
    for place, (proxy, stands_still) in enumerate(losses):
        await server.until(round(pages * (0.1 + 0.3 * place / len(losses))))
        if stands_still:
            _send(proxy, signal.SIGSTOP)
        for site in range(0 if stands_still else SITES):
            server.ban(proxy.exit, BanResponse.FORBIDDEN, site=site)


def _send(proxy: Microsocks, number: signal.Signals) -> None:
    if proxy.process is not None:
        proxy.process.send_signal(number)


def _figures(server: Banning, lost: set[str], pages: int) -> Figures:
    """Return what the sites have seen. A 404 counts neither as a page nor as a failure."""
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
    """Return the requests a second of a pair of site and surviving proxy: in the first part, or after the last loss."""
    times = [hit.at for hit in server.hits if hit.good]
    first, last = (0, round(pages * part)) if part < 0.5 else (round(pages * part), round(pages * 0.9))
    begin, end = times[min(first, len(times) - 1)] if first else began, times[min(last, len(times) - 1)]
    seen = Counter((hit.site, hit.ip) for hit in server.hits if begin <= hit.at < end and hit.ip not in lost)
    return seen.total() / max(end - begin, 0.001) / (SITES * (PROXIES - len(lost)))


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the medians of every way."""
    columns = ("pages/s", "s", "requests", "answered", "missing pages", "rate of surviving proxies, relative to before")
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for way, runs in found.items():
        goodput, took_s, requests, success, lost, rise = (
            median(run[name] for run in runs) for name in ("goodput", "took_s", "requests", "success", "lost", "rise")
        )
        figures = f"{goodput:.1f} | {took_s:.0f} | {requests:,.0f} | {success:.1%} | {lost:,.0f} | {rise:.2f}"
        lines.append(f"| {WAYS[way]} | {figures} |")
    return "\n".join(lines)


def verdicts(found: Mapping[str, Sequence[Figures]]) -> list[report.Verdict]:
    """Return the floors that the results can be compared with."""
    ours = found.get("lycosa")
    if not ours:
        return []
    lost, rise = max(run["lost"] for run in ours), median(run["rise"] for run in ours)
    checks = [
        report.Verdict(lost == 0, f"{lost:,} pages are missing (0)"),
        report.Verdict(rise <= RISE_MAX, f"{rise:.2f} times the earlier rate of survivors (at most {RISE_MAX})"),
    ]
    for way in ("in-turn", "back-off"):
        if theirs := found.get(way):
            ratio = median(run["goodput"] for run in ours) / median(run["goodput"] for run in theirs)
            line = f"{ratio:.1f} times the pages/s of {WAYS[way]} (at least {BETTER_MIN:.0f})"
            checks.append(report.Verdict(ratio >= BETTER_MIN, line))
    return checks


if __name__ == "__main__":
    sys.exit(in_order(main))
