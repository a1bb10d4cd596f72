"""Where the processor time of a page of results goes, for `bench/search_load.py`: each step alone, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

from running import Figures
from search_users import percentiles, search_path
from starlette.types import ASGIApp

from lycosa.search.core.request import SearchRequest
from lycosa.search.core.torrent_query import parse_torrent_query
from lycosa.search.ports import Index
from lycosa.search.site.torrents.app import build_torrent_site
from lycosa.search.site.torrents.views import torrent_view
from lycosa.search.speller import Speller
from lycosa.search.torrents import COUNTED, FILES_READ_MAX, TorrentSearch
from lycosa.storage.ports import RecordStore

STEPS = {
    "query": "read the query",
    "index": "best 20 in the index",
    "counts": "types and languages of the results",
    "spelling": "another spelling, if there are few results",
    "rows": "20 rows of the store",
    "marks": "mark the words in names and files",
    "rest": "page, compression, threads",
    "page": "together",
}
REPEATS = 3


async def budget(index: Index, store: RecordStore, speller: Speller, texts: Sequence[str]) -> dict[str, Figures]:
    """Return the CPU milliseconds of each step of a page of results."""
    search = TorrentSearch(index, store, time.time, speller)
    site = build_torrent_site(search)
    steps: dict[str, list[float]] = {step: [] for step in STEPS}
    for text in texts:
        spent: dict[str, float] = {}

        async def run(step: str, work: Callable[[], Any], spent: dict[str, float] = spent) -> Any:
            spent[step], result = await cpu_ms(work)
            return result

        parsed = await run("query", lambda text=text: parse_torrent_query(text, time.time()))
        request = SearchRequest(parsed.query, parsed.filters, limit=20)
        found = await run("index", lambda request=request: index.find(request))
        await run("counts", lambda request=request: index.count_values(request, COUNTED))
        await run("spelling", lambda text=text, found=found: speller.suggestion(text, found.total, lambda *_: False))
        ids = [match.key for match in found.page]
        rows = await run("rows", lambda ids=ids: store.by_id(ids, FILES_READ_MAX))
        await run("marks", lambda parsed=parsed, rows=rows: marked(search, parsed.query, rows))
        await run("page", lambda text=text: respond(site, search_path(text)))
        spent["rest"] = max(spent["page"] - sum(took for step, took in spent.items() if step != "page"), 0.0)
        for step, took in spent.items():
            steps[step].append(took)
    return {step: percentiles(took) for step, took in steps.items()}


async def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU milliseconds of this work, the least of several runs, and its result."""
    took = []
    for _ in range(REPEATS):
        began = time.process_time()
        result = work()
        if isawaitable(result):
            result = await result
        took.append((time.process_time() - began) * 1000)
    return min(took), result


def marked(search: TorrentSearch, query: Any, rows: Sequence[Any]) -> list[Any]:
    """Return what the page shows of the torrents."""
    highlighter = search.highlighter(query)
    return [torrent_view(row, highlighter) for row in rows]


async def respond(site: ASGIApp, path: str) -> None:
    """Let the site answer a request, without a connection."""
    path, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1"), (b"accept-encoding", b"gzip")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1"}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message

    await site(scope | {"root_path": "", "raw_path": path.encode()}, _nothing, send)


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}
