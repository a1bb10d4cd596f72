"""Values that callbacks, middlewares and the fetcher return or raise have the outcome that the tables of
`docs/middlewares.md` show: each cell is tested with a crawl of a server (C2, C5, C8).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lycosa import CloseSpider, DropItem, IgnoreRequest, Request, Response, RetryRequest, Spider
from lycosa.app.crawl import fetchers
from lycosa.core.errors import BodyTooLarge, FetchTimeout
from lycosa.core.headers import Headers
from lycosa.crawl.fetching.signalling import SignallingFetcher
from lycosa.http.core import model
from tests.conftest import ROOT
from tests.crawl import decision_tables
from tests.crawl.decision_tables import CELLS, START, outcome
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.servers.misbehaving import Server, running

HTML = {"content-type": "text/html"}
BELOW_RETRY = 560
RAISES = {
    decision_tables.IGNORE: IgnoreRequest("why"),
    decision_tables.RETRY: RetryRequest("why"),
    decision_tables.CLOSE: CloseSpider("why"),
    decision_tables.DROP: DropItem("why"),
    decision_tables.FAILED_AGAIN: FetchTimeout("why"),
    decision_tables.FAILED: BodyTooLarge("why"),
    decision_tables.BROKEN: ValueError("why"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def act(server: Server, row: str, stage: str) -> Any:
    """Return or raise the value of the row, in the form that this stage takes."""
    if row in RAISES:
        raise RAISES[row]
    if row == decision_tables.RESPONSE and stage == "the fetcher":
        return model.HttpResponse(server.url("/made"), 200, Headers.of(HTML.items()))
    child = Request(server.url("/good?replaced" if stage in decision_tables.FETCH_STAGES else "/good?child"))
    return {
        decision_tables.NOTHING: None,
        decision_tables.RESPONSE: Response(server.url("/made"), 200, HTML, b"made"),
        decision_tables.REQUEST: child,
        decision_tables.ITEM: {"item": 1},
        decision_tables.SEVERAL: [{"item": 1}, child],
        decision_tables.NONSENSE: 42,
    }[row]


def path_of(server: Server, url: str) -> str:
    return url.removeprefix(server.url(""))


class Cell:
    """A crawl in which one stage returns or raises the value of the row, for the start URL."""

    def __init__(self, server: Server, row: str, stage: str, *, has_errback: bool) -> None:
        self.server, self.row, self.stage = server, row, stage
        self.has_errback = has_errback or stage == "errback"
        self.start = server.url(START.get(stage, "/good"))

    def act(self) -> Any:
        return act(self.server, self.row, self.stage)

    def applies_to(self, stage: str, url: str) -> bool:
        return stage == self.stage and url == self.start

    def results(self) -> Iterator[Any]:
        """Yield the results as a generator does: an exception follows an item."""
        if self.row in RAISES:
            yield {"item": 1}
        found = self.act()
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found

    def spider(self) -> Spider:
        cell = self

        class CellSpider(Spider):
            name = "cell"

            async def start(self):
                yield Request(cell.start, errback=self.on_error if cell.has_errback else None)

            def parse(self, response):
                if cell.applies_to("callback", response.request.url):
                    yield from cell.results()
                elif cell.applies_to("process_spider_exception", response.url):
                    raise ValueError("of the callback")
                elif response.request.errback is None or response.status == 200:
                    yield {"page": path_of(cell.server, response.url)}

            def on_error(self, failure):
                if cell.stage == "errback":
                    yield from cell.results()
                else:
                    yield {"errback": type(failure.value).__name__}

        return CellSpider()

    def downloader_middleware(self) -> Any:
        cell, stage = self, self.stage

        class Middleware:
            def process_request(self, request):
                return cell.act() if cell.applies_to("process_request", request.url) else None

            async def process_response(self, request, response):
                return cell.act() if cell.applies_to("process_response", request.url) else response

            def process_exception(self, request, exception):
                return cell.act() if cell.applies_to("process_exception", request.url) else None

        middleware = Middleware()
        middleware.__dict__.update({name: None for name in ("process_request", "process_exception") if name != stage})
        return middleware

    def spider_middleware(self) -> Any:
        cell = self

        class Middleware:
            def process_spider_input(self, response):
                return cell.act() if cell.applies_to("process_spider_input", response.url) else None

            def process_spider_output(self, response, result):
                if cell.applies_to("process_spider_output", response.url) and response.status:
                    yield from cell.results()
                else:
                    yield from result

            def process_spider_exception(self, response, exception):
                if not cell.applies_to("process_spider_exception", response.url) or cell.row == decision_tables.NOTHING:
                    return None
                return cell.results() if cell.row == decision_tables.CLOSE else cell.act()

        return Middleware()

    def pipeline(self) -> Any:
        cell = self

        class Pipeline:
            def process_item(self, item):
                return cell.act() if cell.stage == "process_item" else item

        return Pipeline()

    def fetcher(self) -> type[SignallingFetcher]:
        cell = self

        class Fetcher(SignallingFetcher):
            async def fetch(self, request, **options):
                if cell.applies_to("the fetcher", request.url):
                    return cell.act()
                return await super().fetch(request, **options)

        return Fetcher

    def crawl(self) -> CrawlResult:
        parts = {
            "downloader_middlewares": {self.downloader_middleware(): BELOW_RETRY},
            "spider_middlewares": {self.spider_middleware(): 500},
            "pipelines": {self.pipeline(): 100},
        }
        return asyncio.run(run_crawl(self.server, self.spider(), **parts))


@pytest.mark.parametrize(
    ("row", "stage", "text", "has_errback"),
    [
        (row, stage, text, has_errback)
        for row, stage, text in CELLS
        for has_errback in ((False, True) if "errback" in text else (False,))
    ],
)
def test_each_cell_of_the_tables_has_its_outcome(
    server: Server, monkeypatch: pytest.MonkeyPatch, row: str, stage: str, text: str, has_errback: bool
):
    cell = Cell(server, row, stage, has_errback=has_errback)
    monkeypatch.setattr(fetchers, "SignallingFetcher", cell.fetcher())
    expected = outcome(row, stage, text, has_errback=has_errback)
    result = cell.crawl()
    start = path_of(server, cell.start)
    state, reason = result.of(start)
    assert (state, result.items) == (expected.state, expected.items), reason
    assert re.search(expected.reason, reason), (reason, expected.reason)
    assert result.hits == {
        path: count for path, count in {start: expected.hits, **dict.fromkeys(expected.children, 1)}.items() if count
    }
    assert result.summary.closing == expected.closing
    assert result.stats.get("item_scraped_count", 0) == len(expected.items)
    assert result.stats.get("retry/count", 0) == (
        decision_tables.TRIES - 1 if "retried" in text or expected.hits == decision_tables.TRIES else 0
    )


TABLE = re.compile(r"^\| (?P<row>[^|]+) \|(?P<cells>.+)\|$", re.MULTILINE)


def documented(stages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the table of the document with these stages as columns."""
    page = (ROOT / "docs" / "middlewares.md").read_text(encoding="utf-8")
    names = [name if name.startswith("the ") or name in {"callback", "errback"} else f"`{name}`" for name in stages]
    head = f"| returned or raised | {' | '.join(names)} |\n"
    assert head in page, head
    rows = page.split(head, 1)[1].split("\n\n", 1)[0].split("\n", 1)[1]
    return {
        match["row"].strip(): tuple(cell.strip() for cell in match["cells"].split("|"))
        for match in TABLE.finditer(rows)
    }


@pytest.mark.parametrize(
    ("stages", "table"),
    [
        (decision_tables.FETCH_STAGES, decision_tables.FETCH_SIDE),
        (decision_tables.SPIDER_STAGES, decision_tables.SPIDER_SIDE),
    ],
    ids=["fetch", "spider"],
)
def test_the_document_matches_the_tested_table(stages: tuple[str, ...], table: dict[str, tuple[str, ...]]):
    assert documented(stages) == table
