"""The fetchers of a spider: libcurl, and the wrappers around it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from lycosa.app.crawl.parts import fetch_settings_of
from lycosa.app.crawl.spec import SpiderSpec
from lycosa.crawl.fetching.addresses import HostLookup, ResolvedHostFetcher
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.proxying.pooled_fetcher import PooledFetcher
from lycosa.crawl.fetching.proxying.sessions import SessionProxies
from lycosa.crawl.fetching.signalling import SignallingFetcher
from lycosa.http.curl.fetcher import CurlFetcher
from lycosa.http.ports import Fetcher
from lycosa.infra.clock import Clock
from lycosa.storage.ports import KeyStore


class Fetchers(NamedTuple):
    """The fetchers of pages, of robots.txt, and through the proxy pool (None without a pool)."""

    pages: Fetcher
    robots: Fetcher
    pooled: PooledFetcher | None


def make_fetchers(
    stack: AsyncExitStack,
    spec: SpiderSpec,
    addresses: HostLookup,
    report_starts: Callable[[Fetcher], Fetcher],
    leaser: ProxyLeaser | None,
    store: KeyStore,
    clock: Clock,
) -> Fetchers:
    """Build the fetchers from libcurl outwards. The stack closes them."""
    crawler, pooled = spec.target.crawler, None

    curl = CurlFetcher(fetch_settings_of(spec.settings))
    stack.push_async_callback(curl.close)
    # Fails at once for a host without an address, unless a proxy resolves hosts.
    fetcher: Fetcher = ResolvedHostFetcher(curl, addresses)
    # Reports the start of each transfer to the shared frontier or the owner process, which enforce the delays of hosts.
    fetcher = report_starts(fetcher)
    # Leases a proxy from the pool for each transfer, and reports the outcome.
    if leaser is not None:
        sessions = SessionProxies(store)
        fetcher = pooled = PooledFetcher(fetcher, leaser, sessions, crawler.stats, clock)
    # Sends headers_received and bytes_received. Only for pages: robots.txt is not requested by the spider.
    pages = SignallingFetcher(fetcher, crawler.signals, crawler.stats, spec.spider)

    return Fetchers(pages, fetcher, pooled)
