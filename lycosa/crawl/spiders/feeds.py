"""Spiders that go through a feed node by node, or row by row.

    class News(XMLFeedSpider):                              class Prices(CSVFeedSpider):
        name = "news"                                           name = "prices"
        start_urls = ["https://news.example/rss"]               start_urls = ["https://shop.example/prices.csv"]
        itertag = "item"                                        delimiter = ";"

        def parse_node(self, response, node):                   def parse_row(self, response, row):
            yield {"title": node.xpath("title/text()").get()}       yield {"sku": row["sku"]}

A feed that breaks off gives what is before the break, and a warning in the log. Nothing that a document refers
to is fetched, and iternodes expands nothing that it defines.
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
from lycosa.crawl.spiders.callbacks import apply_process_results, yield_results
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now
from lycosa.crawl.spiders.spider import Spider

if TYPE_CHECKING:
    from parsel import Selector

ITERATORS = ("iternodes", "xml", "html")


class _FeedSpider(Spider):
    """What both have in common: parts of a response that a method of the user's is called with, one by one."""

    def adapt_response(self, response: Response) -> Response:
        """Return the response to parse, where the feed has to be put right first. Yours to write."""
        return response

    def process_results(self, response: Response, results: list[Any]) -> Iterable[Any]:
        """Return the items and requests of a part as they are to be. Yours to write."""
        return results

    def _each(self, response: Response, method: Any, parts: Iterable[Any]) -> Iterator[Any] | AsyncIterator[Any]:
        """Yield what the method makes of each part."""
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            return self._each_later(response, method, parts)
        return self._each_now(response, method, parts)

    def _each_now(self, response: Response, method: Any, parts: Iterable[Any]) -> Iterator[Any]:
        name = _name_of(method)
        for part in parts:
            found = collect_now(partial(method, response, part), name)
            if type(found) is not Results:
                raise BadSpider(f"{name} returns what has to be awaited: write async def {name}")
            yield from yield_results(apply_process_results(self.process_results, response, found))

    async def _each_later(self, response: Response, method: Any, parts: Iterable[Any]) -> AsyncIterator[Any]:
        for part in parts:
            found = await collect(method(response, part), _name_of(method))
            for result in yield_results(apply_process_results(self.process_results, response, found)):
                yield result


@public
class XMLFeedSpider(_FeedSpider):
    """Calls `parse_node` with each element called `itertag`, as a parsel selector of its own.

    `itertag` is a name as it is written in the document, or with a prefix of `namespaces`: (prefix, URI) pairs, which
    the selectors know too. `iterator`: "iternodes" reads on as it goes, "xml" and "html" parse the document first.
    """

    iterator: str = "iternodes"
    itertag: str = "item"
    namespaces: Sequence[tuple[str, str]] = ()

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        if self.iterator not in ITERATORS:
            what = f"iterator of {type(self).__name__} is {self.iterator!r}"
            raise BadSpider(f"{what}: write one of {', '.join(ITERATORS)}")

    def parse_node(self, response: Response, selector: Selector) -> Any:
        """Make items and requests of a node. Yours to write."""
        raise BadSpider(f"{type(self).__name__}.parse_node is not written")

    def parse_nodes(self, response: Response, nodes: Iterable[Selector]) -> Any:
        """Yield what `parse_node` makes of each node."""
        return self._each(response, self.parse_node, nodes)

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        """Handle a feed."""
        response = self.adapt_response(response)
        nodes = self._iternodes(response) if self.iterator == "iternodes" else self._selected(response)
        return self.parse_nodes(response, nodes)

    def _selected(self, response: Response) -> Iterator[Selector]:
        from parsel import Selector

        kind = self.iterator
        document = Selector(text=response.text, type=kind, namespaces=dict(self.namespaces))
        prefix = self.itertag.rpartition(":")[0]
        if kind == "html" or (prefix and prefix in dict(self.namespaces)):
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
                    # A copy is a document of its own: a selector cannot leave it, and outlives the element.
                    yield Selector(root=deepcopy(element), type="xml", namespaces=namespaces)
                    _forget(element)
        except etree.XMLSyntaxError as error:
            self.logger.warning("%s is not read further than line %d: %s", response.url, error.lineno or 0, error.msg)


@public
class CSVFeedSpider(_FeedSpider):
    """Calls `parse_row` with each row, as a dictionary.

    `headers` names the columns; by default the first row does. Rows of another length are left out, with a warning.
    """

    delimiter: str | None = None
    quotechar: str | None = None
    headers: Sequence[str] | None = None

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        """Make items and requests of a row. Yours to write."""
        raise BadSpider(f"{type(self).__name__}.parse_row is not written")

    def parse_rows(self, response: Response) -> Any:
        """Yield what `parse_row` makes of each row."""
        return self._each(response, self.parse_row, self._rows(response))

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        """Handle a feed."""
        return self.parse_rows(self.adapt_response(response))

    def _rows(self, response: Response) -> Iterator[dict[str, str]]:
        rows = self._reader(response.text.removeprefix("\ufeff"))
        try:
            headers = list(self.headers or next(rows, []))
            for row in rows:
                if len(row) == len(headers):
                    yield dict(zip(headers, row, strict=True))
                elif row:
                    counts = f"{len(row)} fields, not {len(headers)}"
                    self.logger.warning("%s: the row of %r has %s: it is left out", response.url, row[0][:40], counts)
        except csv.Error as error:
            self.logger.warning("%s is not read further: %s", response.url, error)

    def _reader(self, text: str) -> Iterator[list[str]]:
        try:
            return csv.reader(
                StringIO(text, newline=""), delimiter=self.delimiter or ",", quotechar=self.quotechar or '"'
            )
        except TypeError as error:
            raise BadSpider(f"{type(self).__name__}: {error}") from error


def _name_of(method: Any) -> str:
    return getattr(method, "__name__", "the method")


def _forget(element: Any) -> None:
    """Free the memory of an element and of all that came before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
