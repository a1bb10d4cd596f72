"""The response that a callback gets (C2): decoding as in browsers, selecting with parsel or lexbor, following links."""

from __future__ import annotations

import pytest

from lycosa.core.errors import BadUrl
from lycosa.core.headers import Headers
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.http.core import model
from lycosa.http.core.request import Request

PAGE = """<html><head><title>Bücher</title></head><body><h1>Zwei</h1>
<a class=next href="b?x=1#top">weiter</a> <a href="mailto:x@y">mail</a> <a href="/c">c</a> <img src=i.png>
<p>Preis: 12 EUR</p></body></html>"""


def response(
    body: bytes | str = PAGE, kind: str = "text/html; charset=utf-8", url: str = "http://a.example/d/a"
) -> Response:
    raw_body = body.encode() if isinstance(body, str) else body
    request = Request(url, meta={"k": 1}, cb_kwargs={"n": 2})
    raw = model.HttpResponse(url, 200, Headers.of([("Content-Type", kind)]), raw_body)
    request.record = to_record(request, object())
    return Response.of(raw, request, 0.0)


def test_css_xpath_re_and_tree_select() -> None:
    page = response()
    assert page.css("title::text").get() == "Bücher"
    assert page.xpath("//h1/text()").get() == "Zwei"
    assert page.xpath("//a[@class=$c]/text()", c="next").get() == "weiter"
    assert page.re(r"Preis: (\d+)") == ["12"]
    assert page.tree.css_first("h1").text() == "Zwei"
    assert page.tree is page.tree


def test_it_has_the_values_of_the_transfer_and_of_the_request() -> None:
    page = response()
    assert (page.status, page.url, page.content_type, page.encoding) == (
        200,
        "http://a.example/d/a",
        "text/html",
        "utf-8",
    )
    assert (page.meta["k"], page.cb_kwargs, page.depth) == (1, {"n": 2}, 0)
    assert "200" in repr(page)


def test_text_of_another_encoding_is_decoded() -> None:
    page = response("<p>Größe".encode("cp1252"), "text/html; charset=iso-8859-1")
    assert page.text == "<p>Größe"
    assert page.css("p::text").get() == "Größe"


def test_follow_takes_urls_selectors_and_attributes() -> None:
    page = response()
    assert page.follow("b").url == "http://a.example/d/b"
    assert page.follow(page.css("a.next")[0]).url == "http://a.example/d/b?x=1"
    assert page.follow(page.css("a.next::attr(href)")[0], priority=3).priority == 3
    assert page.follow(page.css("img")[0], "parse_image").callback == "parse_image"
    with pytest.raises(BadUrl, match="mailto"):
        page.follow("mailto:x@y")


def test_follow_all_skips_urls_that_cannot_be_fetched() -> None:
    page = response()
    urls = ["http://a.example/d/b?x=1", "http://a.example/c"]
    assert [request.url for request in page.follow_all(page.css("a"))] == urls
    assert [request.url for request in page.follow_all(css="a")] == urls
    assert [request.url for request in page.follow_all(xpath="//a/@href", meta={"m": 1})] == urls


def test_urljoin_uses_the_base_element() -> None:
    page = response("<base href='http://b.example/x/'><a href=y>y</a>")
    assert page.urljoin("y") == "http://b.example/x/y"


def test_json_is_decoded() -> None:
    assert response('{"a": [1, 2]}', "application/json").json() == {"a": [1, 2]}
    with pytest.raises(ValueError, match="is not JSON"):
        response("<p>", "application/json").json()


def test_xml_is_selected_as_xml() -> None:
    page = response("<rss><channel><link>http://x.example/</link></channel></rss>", "application/rss+xml")
    assert page.xpath("//link/text()").get() == "http://x.example/"


def test_meta_has_scrapys_keys() -> None:
    record = UrlRecord(RECORD_VERSION, 1, "http://a.example/", "http://a.example:80", depth=3, attempts=2, redirects=1)
    request = Request(record.url, meta={"k": 1, "depth": 99})
    request.record = record
    meta = Response(record.url, request=request).meta
    assert {name: meta[name] for name in ("k", "depth", "retry_times", "redirect_times", "download_latency")} == {
        "k": 1,
        "depth": 3,
        "retry_times": 2,
        "redirect_times": 1,
        "download_latency": 0.0,
    }


def test_links_without_url_are_refused_or_skipped() -> None:
    page = response(b"<a name=x>x</a><a href=y>y</a><a href=''>here</a>")
    with pytest.raises(BadUrl, match="neither href nor src"):
        page.follow(page.css("a")[0])
    assert [request.url for request in page.follow_all(css="a")] == ["http://a.example/d/y", "http://a.example/d/a"]
    with pytest.raises(TypeError, match="one of links, css and xpath"):
        list(page.follow_all(css="a", xpath="//a"))
    with pytest.raises(TypeError, match="one of links"):
        list(page.follow_all())
    with pytest.raises(TypeError, match="SelectorList"):
        page.follow(page.css("a"))


@pytest.mark.parametrize(
    "body",
    [
        '{"a": ["é"]}'.encode(),
        '{"a": ["é"]}'.encode("cp1252"),
        '{"a": ["é"]}'.encode("utf-16"),
        '\ufeff{"a": ["é"]}'.encode(),
    ],
)
def test_json_of_any_encoding_is_decoded(body: bytes) -> None:
    page = response(body, "application/json")
    assert page.json() == {"a": ["é"]}
    assert page.jmespath("a[0]").get() == "é"


@pytest.mark.parametrize("kind", ["text/plain", "", "text/html"])
def test_jmespath_reads_json_of_any_type(kind: str) -> None:
    assert response('{"a": [1, "é"]}', kind).jmespath("a[1]").get() == "é"
    assert response("<p>", kind).jmespath("a").getall() == []


@pytest.mark.parametrize("body", [b"", b"<p>", b"{'a': 1}", b"[" * 200_000])
def test_a_body_that_is_no_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        response(body, "application/json").json()
