"""The parts of the commands `index` and `site` for torrents."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from lycosa.cli.dht.options import report
from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count, format_duration

REPORT_S = 10.0
"""Seconds between two progress lines of an indexer that follows a store."""

BASE_PATH = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._~-]+)*")


class IndexOptions(NamedTuple):
    """Options of an index. None means the value of the existing index, or the default of a new one."""

    index_dir: str | None
    engine: str | None
    analysis: tuple[str, ...] | None


def index_torrents(location: Any, options: IndexOptions, *, follow: bool, rebuild: bool) -> int:
    """Index the torrents of a store, once or until a signal."""
    from lycosa.app.torrent_search import torrent_index_place

    place = torrent_index_place(location, options.index_dir)
    return asyncio.run(_until_signal(_index(location, place, options, follow=follow, rebuild=rebuild)))


async def _until_signal(work: Any) -> int:
    from lycosa.cli.proxies.pool import stop_signal

    stopped = stop_signal()
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return int(stopped.result())
    return int(task.result())


async def _index(location: Any, place: Any, options: IndexOptions, *, follow: bool, rebuild: bool) -> int:
    from lycosa.app.dht_state import open_records
    from lycosa.app.torrent_search import index_follower, torrent_indexer

    analyzed = (options.engine, options.analysis)
    async with open_records(location) as store:
        if rebuild or not follow:
            async with torrent_indexer(store, location, place, *analyzed, rebuild=rebuild) as indexer:
                await _catch_up(indexer, place, rebuild=rebuild)
        if follow:
            async with index_follower(store, location, place, report, *analyzed) as follower:
                await _catch_up(follower, place)
                await _follow(follower, place)
    return DONE


async def _catch_up(indexer: Any, place: object, *, rebuild: bool = False) -> None:
    started = time.monotonic()
    if rebuild:
        await indexer.rebuild()
    await indexer.catch_up()
    _report(place, indexer.indexed, time.monotonic() - started)


async def _follow(follower: Any, place: object) -> None:
    """Index changes, and report, until cancelled. The follower runs in a task of its own, because a rebuild may take
    longer than the time between two reports."""
    running = asyncio.ensure_future(follower.run())
    try:
        while not running.done():
            before = follower.indexed
            await asyncio.wait([running], timeout=REPORT_S)
            if follower.indexed > before:
                _report(place, follower.indexed - before, REPORT_S)
    finally:
        running.cancel()
        await asyncio.wait([running])
    running.result()


def _report(place: object, rows: int, took_s: float) -> None:
    text = f"{format_count(rows, 'torrent')} indexed in {format_duration(took_s)}" if rows else "nothing new"
    print(f"{place}: {text}", file=sys.stderr, flush=True)


class SiteOptions(NamedTuple):
    """The options of a torrent site."""

    index_dir: str | None
    title: str
    base: str
    hide_at_once: bool
    admin_over_http: bool
    keep_requests_days: int
    processes: int


def site_path(base_path: str) -> str:
    """Return the path of the site without a slash at the end; "" for the root. Raises `UsageError`."""
    base = base_path.removesuffix("/")
    if not BASE_PATH.fullmatch(base):
        raise UsageError(f"--base-path {base_path}: write a plain path such as /torrents, without . or .. as a part")
    return base


def serve_torrents(location: Any, options: SiteOptions, listener: Any, line: str, guarded: Callable[[Any], Any]) -> int:
    """Serve a store's site until a signal. `guarded` makes it refuse requests under other host names."""
    return asyncio.run(_serve(location, options, listener, line, guarded))


async def _serve(location: Any, options: SiteOptions, listener: Any, line: str, guarded: Callable[[Any], Any]) -> int:
    from lycosa.app.torrent_search import torrent_index_place
    from lycosa.app.torrent_site import open_torrent_site
    from lycosa.cli.serving import Server

    place = torrent_index_place(location, options.index_dir)
    async with open_torrent_site(
        location,
        place,
        options.title,
        base=options.base,
        hide_at_once=options.hide_at_once,
        over_http=options.admin_over_http,
        keep_requests_days=options.keep_requests_days,
        processes=options.processes,
    ) as site:
        print(line, flush=True)
        server = Server(guarded(site))
        await server.serve(sockets=[listener])
        return INTERRUPTED if server.interrupted else DONE


def add_admin(location: Any, index_dir: str | None, name: str) -> int:
    """Add an administrator, or change a password."""
    from lycosa.app.index_places import local_folder
    from lycosa.app.torrent_search import torrent_index_place
    from lycosa.app.torrent_site import set_admin_password

    set_admin_password(local_folder(torrent_index_place(location, index_dir), location.state), name, _ask_password)
    print(f"{name} can log in at /admin", file=sys.stderr)
    return DONE


def _ask_password() -> str:
    """Ask for a password, or read it from the first line of a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
