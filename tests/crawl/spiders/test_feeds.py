"""`XMLFeedSpider` and `CSVFeedSpider` (C2): nodes and rows, up to the first error in the feed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from lxml import etree

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.spiders.feeds import CSVFeedSpider, XMLFeedSpider, _free
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import collect

RSS = """<?xml version="1.0" encoding="UTF-8"?>
<rss xmlns:g="http://base.example/ns"><channel><title>Channel</title>
<item><title>One</title><g:price>1</g:price></item>
<item><title>Two &amp; more</title><g:price>2</g:price></item>
</channel></rss>"""
ATOM = '<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry><entry><id>2</id></entry></feed>'
URL = "http://news.example/feed"


def feed(body: str | bytes, kind: str = "application/xml") -> Response:
    return Response(URL, 200, {"Content-Type": kind}, body.encode() if isinstance(body, str) else body)


def items(spider: Any, body: str | bytes, kind: str = "application/xml") -> list[Any]:
    return asyncio.run(collect(spider.parse(feed(body, kind)), "parse")).items


class News(XMLFeedSpider):
    name = "news"

    def parse_node(self, response: Response, node: Any) -> Any:
        return {"titles": node.xpath("//title/text()").getall()}


def news(base: type = News, **attributes: Any) -> Any:
    return type("News", (base,), attributes)()


def texts(response: Response, node: Any) -> Any:
    return {"text": node.xpath("string()").get()}


@pytest.mark.parametrize("iterator", ["iternodes", "xml", "html"])
def test_every_node_is_parsed_separately(iterator: str) -> None:
    found = items(news(iterator=iterator, parse_node=lambda self, response, node: texts(response, node)), RSS)
    assert found == [{"text": "One1"}, {"text": "Two & more2"}]


def test_a_selector_of_iternodes_cannot_leave_its_node() -> None:
    assert items(News(), RSS) == [{"titles": ["One"]}, {"titles": ["Two & more"]}]


@pytest.mark.parametrize("iterator", ["iternodes", "xml"])
@pytest.mark.parametrize(
    ("itertag", "namespaces", "body", "expected"),
    [
        ("g:price", [], RSS, ["1", "2"]),
        ("x:price", [("x", "http://base.example/ns")], RSS, ["1", "2"]),
        ("x:price", [], RSS, []),
        ("price", [], RSS, []),
        ("entry", [], ATOM, ["1", "2"]),
        ("a:entry", [("a", "http://www.w3.org/2005/Atom")], ATOM, ["1", "2"]),
        ("nothing", [], RSS, []),
    ],
)
def test_itertag_is_a_name_as_written_in_the_feed_or_has_a_prefix_of_the_namespaces(
    iterator: str, itertag: str, namespaces: Any, body: str, expected: list[str]
) -> None:
    spider = news(itertag=itertag, namespaces=namespaces, iterator=iterator, parse_node=lambda s, r, n: texts(r, n))
    assert [item["text"] for item in items(spider, body)] == expected


@pytest.mark.parametrize("iterator", ["iternodes", "xml"])
def test_selectors_know_the_namespaces(iterator: str) -> None:
    class Priced(News):
        namespaces = [("p", "http://base.example/ns")]

        def parse_node(self, response: Response, node: Any) -> Any:
            return {"price": node.xpath("p:price/text()").get()}

    assert items(news(Priced, iterator=iterator), RSS) == [{"price": "1"}, {"price": "2"}]


def test_the_feed_and_its_results_can_be_changed() -> None:
    class Adapted(News):
        def adapt_response(self, response: Response) -> Response:
            return response.replace(body=response.body.replace(b"record", b"item"))

        def process_results(self, response: Response, results: Any) -> Any:
            return [{**result, "from": response.url} for result in results if result["titles"]]

    body = "<r><record><title>1</title></record><record/></r>"
    assert items(Adapted(), body) == [{"titles": ["1"], "from": URL}]


async def coroutine(self: Any, response: Response, node: Any) -> Any:
    await asyncio.sleep(0)
    return [texts(response, node)]


async def asynchronous(self: Any, response: Response, node: Any) -> Any:
    await asyncio.sleep(0)
    yield texts(response, node)


def generator(self: Any, response: Response, node: Any) -> Any:
    yield texts(response, node)
    yield None


@pytest.mark.parametrize("method", [coroutine, asynchronous, generator])
def test_parse_node_may_have_every_form_of_callback(method: Any) -> None:
    assert items(news(itertag="title", parse_node=method), RSS) == [
        {"text": "Channel"},
        {"text": "One"},
        {"text": "Two & more"},
    ]


def test_results_before_close_spider_are_kept() -> None:
    def closing(self: Any, response: Response, node: Any) -> Any:
        yield texts(response, node)
        if "One" in str(texts(response, node)):
            raise CloseSpider("enough")

    spider = news(itertag="title", parse_node=closing)
    found = asyncio.run(collect(spider.parse(feed(RSS)), "parse"))
    assert (found.items, found.closing) == ([{"text": "Channel"}, {"text": "One"}], "enough")


def test_a_plain_method_that_returns_an_awaitable_is_refused() -> None:
    def hidden(self: Any, response: Response, node: Any) -> Any:
        return asynchronous(self, response, node)

    spider = news(parse_node=hidden)
    with pytest.raises(BadSpider, match="returned an awaitable: write async def"):
        items(spider, RSS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-2"])
def test_feeds_of_several_encodings_are_decoded(encoding: str) -> None:
    declared = encoding if encoding == "iso-8859-2" else "utf-8"
    body = f'\n<?xml version="1.0" encoding="{declared}"?><r><item><title>Łódź</title></item></r>'
    body = body.lstrip() if encoding != "utf-8" else body
    assert items(News(), body.encode(encoding)) == [{"titles": ["Łódź"]}]


def test_a_broken_feed_yields_the_nodes_before_the_error(caplog: pytest.LogCaptureFixture) -> None:
    body = RSS[: RSS.index("<title>Two")] + "<title>Two & more</wrong>"
    assert items(News(), body) == [{"titles": ["One"]}]
    assert "http://news.example/feed: the rest of the feed is skipped: " in caplog.text
    assert "line 4" in caplog.text
    assert items(News(), "") == []


def test_entities_are_not_expanded(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    doctype = f'<!DOCTYPE r [<!ENTITY e0 "haha">{bomb}<!ENTITY f SYSTEM "file://{secret}">]>'
    body = f"<?xml version='1.0'?>{doctype}<r><item><title>&f;&e9;x</title></item></r>"
    for iterator in ("iternodes", "xml"):
        spider = news(iterator=iterator, parse_node=lambda s, r, n: texts(r, n))
        found = items(spider, body)
        assert "secret" not in str(found)
        assert "haha" not in str(found)


def test_a_small_entity_is_not_expanded() -> None:
    body = '<!DOCTYPE r [<!ENTITY e "haha">]><r><item><title>&e;x</title></item></r>'
    assert items(news(parse_node=lambda s, r, n: texts(r, n)), body) == [{"text": "x"}]


def test_parsed_elements_are_freed() -> None:
    root = etree.fromstring("<r><title>t</title><item><title>1</title></item>tail<item><title>2</title></item></r>")
    _free(root[1])
    assert etree.tostring(root) == b"<r><item/><item><title>2</title></item></r>"
    _free(root)
    assert etree.tostring(root) == b"<r/>"


def test_an_unknown_iterator_is_refused() -> None:
    with pytest.raises(BadSpider, match="iterator of News is 'sax': write one of iternodes, xml, html"):
        news(iterator="sax")


class Prices(CSVFeedSpider):
    name = "prices"

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        return row


TABLE = 'sku,name\r\n1,One\r\n\r\n2,"Two, or\r\nmore"\r\n'
ROWS = [{"sku": "1", "name": "One"}, {"sku": "2", "name": "Two, or\r\nmore"}]


@pytest.mark.parametrize(
    ("attributes", "body", "expected"),
    [
        ({}, TABLE, ROWS),
        ({}, "\ufeff" + TABLE, ROWS),
        ({"delimiter": ";", "quotechar": "'"}, "sku;name\n1;'a;b'\n", [{"sku": "1", "name": "a;b"}]),
        ({"headers": ["a", "b"]}, "1,2\n", [{"a": "1", "b": "2"}]),
        ({}, "", []),
        ({}, "sku,name\n", []),
    ],
)
def test_rows_become_dictionaries(attributes: dict[str, Any], body: str, expected: list[Any]) -> None:
    assert items(news(Prices, **attributes), body, "text/csv; charset=utf-8") == expected


def test_rows_of_another_encoding_are_decoded() -> None:
    assert items(Prices(), "name\nGröße\n".encode("cp1252"), "text/csv; charset=windows-1252") == [{"name": "Größe"}]


def test_rows_of_another_length_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert items(Prices(), "a,b\n1\n1,2,3\n1,2\n", "text/csv") == [{"a": "1", "b": "2"}]
    assert "http://news.example/feed: the row of '1' is skipped: it has 3 fields, not 2" in caplog.text


def test_a_broken_table_yields_the_rows_before_the_error(caplog: pytest.LogCaptureFixture) -> None:
    assert items(Prices(), "a\n1\n" + "x" * 200_000 + "\n2\n", "text/csv") == [{"a": "1"}]
    assert "http://news.example/feed: the rest of the table is skipped" in caplog.text


def test_rows_can_be_changed_and_parsed_asynchronously() -> None:
    class Adapted(Prices):
        def adapt_response(self, response: Response) -> Response:
            return response.replace(body=b"a\n1\n")

        async def parse_row(self, response: Response, row: dict[str, str]) -> Any:
            await asyncio.sleep(0)
            return row

        def process_results(self, response: Response, results: Any) -> Any:
            return [{**result, "b": "2"} for result in results]

    assert items(Adapted(), "", "text/csv") == [{"a": "1", "b": "2"}]


def test_a_wrong_delimiter_is_refused() -> None:
    with pytest.raises(BadSpider, match='News: "delimiter" must be'):
        items(news(Prices, delimiter="--"), "a--b", "text/csv")


@pytest.mark.parametrize(("base", "method"), [(XMLFeedSpider, "parse_node"), (CSVFeedSpider, "parse_row")])
def test_a_missing_method_is_reported(base: type, method: str) -> None:
    spider = news(base, name="x")
    with pytest.raises(BadSpider, match=rf"News has no {method}\(\): write it"):
        items(spider, RSS if method == "parse_node" else "a\n1\n")
