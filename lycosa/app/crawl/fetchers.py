"""The fetchers of one spider: libcurl, and what is wrapped around it."""

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
    """Fetches pages; fetches robots.txt; and the fetcher through the proxy pool, if there is one."""

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
    """Build the fetchers of a spider, from the wire outwards; the stack closes them."""
    crawler, pooled = spec.target.crawler, None

    # One HTTP transfer, by libcurl.
    curl = CurlFetcher(fetch_settings_of(spec.settings))
    stack.push_async_callback(curl.close)
    # Fails at once for a host without an address, unless a proxy resolves it.
    fetcher: Fetcher = ResolvedHostFetcher(curl, addresses)
    # Reports when each transfer starts, if the delays of hosts are counted elsewhere: StartReportingFetcher to a shared
    # frontier (`app.crawl.frontier`), OwnerReportingFetcher to the process that owns the crawl
    # (`app.crawl.worker_main`).
    fetcher = report_starts(fetcher)
    # Leases a proxy of the pool for each transfer, and reports the outcome.
    if leaser is not None:
        sessions = SessionProxies(store)
        fetcher = pooled = PooledFetcher(fetcher, leaser, sessions, crawler.stats, clock)
    # Sends headers_received and bytes_received; for pages only, as the spider does not request robots.txt.
    pages = SignallingFetcher(fetcher, crawler.signals, crawler.stats, spec.spider)

    return Fetchers(pages, fetcher, pooled)
