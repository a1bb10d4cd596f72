"""The fetchers of one spider: libcurl, and what is wrapped around it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from lycosa.app.crawl.parts import fetch_settings_of
from lycosa.app.crawl.spec import Member
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
    """What fetches pages, what fetches robots.txt, and the one of them that goes through the proxy pool, if any."""

    pages: Fetcher
    robots: Fetcher
    pooled: PooledFetcher | None


def fetchers_of(
    stack: AsyncExitStack,
    member: Member,
    addresses: HostLookup,
    report_starts: Callable[[Fetcher], Fetcher],
    leaser: ProxyLeaser | None,
    store: KeyStore,
    clock: Clock,
) -> Fetchers:
    """Build the fetchers of a spider, from the wire outwards; the stack closes them."""
    crawler, pooled = member.target.crawler, None

    # One HTTP transfer, by libcurl.
    curl = CurlFetcher(fetch_settings_of(member.settings))
    stack.push_async_callback(curl.close)
    # Fails at once for a host that has no address, unless a proxy resolves it.
    fetcher: Fetcher = ResolvedHostFetcher(curl, addresses)
    # Reports when each request starts, where somebody else counts the delays of hosts: StartReportingFetcher, to a
    # shared frontier (`app.crawl.frontier`), or OwnerReportingFetcher, to the process that owns the crawl
    # (`app.crawl.worker_main`).
    fetcher = report_starts(fetcher)
    # Leases a proxy of the pool for each transfer, and reports what came of it.
    if leaser is not None:
        sessions = SessionProxies(store)
        fetcher = pooled = PooledFetcher(fetcher, leaser, sessions, crawler.stats, clock)
    # Sends headers_received and bytes_received. For pages only: robots.txt is not the spider's.
    pages = SignallingFetcher(fetcher, crawler.signals, crawler.stats, member.spider)

    return Fetchers(pages, fetcher, pooled)
