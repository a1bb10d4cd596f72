"""Reads the sources of proxies, and keeps a pool up to date with them.

    refresher = Refresher(pool, sources, fetcher)
    for report in await refresher.refresh(): ...        # all of them once
    await refresher.run()                               # each in its time, until cancelled

A source that fails takes nothing away, is asked again after growing pauses, and holds up no other. What is logged and
reported has its name, never its address.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from itertools import islice
from pathlib import Path
from typing import Any

from lycosa.core.addresses import is_public
from lycosa.core.errors import BadProxy, FetchError, StateError
from lycosa.core.url import redirect_target
from lycosa.http.core.origin import origin_of
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.infra import clock
from lycosa.infra.own_thread import OwnThread
from lycosa.proxies.core.checks.agenda import Agenda
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.sources.ledger import Ledger
from lycosa.proxies.core.sources.lists import LIST_MAX
from lycosa.proxies.core.sources.sources import (
    PROXIES_MAX,
    SOURCE,
    ProxySource,
    ReadResult,
    RefreshResult,
    SourceAddress,
    SourceKind,
    merge_results,
    read_answer,
    read_entries,
    read_template,
    source_addresses,
)
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

READ_MAX_S = 120.0
"""How long one source may take, with all its requests."""

FETCH_MAX_S = 60.0
AT_ONCE_MAX = 8
"""Sources that are read at a time."""

REDIRECTS_MAX = 5
RETRY_S, RETRY_MAX_S = 30.0, 3600.0
"""The pause after a source failed for the first time, and the longest."""

IDLE_MIN_S, IDLE_MAX_S = 0.01, 60.0
ERROR_MAX = 200
"""Characters of what somebody else's code says when it fails."""

LOGINS = re.compile(r"//[^\s/@]*@")
SECRETS = re.compile(r"(?<=\?)[^\s'\")]+")
"""What may be a secret in it: clients of HTTP say which address failed, with its query."""


