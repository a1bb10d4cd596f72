"""Open a DHT crawl with its state folder, run it, and serve its pages."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from lycosa.app.dht_state import (
    QUEUE,
    RecordsLocation,
    check_store,
    note_size,
    note_store,
    open_hash_frontier,
    open_records,
)
from lycosa.core.errors import LycosaError, UsageError
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.crawler.core.profiles import HOME, profile_named
from lycosa.dht.crawler.crawl import TorrentCrawl
from lycosa.dht.crawler.monitor import CrawlMonitor
from lycosa.dht.crawler.page import crawl_metrics_page, crawl_pages
from lycosa.dht.peers import FetchLimits
from lycosa.dht.session import DhtSession, open_node
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import SOCKET
from lycosa.infra.clock import Clock, chance
from lycosa.infra.file_locks import shared_lock
from lycosa.infra.open_files import raise_open_files_limit
from lycosa.infra.web.metrics_page import serve_metrics
from lycosa.infra.web.small_site import serve_pages
from lycosa.storage.core.torrent_record import StoredTorrent, TorrentRecord
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.rules.installed import InstalledRules

PAGE_OPTION = "--page"
_log = logging.getLogger(__name__)


class DhtCrawl:
    """An open crawl. The functions in `beside` run while the crawl runs."""

    def __init__(self, crawl: TorrentCrawl, monitor: CrawlMonitor, store: RecordStore) -> None:
        self.crawl, self.monitor, self.store = crawl, monitor, store
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []

    async def run(self, max_torrents: int | None = None) -> None:
        """Crawl until cancelled, or until about `max_torrents` new torrents are stored: fetches in progress may add a
        few.

        Raises `LycosaError`.
        """
        reached = asyncio.Event()

        async def check(_records: Sequence[TorrentRecord]) -> None:
            if max_torrents is not None and self.crawl.funnel.total(CrawlOutcome.STORED) >= max_torrents:
                reached.set()

        self.crawl.stored_listeners.append(check)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each()) for each in (self.crawl.run, self.monitor.run, *self.beside)]
                await reached.wait()
                for task in running:
                    task.cancel()
        except* LycosaError as errors:
            raise _first(errors) from None


def _first(errors: BaseExceptionGroup[LycosaError]) -> LycosaError:
    """Return the first error, which ended the crawl and caused the others."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, LycosaError)
    return first


OTHER_FILES = 256
"""Number of files that a crawl may open besides its connections to peers."""


def node_settings(profile_name: str) -> dict[str, Any]:
    """Return the arguments of `open_node` for a crawl with this profile. Raises `UsageError`."""
    profile = profile_named(profile_name)
    files = raise_open_files_limit(profile.connections_max + OTHER_FILES)
    connections_max = max(1, min(profile.connections_max, files - OTHER_FILES))
    return {
        "limits": NodeLimits(
            bytes_per_s=profile.bytes_per_s,
            new_addresses_per_minute=profile.new_addresses,
            connections_per_minute=profile.connections,
        ),
        "fetch_limits": FetchLimits(connections_max=connections_max),
        "report_infohashes": True,
    }


@asynccontextmanager
async def open_torrent_crawl(
    session: DhtSession,
    folder: Path,
    profile: str,
    store_url: str | None = None,
    rules: Sequence[Path] = (),
    *,
    max_bytes: int | None = None,
    say: Callable[[str], None] = _log.warning,
) -> AsyncIterator[DhtCrawl]:
    """Open the crawl of a state folder, which the node has locked. Raises `UsageError`, `StateError`.

    The node must have been opened with the `node_settings` of the profile. `store_url` is the URL of a database server.
    `rules` are rule files, in addition to those of the folder. While the store is down or full, the crawl waits and
    calls `say` with a message.
    """
    async with AsyncExitStack() as stack:
        clock = Clock()
        stack.enter_context(shared_lock(folder))  # shows `scan_installed` that a crawl is running
        current_rules = InstalledRules(folder, rules, clock.now).current
        location = RecordsLocation(str(folder), store_url)
        records = open_records(location, create=True, max_bytes=max_bytes, outage_wait=OutageWait(say))
        # Open the store first: if the database server does not answer, this fails before the queue creates its folder.
        store = await stack.enter_async_context(records)
        frontier = await stack.enter_async_context(open_hash_frontier(folder, clock.now()))
        await note_store(folder, store_url, store, frontier, say)
        if max_bytes is not None:
            await note_size(store, max_bytes, say)
        crawl = TorrentCrawl(session, frontier, store, current_rules, clock.now, chance, profile_named(profile))
        operations = LocalOperations(frontier, crawl.commit)
        await stack.enter_async_context(serve(folder / QUEUE / SOCKET, operations))
        yield DhtCrawl(crawl, CrawlMonitor(crawl, session, folder), store)


