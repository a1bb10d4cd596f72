"""`XMLFeedSpider` and `CSVFeedSpider` (C2): node by node, row by row, up to where a feed breaks."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from lxml import etree

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.spiders.feeds import CSVFeedSpider, XMLFeedSpider, _forget
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
def test_every_node_by_itself(iterator: str) -> None:
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
def test_names_are_as_written_or_by_namespace(
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


def test_the_feed_and_its_results_are_adapted() -> None:
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
def test_methods_of_every_form(method: Any) -> None:
    assert items(news(itertag="title", parse_node=method), RSS) == [
        {"text": "Channel"},
        {"text": "One"},
        {"text": "Two & more"},
    ]


def test_a_method_that_closes_the_spider_keeps_what_it_yielded() -> None:
    def closing(self: Any, response: Response, node: Any) -> Any:
        yield texts(response, node)
        if "One" in str(texts(response, node)):
            raise CloseSpider("enough")

    spider = news(itertag="title", parse_node=closing)
    found = asyncio.run(collect(spider.parse(feed(RSS)), "parse"))
    assert (found.items, found.closing) == ([{"text": "Channel"}, {"text": "One"}], "enough")


def test_a_method_that_returns_what_has_to_be_awaited_is_told() -> None:
    def hidden(self: Any, response: Response, node: Any) -> Any:
        return asynchronous(self, response, node)

    spider = news(parse_node=hidden)
    with pytest.raises(BadSpider, match="returns what has to be awaited: write async def"):
        items(spider, RSS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-2"])
def test_encodings(encoding: str) -> None:
    declared = encoding if encoding == "iso-8859-2" else "utf-8"
    body = f'\n<?xml version="1.0" encoding="{declared}"?><r><item><title>Łódź</title></item></r>'
    body = body.lstrip() if encoding != "utf-8" else body
    assert items(News(), body.encode(encoding)) == [{"titles": ["Łódź"]}]


def test_a_feed_that_breaks_off_gives_what_is_before(caplog: pytest.LogCaptureFixture) -> None:
    body = RSS[: RSS.index("<title>Two")] + "<title>Two & more</wrong>"
    assert items(News(), body) == [{"titles": ["One"]}]
    assert "http://news.example/feed is not read further than line 4" in caplog.text
    assert items(News(), "") == []


def test_entities_stay_closed(tmp_path: Any) -> None:
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


def test_a_small_entity_stays_closed_too() -> None:
    body = '<!DOCTYPE r [<!ENTITY e "haha">]><r><item><title>&e;x</title></item></r>'
    assert items(news(parse_node=lambda s, r, n: texts(r, n)), body) == [{"text": "x"}]


def test_what_was_read_is_forgotten() -> None:
    root = etree.fromstring("<r><title>t</title><item><title>1</title></item>tail<item><title>2</title></item></r>")
    _forget(root[1])
    assert etree.tostring(root) == b"<r><item/><item><title>2</title></item></r>"
    _forget(root)
    assert etree.tostring(root) == b"<r/>"


def test_an_iterator_that_is_none_is_told() -> None:
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
def test_rows(attributes: dict[str, Any], body: str, expected: list[Any]) -> None:
    assert items(news(Prices, **attributes), body, "text/csv; charset=utf-8") == expected


def test_rows_in_another_charset() -> None:
    assert items(Prices(), "name\nGröße\n".encode("cp1252"), "text/csv; charset=windows-1252") == [{"name": "Größe"}]


def test_rows_of_another_length_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert items(Prices(), "a,b\n1\n1,2,3\n1,2\n", "text/csv") == [{"a": "1", "b": "2"}]
    assert "http://news.example/feed: the row of '1' has 3 fields, not 2: it is left out" in caplog.text


def test_a_table_that_cannot_be_read_gives_what_is_before(caplog: pytest.LogCaptureFixture) -> None:
    assert items(Prices(), "a\n1\n" + "x" * 200_000 + "\n2\n", "text/csv") == [{"a": "1"}]
    assert "http://news.example/feed is not read further" in caplog.text


def test_rows_are_adapted_and_may_be_parsed_later() -> None:
    class Adapted(Prices):
        def adapt_response(self, response: Response) -> Response:
            return response.replace(body=b"a\n1\n")

        async def parse_row(self, response: Response, row: dict[str, str]) -> Any:
            await asyncio.sleep(0)
            return row

        def process_results(self, response: Response, results: Any) -> Any:
            return [{**result, "b": "2"} for result in results]

    assert items(Adapted(), "", "text/csv") == [{"a": "1", "b": "2"}]


def test_a_delimiter_that_is_none_is_told() -> None:
    with pytest.raises(BadSpider, match='News: "delimiter" must be'):
        items(news(Prices, delimiter="--"), "a--b", "text/csv")


@pytest.mark.parametrize(("base", "method"), [(XMLFeedSpider, "parse_node"), (CSVFeedSpider, "parse_row")])
def test_a_method_that_is_not_written_is_told(base: type, method: str) -> None:
    spider = news(base, name="x")
    with pytest.raises(BadSpider, match=f"News.{method} is not written"):
        items(spider, RSS if method == "parse_node" else "a\n1\n")