class Reader:
    """Reads sources. Relative paths begin at `folder`; `read_max_s` is how long one source may take."""

    def __init__(self, fetcher: Fetcher, folder: Path, read_max_s: float = READ_MAX_S) -> None:
        self._fetcher = fetcher
        self._folder = folder
        self._read_max_s = read_max_s
        self._threads: dict[str, OwnThread] = {}

    async def read(self, source: ProxySource) -> tuple[ReadResult, str]:
        """Return what a source has, and what is wrong with a part of it. Raises `BadProxy` when it has nothing."""
        thread = self._threads.setdefault(source.name, OwnThread(f"proxies of {source.name}"))
        try:
            async with asyncio.timeout(self._read_max_s):
                if thread.is_busy:
                    raise BadProxy("is still at it since the last time")
                if source.kind in {SourceKind.URL, SourceKind.API}:
                    reading, problem = await self._fetched(source, thread)
                else:
                    call = {SourceKind.FILE: self._from_file, SourceKind.PYTHON: _from_python}.get(
                        source.kind, read_template
                    )
                    reading, problem = await thread.call(partial(call, source)), ""
        except TimeoutError:
            raise BadProxy(f"took more than {self._read_max_s:g} s") from None
        if not reading.proxies:
            first = f" ({reading.faults[0]})" if reading.faults else ""
            raise BadProxy(problem or f"holds no proxy{first}")
        return reading, problem

    async def _fetched(self, source: ProxySource, thread: OwnThread) -> tuple[ReadResult, str]:
        """Read all source_addresses; one that fails leaves the others."""
        readings, problems = [], []
        for place in source_addresses(source):
            try:
                text = await self._body(source, place)
                readings.append(await thread.call(partial(read_answer, source, text, place)))  # a long list takes long
            except (FetchError, BadProxy) as error:
                named = " ".join(place.tags.values())
                problems.append(f"{named}: {error}" if named else str(error))
        return merge_results(readings), problems[0] if problems else ""

    async def _body(self, source: ProxySource, place: SourceAddress) -> str:
        """Fetch a list, wherever redirects lead; its fields go to no other site, and not to ours from a public one."""
        url, public_only = place.location, False
        for _ in range(REDIRECTS_MAX + 1):
            is_home = origin_of(url) == origin_of(place.location)
            headers: Mapping[str, str] = source.headers if is_home else {}
            request = Request(url, headers=headers, timeout=FETCH_MAX_S)
            response = await self._fetcher.fetch(request, max_body=LIST_MAX, public_only=public_only, proxy="")
            location = response.headers.get("location")
            if response.status == 200:
                return response.body.decode("utf-8", "replace")
            target = (
                redirect_target(url, location) if response.status in {301, 302, 303, 307, 308} and location else None
            )
            if target is None:
                raise BadProxy(f"answered {response.status}")
            public_only = public_only or is_public(response.ip)
            url = target
        raise BadProxy(f"more than {REDIRECTS_MAX} redirects")

    def _from_file(self, source: ProxySource) -> ReadResult:
        path = self._folder / source.location
        try:
            if not path.is_file():
                raise BadProxy("is not there" if not path.exists() else "is not a file")
            with path.open("rb") as file:
                text = file.read(LIST_MAX + 1).decode("utf-8", "replace")
        except OSError as error:
            raise BadProxy(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
        return read_answer(source, text, SourceAddress(source.location, {}))


class Refresher:
    """Keeps a pool up to date. `heard` is told each report; `now` in unix seconds, `draw` from 0 to 1.

    `checks_first`: somebody checks the pool, so that proxies which it had forgotten come back when they work. Those
    of an earlier run nobody knows any more: so whatever is new in the first list of a source, for a pool that has
    proxies already, is checked first, too.
    """

    def __init__(
        self,
        pool: ProxyPool,
        sources: Sequence[ProxySource],
        fetcher: Fetcher,
        *,
        folder: Path = Path(),
        heard: Callable[[RefreshResult], None] = lambda _: None,
        now: Callable[[], float] | None = None,
        draw: Callable[[], float] = clock.chance,
        checks_first: bool = False,
        retry_s: float = RETRY_S,
        read_max_s: float = READ_MAX_S,
    ) -> None:
        self._pool = pool
        self._sources = {source.name: source for source in sources}
        self._reader = Reader(fetcher, folder, read_max_s)
        self._heard = heard
        self._now = now or clock.Clock().now
        self._draw = draw
        self._ledger = Ledger(self._sources)
        self._agenda = Agenda(retry_s, RETRY_MAX_S)
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._recalling = asyncio.Lock()
        self._recalled = self._had_proxies = False
        self._listed: set[str] = set()
        self._checks_first = checks_first

    def forgotten(self, keys: Iterable[str]) -> None:
        """The pool has forgotten these, as they were dead: what is listed on comes back, and is checked first."""
        self._ledger.forgotten(keys)

    async def refresh(self) -> list[RefreshResult]:
        """Read all sources once. Return their reports, in their order. Raises `StateError` of the pool."""
        await self._recall()
        return await asyncio.gather(*map(self._refreshed, self._sources.values()))

    async def run(self) -> None:
        """Go on until cancelled; a pool that cannot be reached is waited for like a source."""
        for name in self._sources:
            self._agenda.add(name, self._now())
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                for name in self._agenda.due(self._now(), len(self._sources)):
                    under_way.add(asyncio.create_task(self._turn(self._sources[name])))
                at = self._agenda.next_at()
                wait_s = IDLE_MAX_S if at is None else max(IDLE_MIN_S, min(IDLE_MAX_S, at - self._now()))
                if not under_way:
                    await asyncio.sleep(wait_s)
                    continue
                done, under_way = await asyncio.wait(under_way, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            for each in under_way:
                each.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _turn(self, source: ProxySource) -> None:
        """Refresh one, and set its next turn."""
        try:
            await self._recall()
            report = await self._refreshed(source)
        except StateError as error:
            report = RefreshResult(source.name, problem=str(error))
        well, failed_before = not report.problem, self._agenda.failures(source.name) > 0
        if well is failed_before:
            log.warning("source %s: %s", source.name, report.problem or "is there again")
        self._agenda.done(source.name, self._now(), self._draw(), source.every_s, well=well)
        self._heard(report)

    async def _refreshed(self, source: ProxySource) -> RefreshResult:
        async with self._at_once:
            try:
                reading, problem = await self._reader.read(source)
            except BadProxy as error:
                return RefreshResult(source.name, removed=await self._sweep(source), problem=str(error))
        changed = self._ledger.heard(source.name, reading.proxies, self._now(), whole=not problem)
        added = await self._tell(source.name, changed)
        if not problem:
            self._listed.add(source.name)
        removed = await self._sweep(source)
        listed = len(reading.proxies)
        return RefreshResult(source.name, listed, added, removed, reading.faults, reading.fault_count, problem)

    async def _tell(self, name: str, changed: Sequence[Proxy]) -> int:
        """Tell the pool, and return how many are new there. Those that it had, dead, are checked first, if any is."""
        may_be_back = self._had_proxies and name not in self._listed
        back = [each for each in changed if may_be_back or self._ledger.was_forgotten(name, each.key)]
        known = {each.key for each in back}
        others = [each for each in changed if each.key not in known]
        try:
            added = await self._pool.add(others) if others else 0
            added += await self._pool.add(back, unchecked=self._checks_first) if back else 0
        except StateError:
            self._ledger.untold(name, changed)
            raise
        self._ledger.returned(back)
        return added

    async def _sweep(self, source: ProxySource) -> int:
        """Remove those whose time is over, but what somebody has added by hand since. Return how many they were."""
        keys, others = self._ledger.gone(source.name, source.keep_s, self._now())
        try:
            if others:
                await self._pool.add(others)
            if not keys:
                return 0
            tagged = {view.proxy.key for view in await self._pool.proxies() if SOURCE in view.proxy.tags}
            return await self._pool.remove([key for key in keys if key in tagged])
        except StateError:
            self._ledger.recall(source.name, keys)
            raise

    async def _recall(self) -> None:
        """Learn, once, which proxies of the pool came from these sources in an earlier run."""
        async with self._recalling:  # once: what another source has added since is of this run
            if self._recalled:
                return
            views = await self._pool.proxies()
            for view in views:
                name = view.proxy.tags.get(SOURCE, "")
                if name in self._sources:
                    self._ledger.recall(name, [view.proxy.key])
            self._recalled, self._had_proxies = True, bool(views)


def _from_python(source: ProxySource) -> ReadResult:
    """Call a function of somebody else's, which may return any kind of iterator."""
    module, _, name = source.location.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
        if isawaitable(found) or hasattr(found, "__aiter__"):
            found = asyncio.run(_collected(found))
        return read_entries(source, _iterated(found))
    except BadProxy:
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  whatever somebody's code raises
        told = SECRETS.sub("…", LOGINS.sub("//", " ".join(str(error).split())))[:ERROR_MAX]
        raise BadProxy(f"{source.location} failed: {type(error).__name__}: {told}") from None


def _iterated(found: Any) -> Iterable[object]:
    if isinstance(found, str | bytes) or not hasattr(found, "__iter__"):
        raise BadProxy(f"returned a {type(found).__name__}: return an iterator of addresses")
    return found  # type: ignore[no-any-return]


async def _collected(found: Any) -> list[object]:
    if isawaitable(found):
        found = await found
    if not isinstance(found, AsyncIterator):
        return list(islice(_iterated(found), PROXIES_MAX))
    entries: list[object] = []
    async for entry in found:
        entries.append(entry)
        if len(entries) >= PROXIES_MAX:
            break
    return entries
