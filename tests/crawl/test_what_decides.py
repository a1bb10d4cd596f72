"""What is returned or raised at each stage has the outcome in the tables of `docs/middlewares.md`: every cell is tested
with a crawl of a server (C2, C5, C8; issue 4, "what a callback, middleware or fetcher returns decides")."""

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
from tests.crawl import deciding
from tests.crawl.deciding import CELLS, START, outcome
from tests.crawl.playing import Played, play
from tests.servers.misbehaving import Server, running

HTML = {"content-type": "text/html"}
BELOW_RETRY = 560
RAISES = {
    deciding.IGNORE: IgnoreRequest("why"),
    deciding.RETRY: RetryRequest("why"),
    deciding.CLOSE: CloseSpider("why"),
    deciding.DROP: DropItem("why"),
    deciding.FAILED_AGAIN: FetchTimeout("why"),
    deciding.FAILED: BodyTooLarge("why"),
    deciding.BROKEN: ValueError("why"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def act(server: Server, row: str, stage: str) -> Any:
    """Return or raise what the row says, as a part of this stage."""
    if row in RAISES:
        raise RAISES[row]
    if row == deciding.RESPONSE and stage == "the fetcher":
        return model.HttpResponse(server.url("/made"), 200, Headers.of(HTML.items()))
    child = Request(server.url("/good?instead" if stage in deciding.FETCH_STAGES else "/good?child"))
    return {
        deciding.NOTHING: None,
        deciding.RESPONSE: Response(server.url("/made"), 200, HTML, b"made"),
        deciding.REQUEST: child,
        deciding.ITEM: {"item": 1},
        deciding.SEVERAL: [{"item": 1}, child],
        deciding.NONSENSE: 42,
    }[row]


def path_of(server: Server, url: str) -> str:
    return url.removeprefix(server.url(""))


class Cell:
    """A crawl in which one stage returns or raises what the row says, for the start URL."""

    def __init__(self, server: Server, row: str, stage: str, *, has_errback: bool) -> None:
        self.server, self.row, self.stage = server, row, stage
        self.has_errback = has_errback or stage == "errback"
        self.start = server.url(START.get(stage, "/good"))

    def acts(self) -> Any:
        return act(self.server, self.row, self.stage)

    def acts_as(self, stage: str, url: str) -> bool:
        return stage == self.stage and url == self.start

    def yields(self) -> Iterator[Any]:
        """Act as a generator does: what is raised comes after an item."""
        if self.row in RAISES:
            yield {"item": 1}
        found = self.acts()
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found

    def spider(self) -> Spider:
        cell = self

        class Decided(Spider):
            name = "decided"

            async def start(self):
                yield Request(cell.start, errback=self.on_error if cell.has_errback else None)

            def parse(self, response):
                if cell.acts_as("callback", response.request.url):
                    yield from cell.yields()
                elif cell.acts_as("process_spider_exception", response.url):
                    raise ValueError("of the callback")
                elif response.request.errback is None or response.status == 200:
                    yield {"page": path_of(cell.server, response.url)}

            def on_error(self, failure):
                if cell.stage == "errback":
                    yield from cell.yields()
                else:
                    yield {"errback": type(failure.value).__name__}

        return Decided()

    def downloader_middleware(self) -> Any:
        cell, stage = self, self.stage

        class Downloading:
            def process_request(self, request):
                return cell.acts() if cell.acts_as("process_request", request.url) else None

            async def process_response(self, request, response):
                return cell.acts() if cell.acts_as("process_response", request.url) else response

            def process_exception(self, request, exception):
                return cell.acts() if cell.acts_as("process_exception", request.url) else None

        made = Downloading()
        made.__dict__.update({name: None for name in ("process_request", "process_exception") if name != stage})
        return made

    def spider_middleware(self) -> Any:
        cell = self

        class Spidering:
            def process_spider_input(self, response):
                return cell.acts() if cell.acts_as("process_spider_input", response.url) else None

            def process_spider_output(self, response, result):
                if cell.acts_as("process_spider_output", response.url) and response.status:
                    yield from cell.yields()
                else:
                    yield from result

            def process_spider_exception(self, response, exception):
                if not cell.acts_as("process_spider_exception", response.url) or cell.row == deciding.NOTHING:
                    return None
                return cell.yields() if cell.row == deciding.CLOSE else cell.acts()

        return Spidering()

    def pipeline(self) -> Any:
        cell = self

        class Pipeline:
            def process_item(self, item):
                return cell.acts() if cell.stage == "process_item" else item

        return Pipeline()

    def fetcher(self) -> type[SignallingFetcher]:
        cell = self

        class Fetcher(SignallingFetcher):
            async def fetch(self, request, **options):
                if cell.acts_as("the fetcher", request.url):
                    return cell.acts()
                return await super().fetch(request, **options)

        return Fetcher

    def play(self) -> Played:
        parts = {
            "downloader_middlewares": {self.downloader_middleware(): BELOW_RETRY},
            "spider_middlewares": {self.spider_middleware(): 500},
            "pipelines": {self.pipeline(): 100},
        }
        return asyncio.run(play(self.server, self.spider(), **parts))


@pytest.mark.parametrize(
    ("row", "stage", "text", "has_errback"),
    [
        (row, stage, text, has_errback)
        for row, stage, text in CELLS
        for has_errback in ((False, True) if "errback" in text else (False,))
    ],
)
def test_each_cell_of_the_tables(
    server: Server, monkeypatch: pytest.MonkeyPatch, row: str, stage: str, text: str, has_errback: bool
):
    cell = Cell(server, row, stage, has_errback=has_errback)
    monkeypatch.setattr(fetchers, "SignallingFetcher", cell.fetcher())
    expected = outcome(row, stage, text, has_errback=has_errback)
    played = cell.play()
    start = path_of(server, cell.start)
    state, reason = played.of(start)
    assert (state, played.items) == (expected.state, expected.items), reason
    assert re.search(expected.reason, reason), (reason, expected.reason)
    assert played.hits == {
        path: count for path, count in {start: expected.hits, **dict.fromkeys(expected.children, 1)}.items() if count
    }
    assert played.summary.closing == expected.closing
    assert played.stats.get("item_scraped_count", 0) == len(expected.items)
    assert played.stats.get("retry/count", 0) == (
        deciding.TRIES - 1 if "retried" in text or expected.hits == deciding.TRIES else 0
    )


TABLE = re.compile(r"^\| (?P<row>[^|]+) \|(?P<cells>.+)\|$", re.MULTILINE)


def documented(stages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the table of the document that has these stages as columns."""
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
    [(deciding.FETCH_STAGES, deciding.FETCH_SIDE), (deciding.SPIDER_STAGES, deciding.SPIDER_SIDE)],
    ids=["fetch", "spider"],
)
def test_the_document_matches_the_tested_table(stages: tuple[str, ...], table: dict[str, tuple[str, ...]]):
    assert documented(stages) == table