@asynccontextmanager
async def serve_crawl(
    opened: DhtCrawl, name: str, *, metrics: str | None, page: str | None, allow_remote: bool
) -> AsyncIterator[list[str]]:
    """Serve the metrics and the page of a crawl, each at `[ADDRESS:]PORT`, or not at all if None.

    Yield one line of text per URL.
    """
    async with AsyncExitStack() as stack:
        lines = []
        if metrics is not None:
            serving = serve_metrics(metrics, crawl_metrics_page(opened.monitor), allow_remote=allow_remote)
            lines.append(f"metrics: {await stack.enter_async_context(serving)}")
        if page is not None:
            pages = crawl_pages(opened.monitor, name)
            serving = serve_pages(page, pages, "/", option=PAGE_OPTION, allow_remote=allow_remote)
            lines.append(f"page: {await stack.enter_async_context(serving)}")
        yield lines


async def crawl(
    bind: Sequence[str] = ("127.0.0.1:6881",),
    *,
    bootstrap: Sequence[str] = (),
    state: str | Path | None = None,
    store: str | None = None,
    max_bytes: int | None = None,
    read_only: bool = False,
    allow_private: Sequence[str] = (),
    profile: str = HOME.name,
    rules: Sequence[str | Path] = (),
    max_torrents: int | None = None,
) -> AsyncGenerator[StoredTorrent]:
    """Crawl the DHT, and yield each torrent that is new in the store.

    state         folder of the crawl, which the next run resumes; without it, nothing is kept at the end
    store         URL of a database server for the torrents: postgresql://HOST/DATABASE or mysql://HOST/DATABASE
    profile       "home", for a connection through a home router, or "server"
    rules         rule files (docs/torrent-rules.md)
    max_bytes     maximum size of torrents.sqlite with its log; above it, torrents with the fewest seeders are removed
    max_torrents  end after this many new torrents; without it, the crawl runs until the generator is closed

    The other arguments are those of `open_node`. The crawl pauses while your loop processes a torrent. A torrent is
    durable before it is yielded, so it is not yielded again after a crash. To stop the crawl, close the generator:
    leaving the loop does not stop it. Write `async with contextlib.aclosing(dht.crawl(...)) as torrents`.

    Raises `LycosaError`.
    """
    check_store(store, max_bytes)
    if max_torrents is not None and max_torrents < 1:
        raise UsageError(f"max_torrents={max_torrents}: write 1 or more, or None for no limit")
    deliveries = _Deliveries()

    async def run(folder: Path) -> None:
        opening = open_node(
            bind,
            bootstrap=bootstrap,
            state=folder,
            read_only=read_only,
            allow_private=allow_private,
            **node_settings(profile),
        )
        files = [*map(Path, rules)]
        async with opening as session:
            if session.is_isolated:
                raise UsageError("no known node through which to join the network: give bootstrap=['HOST:PORT']")
            async with open_torrent_crawl(session, folder, profile, store, files, max_bytes=max_bytes) as opened:
                if not await session.joined():
                    raise LycosaError(
                        "no node answered: check bootstrap and bind, and that the firewall lets UDP through"
                    )
                opened.crawl.stored_listeners.append(partial(deliveries.send, opened.store))
                await opened.run(max_torrents)

    with tempfile.TemporaryDirectory(prefix="lycosa-dht-") if state is None else nullcontext(str(state)) as folder:
        task = asyncio.create_task(run(Path(folder)))
        task.add_done_callback(lambda _: deliveries.close())
        try:
            while (torrent := await deliveries.receive()) is not None:
                yield torrent
            await task
        finally:
            deliveries.close()
            task.cancel()
            await asyncio.wait([task])


class _Deliveries:
    """Passes newly stored torrents to the caller of `crawl`."""

    def __init__(self) -> None:
        self._ready: deque[StoredTorrent] = deque()
        self._changed, self._taken = asyncio.Event(), asyncio.Event()
        self._is_closed = False
        self._last_id = 0

    async def send(self, store: RecordStore, records: Sequence[TorrentRecord]) -> None:
        """Pass on records that were new in the store. Wait until the caller has taken them."""
        for record in records:
            found = await store.get(record.keys[0])
            # Skip a torrent that was already passed on (ids ascend), and one that was stored before (it has an earlier
            # discovery time).
            if found is not None and found.id > self._last_id and found.record.discovered == record.discovered:
                self._ready.append(found)
                self._last_id = found.id
        self._changed.set()
        while self._ready and not self._is_closed:
            self._taken.clear()
            await self._taken.wait()

    async def receive(self) -> StoredTorrent | None:
        """Return the next torrent; None after `close`."""
        while not self._ready:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._taken.set()
        return self._ready.popleft()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._taken.set()
