"""Open the torrent site, which searches the torrents of a record store through their index."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

from starlette.applications import Starlette

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.index_places import IndexPlace, local_folder
from lycosa.app.torrent_admin import IndexProcess, StoredNameRules
from lycosa.app.torrent_search import open_when_available
from lycosa.core.errors import StateError
from lycosa.infra.clock import Clock
from lycosa.infra.web.site_processes import SiteProcesses, warm_up
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.site.torrents.admin.parts import AdminOptions, AdminParts
from lycosa.search.site.torrents.admin.passwords import check_name, hash_password
from lycosa.search.site.torrents.admin.site_store import SiteStore
from lycosa.search.site.torrents.app import build_torrent_site
from lycosa.search.speller import Speller
from lycosa.search.torrents import TorrentSearch
from lycosa.search.word_list import WordList
from lycosa.storage.ports import RecordStore

SITE_FILE = "site.sqlite"
DAY_S = 86_400
WARMING = ("/search?q=a", "/search?type=video&sort=size", "/", "/browse")
"""Requests answered before those of visitors: all of them in a child process, only the first in the main process."""
FORGOTTEN_EVERY_S = 3600.0
"""Seconds between two deletions of old takedown requests."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_torrent_site(
    location: RecordsLocation,
    place: IndexPlace,
    title: str,
    *,
    base: str = "",
    hide_at_once: bool = False,
    over_http: bool = False,
    keep_requests_days: int,
    processes: int = 1,
) -> AsyncIterator[object]:
    """Open the site, as an ASGI application. Raises `UsageError` if there are no torrents or no index.

    Takedown requests are deleted `keep_requests_days` after their decision. If `processes` is more than 1, that many
    child processes answer most requests.
    """
    async with AsyncExitStack() as stack:
        search, store, site = await _open_parts(stack, location, place)
        forgetting = asyncio.create_task(_forget_requests(site, keep_requests_days * DAY_S))
        stack.push_async_callback(asyncio.wait, [forgetting])
        stack.callback(forgetting.cancel)
        rebuild = IndexProcess(location, place)
        stack.push_async_callback(rebuild.close)
        rules = StoredNameRules(store, Path(location.state) if location.state else None, rebuild.update)
        stack.push_async_callback(rules.close)
        await rebuild.resume()
        await rules.resume()
        admin = AdminParts(site, store, AdminOptions(hide_at_once, over_http), rules, rebuild)
        children = None
        if processes > 1:
            children = SiteProcesses(partial(open_child_site, location, place, title, base), processes)
            stack.push_async_callback(children.close)
        app = build_torrent_site(search, title=title, base=base, admin=admin, processes=children)
        await warm_up(app, [base + WARMING[0]])  # the others count all torrents: too slow for a start
        if children:
            children.start()
        yield app


@asynccontextmanager
async def open_child_site(
    location: RecordsLocation, place: IndexPlace, title: str, base: str
) -> AsyncIterator[Starlette]:
    """Open the site in a child process. The parent limits the clients, runs long tasks and deletes old requests."""
    async with AsyncExitStack() as stack:
        search, store, site = await _open_parts(stack, location, place)
        app = build_torrent_site(search, title=title, base=base, admin=AdminParts(site, store), in_child=True)
        await warm_up(app, [base + path for path in WARMING])
        yield app


async def _open_parts(
    stack: AsyncExitStack, location: RecordsLocation, place: IndexPlace
) -> tuple[TorrentSearch, RecordStore, SiteStore]:
    """Open the store, the index and the database of the site. The stack closes them."""
    folder = local_folder(place, location.state)
    if isinstance(place, SphinxAddress):
        folder.mkdir(parents=True, exist_ok=True)
    store = await stack.enter_async_context(open_records(location))
    index = stack.enter_context(closing(await open_when_available(place)))
    site = stack.enter_context(closing(open_site_store(folder)))
    return TorrentSearch(index, store, Clock().now, Speller(WordList(folder))), store, site


async def _forget_requests(site: SiteStore, kept_s: float) -> None:
    while True:
        try:
            await asyncio.to_thread(site.forget_decided, time.time() - kept_s)
        except StateError as error:
            log.warning("old takedown requests were not deleted: %s", error)
        await asyncio.sleep(FORGOTTEN_EVERY_S)


def open_site_store(folder: Path) -> SiteStore:
    """Open the database of the site, next to the index folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return SiteStore(folder.parent / SITE_FILE)


def set_admin_password(folder: Path, name: str, ask_password: Callable[[], str]) -> None:
    """Add an administrator, or change a password. `folder` is the folder of the site's index.

    Raises `UsageError`.
    """
    if not (folder.parent / SITE_FILE).exists():  # do not create it for a name that is refused
        check_name(name)
    with closing(open_site_store(folder)) as site:
        if name not in site.users():
            check_name(name)
        site.set_password(name, hash_password(ask_password()))
