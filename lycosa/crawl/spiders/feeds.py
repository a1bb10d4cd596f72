"""Spiders that parse a feed node by node, or a table row by row.

    class News(XMLFeedSpider):                              class Prices(CSVFeedSpider):
        name = "news"                                           name = "prices"
        start_urls = ["https://news.example/rss"]               start_urls = ["https://shop.example/prices.csv"]
        itertag = "item"                                        delimiter = ";"

        def parse_node(self, response, node):                   def parse_row(self, response, row):
            yield {"title": node.xpath("title/text()").get()}       yield {"sku": row["sku"]}

A broken feed or table yields the nodes or rows before the error, and a warning is logged. With the iterators "xml" and
"html", the parser repairs the feed, and nothing is logged. External references in a document are
never fetched, and `iternodes` does not expand entities that the document defines.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

from lycosa.core.errors import BadSpider
from lycosa.core.public import public
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.spiders.callbacks import apply_process_results, yield_results
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now, name_of
from lycosa.crawl.spiders.spider import Spider

if TYPE_CHECKING:
    from parsel import Selector

ITERATORS = ("iternodes", "xml", "html")


class _FeedSpider(Spider):
    def adapt_response(self, response: Response) -> Response:
        """Return the response to parse. Override this to repair a feed first."""
        return response

    def process_results(self, response: Response, results: list[Any]) -> Iterable[Any]:
        """Return the results of one node or row. Override this to change them."""
        return results

    def _parse_parts(self, response: Response, method: Any, parts: Iterable[Any]) -> Iterator[Any] | AsyncIterator[Any]:
        # A synchronous variant is needed too: only plain generators can run in threads (`callback_mode = "thread"`).
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            return self._parse_parts_async(response, method, parts)
        return self._parse_parts_sync(response, method, parts)

    def _parse_parts_sync(self, response: Response, method: Any, parts: Iterable[Any]) -> Iterator[Any]:
        name = name_of(method)
        for part in parts:
            results = collect_now(partial(method, response, part), name)
            if type(results) is not Results:
                raise BadSpider(f"{name} returned an awaitable: write async def {name}")
            yield from yield_results(apply_process_results(self.process_results, response, results))

    async def _parse_parts_async(self, response: Response, method: Any, parts: Iterable[Any]) -> AsyncIterator[Any]:
        for part in parts:
            results = await collect(method(response, part), name_of(method))
            for result in yield_results(apply_process_results(self.process_results, response, results)):
                yield result


@public
class XMLFeedSpider(_FeedSpider):
    """Calls `parse_node` with a parsel selector for each element called `itertag`.

    `itertag` is a name as written in the document, or a name with a prefix of `namespaces`. `namespaces` are (prefix,
    URI) pairs, which are also registered with the selectors. `iterator`: "iternodes" parses incrementally, "xml" and
    "html" parse the whole document first.
    """

    iterator: str = "iternodes"
    itertag: str = "item"
    namespaces: Sequence[tuple[str, str]] = ()

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        if self.iterator not in ITERATORS:
            raise BadSpider(
                f"iterator of {type(self).__name__} is {self.iterator!r}: write one of {', '.join(ITERATORS)}"
            )

    def parse_node(self, response: Response, selector: Selector) -> Any:
        raise BadSpider(user_errors.check_missing_method(self, "parse_node"))

    def parse_nodes(self, response: Response, nodes: Iterable[Selector]) -> Any:
        return self._parse_parts(response, self.parse_node, nodes)

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        response = self.adapt_response(response)
        nodes = self._iternodes(response) if self.iterator == "iternodes" else self._select_nodes(response)
        return self.parse_nodes(response, nodes)

    def _select_nodes(self, response: Response) -> Iterator[Selector]:
        from parsel import Selector

        namespaces = dict(self.namespaces)
        document = Selector(text=response.text, type=self.iterator, namespaces=namespaces)
        if self.iterator == "html" or self.itertag.rpartition(":")[0] in namespaces:
            yield from document.xpath(f"//{self.itertag}")
        else:
            yield from document.xpath("//*[name()=$name]", name=self.itertag)

    def _iternodes(self, response: Response) -> Iterator[Selector]:
        from lxml import etree
        from parsel import Selector

        namespaces = dict(self.namespaces)
        prefix, _, name = self.itertag.rpartition(":")
        uri = namespaces.get(prefix) if prefix else None
        body = BytesIO(response.text.lstrip("\ufeff \t\r\n").encode())
        try:
            for _, element in etree.iterparse(body, tag=f"{{*}}{name}", encoding="utf-8", resolve_entities=False):
                if element.tag == f"{{{uri}}}{name}" if uri else element.prefix == (prefix or None):
                    # The copy is a separate document: XPath cannot leave it, and it stays valid after _free().
                    yield Selector(root=deepcopy(element), type="xml", namespaces=namespaces)
                    _free(element)
        except etree.XMLSyntaxError as error:
            self.logger.warning("%s: the rest of the feed is skipped: %s", response.url, error.msg)


@public
class CSVFeedSpider(_FeedSpider):
    """Calls `parse_row` with each row, as a dictionary.

    `headers` are the names of the columns, by default from the first row. A row with a different number of fields
    is skipped with a warning.
    """

    delimiter: str | None = None
    quotechar: str | None = None
    headers: Sequence[str] | None = None

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        raise BadSpider(user_errors.check_missing_method(self, "parse_row"))

    def parse_rows(self, response: Response) -> Any:
        return self._parse_parts(response, self.parse_row, self._rows(response))

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        return self.parse_rows(self.adapt_response(response))

    def _rows(self, response: Response) -> Iterator[dict[str, str]]:
        text = StringIO(response.text.removeprefix("\ufeff"), newline="")
        try:
            rows = csv.reader(text, delimiter=self.delimiter or ",", quotechar=self.quotechar or '"')
        except TypeError as error:
            raise BadSpider(f"{type(self).__name__}: {error}") from error
        try:
            headers = list(self.headers or next(rows, []))
            for row in rows:
                if len(row) == len(headers):
                    yield dict(zip(headers, row, strict=True))
                elif row:
                    counts = f"{len(row)} fields, not {len(headers)}"
                    self.logger.warning("%s: the row of %r is skipped: it has %s", response.url, row[0][:40], counts)
        except csv.Error as error:
            self.logger.warning("%s: the rest of the table is skipped: %s", response.url, error)


def _free(element: Any) -> None:
    """Free the memory of an element and of its preceding siblings."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
