"""Reads lists of proxies from their sources, and updates a pool from them.

    refresher = Refresher(pool, sources, fetcher)
    for result in await refresher.refresh(): ...        # all sources once
    await refresher.run()                               # each source at its interval, until cancelled

If a source fails, the proxies of its last list stay in the pool, and it is retried after growing pauses. Up to
CONCURRENCY sources are read at the same time. Logs and results never show the address of a source, which may be secret.
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
from lycosa.proxies.core.checks.schedule import Schedule
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
"""Timeout for one read of a source: its file, its function, or all its requests together."""

FETCH_MAX_S = 60.0
CONCURRENCY = 8

REDIRECTS_MAX = 5
RETRY_S, RETRY_MAX_S = 30.0, 3600.0
"""Maximum pause, in seconds, after the first failure of a source, and after any number of failures in a row."""

IDLE_MIN_S, IDLE_MAX_S = 0.01, 60.0
ERROR_MAX = 200

LOGINS = re.compile(r"//[^\s/@]*@")
QUERIES = re.compile(r"(?<=\?)[^\s'\")]+")
"""Parts of URLs that may be secret: errors of HTTP clients contain whole URLs."""


class Reader:
    """Reads sources. Paths are relative to `folder`."""

    def __init__(self, fetcher: Fetcher, folder: Path, read_max_s: float = READ_MAX_S) -> None:
        self._fetcher = fetcher
        self._folder = folder
        self._read_max_s = read_max_s
        self._threads: dict[str, OwnThread] = {}

    async def read(self, source: ProxySource) -> tuple[ReadResult, str]:
        """Return the proxies of a source, and the first problem with one of its addresses, or "".

        Raises `BadProxy` if the source has no proxies.
        """
        thread = self._threads.setdefault(source.name, OwnThread(f"proxies of {source.name}"))
        readers = {SourceKind.FILE: self._read_file, SourceKind.PYTHON: _call_python}
        try:
            async with asyncio.timeout(self._read_max_s):
                if thread.is_busy:  # user code may hang, and a thread cannot be cancelled
                    raise BadProxy("the previous read has not ended yet")
                if source.kind in {SourceKind.URL, SourceKind.API}:
                    result, problem = await self._fetch(source, thread)
                else:
                    result, problem = await thread.call(partial(readers.get(source.kind, read_template), source)), ""
        except TimeoutError:
            raise BadProxy(f"took more than {self._read_max_s:g} s") from None
        if not result.proxies:
            first = f" ({result.faults[0]})" if result.faults else ""
            raise BadProxy(problem or f"has no proxies{first}")
        return result, problem

    async def _fetch(self, source: ProxySource, thread: OwnThread) -> tuple[ReadResult, str]:
        results, problems = [], []
        for address in source_addresses(source):
            try:
                text = await self._download(source, address)
                results.append(await thread.call(partial(read_answer, source, text, address)))  # lists may be long
            except (FetchError, BadProxy) as error:
                tags = " ".join(address.tags.values())
                problems.append(f"{tags}: {error}" if tags else str(error))
        return merge_results(results), problems[0] if problems else ""

    async def _download(self, source: ProxySource, address: SourceAddress) -> str:
        """Fetch a list. The headers are not sent to other origins. A public host may not redirect to a private one."""
        url, public_only = address.location, False
        for _ in range(REDIRECTS_MAX + 1):
            is_home = origin_of(url) == origin_of(address.location)
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

    def _read_file(self, source: ProxySource) -> ReadResult:
        path = self._folder / source.location
        try:
            if not path.is_file():
                raise BadProxy("does not exist" if not path.exists() else "is not a file")
            with path.open("rb") as file:
                text = file.read(LIST_MAX + 1).decode("utf-8", "replace")
        except OSError as error:
            raise BadProxy(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
        return read_answer(source, text, SourceAddress(source.location, {}))


class Refresher:
    """Updates a pool from its sources. `now` returns unix seconds, `draw` a random number (0 to 1).

    `checks_first`: whether a proxy that the pool forgot because it was dead must pass a check when a source lists it
    again. It is unknown which proxies the pool forgot in earlier runs. If the pool has proxies at the start, all new
    proxies of a source therefore count as forgotten, up to and including its first complete list.
    """

    def __init__(
        self,
        pool: ProxyPool,
        sources: Sequence[ProxySource],
        fetcher: Fetcher,
        *,
        folder: Path = Path(),
        on_refresh: Callable[[RefreshResult], None] = lambda _: None,
        now: Callable[[], float] | None = None,
        draw: Callable[[], float] = clock.chance,
        checks_first: bool = False,
        retry_s: float = RETRY_S,
        read_max_s: float = READ_MAX_S,
    ) -> None:
        self._pool = pool
        self._sources = {source.name: source for source in sources}
        self._reader = Reader(fetcher, folder, read_max_s)
        self._on_refresh = on_refresh
        self._now = now or clock.Clock().now
        self._draw = draw
        self._ledger = Ledger(self._sources)
        self._schedule = Schedule(retry_s, RETRY_MAX_S)
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._recalling = asyncio.Lock()
        self._recalled = self._had_proxies = False
        self._listed: set[str] = set()
        self._checks_first = checks_first

    def forgotten(self, keys: Iterable[str]) -> None:
        """Record that the pool forgot these dead proxies. They are added again if a source still lists them."""
        self._ledger.forgotten(keys)

    async def refresh(self) -> list[RefreshResult]:
        """Read all sources once. Return the results in order. Raises `StateError` if the pool fails."""
        await self._recall()
        return await asyncio.gather(*map(self._refresh, self._sources.values()))

    async def run(self) -> None:
        """Refresh sources at their intervals until cancelled. Retry after growing pauses if the pool is unreachable."""
        for name in self._sources:
            self._schedule.add(name, self._now())
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                for name in self._schedule.start_due(self._now(), len(self._sources)):
                    running.add(asyncio.create_task(self._run_due(self._sources[name])))
                at = self._schedule.next_at()
                wait_s = IDLE_MAX_S if at is None else max(IDLE_MIN_S, min(IDLE_MAX_S, at - self._now()))
                if not running:
                    await asyncio.sleep(wait_s)
                    continue
                done, running = await asyncio.wait(running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_due(self, source: ProxySource) -> None:
        try:
            await self._recall()
            result = await self._refresh(source)
        except StateError as error:
            result = RefreshResult(source.name, problem=str(error))
        success, failed_before = not result.problem, self._schedule.failures(source.name) > 0
        if success is failed_before:  # log changes only
            log.warning("source %s: %s", source.name, result.problem or "available again")
        self._schedule.finish(source.name, self._now(), self._draw(), source.every_s, success=success)
        self._on_refresh(result)

    async def _refresh(self, source: ProxySource) -> RefreshResult:
        async with self._slots:
            try:
                read, problem = await self._reader.read(source)
            except BadProxy as error:
                return RefreshResult(source.name, removed=await self._remove_expired(source), problem=str(error))
        changed = self._ledger.update(source.name, read.proxies, self._now(), complete=not problem)
        added = await self._add(source.name, changed)
        if not problem:
            self._listed.add(source.name)
        removed = await self._remove_expired(source)
        return RefreshResult(source.name, len(read.proxies), added, removed, read.faults, read.fault_count, problem)

    async def _add(self, name: str, changed: Sequence[Proxy]) -> int:
        """Add proxies. With `checks_first`, those that the pool may have forgotten must pass a check first.

        Return how many are new.
        """
        may_be_back = self._had_proxies and name not in self._listed
        back = [each for each in changed if may_be_back or self._ledger.was_forgotten(name, each.key)]
        back_keys = {each.key for each in back}
        others = [each for each in changed if each.key not in back_keys]
        try:
            added = await self._pool.add(others) if others else 0
            added += await self._pool.add(back, unchecked=self._checks_first) if back else 0
        except StateError:
            self._ledger.not_added(name, changed)
            raise
        self._ledger.returned(back)
        return added

    async def _remove_expired(self, source: ProxySource) -> int:
        """Remove proxies after their grace period, except those added by hand meanwhile. Return how many."""
        keys, others = self._ledger.pop_expired(source.name, source.keep_s, self._now())
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
        """Find out, once, which proxies came from these sources in an earlier run."""
        async with self._recalling:  # proxies added meanwhile would seem to be from an earlier run
            if self._recalled:
                return
            views = await self._pool.proxies()
            for view in views:
                name = view.proxy.tags.get(SOURCE, "")
                if name in self._sources:
                    self._ledger.recall(name, [view.proxy.key])
            self._recalled, self._had_proxies = True, bool(views)


def _call_python(source: ProxySource) -> ReadResult:
    """Call the user's function, which may be async. It returns an iterable or async iterator."""
    module, _, name = source.location.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
        if isawaitable(found) or hasattr(found, "__aiter__"):
            found = asyncio.run(_collect_async(found))
        return read_entries(source, _iterable(found))
    except BadProxy:
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  user code may raise anything
        text = QUERIES.sub("…", LOGINS.sub("//", " ".join(str(error).split())))[:ERROR_MAX]
        raise BadProxy(f"{source.location} failed: {type(error).__name__}: {text}") from None


def _iterable(found: Any) -> Iterable[object]:
    if isinstance(found, str | bytes) or not hasattr(found, "__iter__"):
        raise BadProxy(f"returned a {type(found).__name__}: return an iterator of addresses")
    return found  # type: ignore[no-any-return]


async def _collect_async(found: Any) -> list[object]:
    if isawaitable(found):
        found = await found
    if not isinstance(found, AsyncIterator):
        return list(islice(_iterable(found), PROXIES_MAX))
    entries: list[object] = []
    async for entry in found:
        entries.append(entry)
        if len(entries) >= PROXIES_MAX:
            break
    return entries
