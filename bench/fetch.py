"""What a transfer costs the fetcher: `python bench/fetch.py URL [--transfers N] [--concurrent N] [--only NAME]`.

URL is a small page on a keep-alive server, which should run on another core. Prints how many microseconds of CPU time
(of this process only) and of wall time a transfer takes, in the best of three rounds, for

    bare      libcurl's multi interface in a plain loop: one write callback, no headers kept, no future, no event loop
    fetcher   CurlFetcher as a crawl uses it: it asks `accept`, keeps headers, timings and address, and makes a future
              for each transfer
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import repeat

import pycurl
import uvloop

from lycosa.core.headers import Headers
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings

ROUNDS = 3


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url")
    options.add_argument("--transfers", type=int, default=10_000)
    options.add_argument("--concurrent", type=int, default=64)
    options.add_argument("--only", choices=CONTENDERS)
    chosen = options.parse_args()
    print(
        f"{chosen.transfers} transfers, {chosen.concurrent} at a time, best of {ROUNDS} rounds, microseconds a transfer"
    )
    for name, run in CONTENDERS.items():
        if chosen.only in (None, name):
            spent = [_timed(run, chosen.url, chosen.transfers, chosen.concurrent) for _ in range(ROUNDS)]
            cpu, wall = (min(each) / chosen.transfers * 1e6 for each in zip(*spent, strict=True))
            print(f"  {name:8} CPU {cpu:6.1f}   wall {wall:6.1f}")


def _timed(run: Callable[[str, int, int], None], url: str, transfers: int, concurrent: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    run(url, transfers, concurrent)
    return time.process_time() - cpu, time.perf_counter() - wall


def bare(url: str, transfers: int, concurrent: int) -> None:
    """Drive libcurl with as little Python as possible."""
    multi = pycurl.CurlMulti()
    left = transfers - concurrent
    curls = [_bare_handle(url) for _ in range(concurrent)]
    for curl in curls:
        multi.add_handle(curl)
    running = concurrent
    while running:
        _, running = multi.perform()
        _, good, bad = multi.info_read()
        assert not bad, bad
        for curl in good:
            multi.remove_handle(curl)
            if left > 0:
                left -= 1
                running += 1
                multi.add_handle(curl)
        if not good:
            multi.select(1.0)
    multi.close()


def _bare_handle(url: str) -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.WRITEFUNCTION, len)
    curl.setopt(pycurl.NOSIGNAL, 1)
    return curl


def fetcher(url: str, transfers: int, concurrent: int) -> None:
    """Drive our fetcher as the engine does."""
    uvloop.run(_fetch_all(repeat(Request(url), transfers), concurrent))


async def _fetch_all(requests: Iterator[Request], concurrent: int) -> None:
    one = CurlFetcher(FetchSettings())
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrent):
            group.create_task(_worker(one, requests))
    await one.close()


async def _worker(one: CurlFetcher, requests: Iterator[Request]) -> None:
    for request in requests:
        response = await one.fetch(request, accept=_html)
        assert response.status == 200, response
        assert response.body, response


def _html(status: int, headers: Headers) -> bool:
    return status == 200 and headers.get("content-type").startswith("text/html")


CONTENDERS: dict[str, Callable[[str, int, int], None]] = {"bare": bare, "fetcher": fetcher}

if __name__ == "__main__":
    main()
