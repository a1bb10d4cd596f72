"""Selectors (C2): the same results as parsel's."""

from __future__ import annotations

from typing import Any

import parsel
import pytest

from lycosa.crawl.spiders.selectors import Selector, SelectorList

PAGE = """<html><head><title>Zwei &amp; drei</title><base href="/x/"></head><body>
<div class="a one" id=i><p>eins <b>fett</b> zwei</p><p class=a>drei</p><a href="/1">1</a><a>ohne</a></div>
<div class="b"><ul><li>1 EUR<li>22 EUR<li data-n=3></ul><svg:x>n</svg:x></div><!-- c --></body></html>"""
XML = '<?xml version="1.0"?><r xmlns:a="urn:a"><a:i n="1">x</a:i><a:i n="2"/><b>&lt;y&gt;</b></r>'

CSS = [
    "p",
    "p::text",
    "a::attr(href)",
    "*::text",
    ".a",
    "#i > p",
    "li",
    "nothing",
    "title::text",
    "div.b li::attr(data-n)",
]
XPATH = [
    "//p", "//p/text()", "//@href", "count(//p)", "boolean(//p)", "not(//p)", "string(//title)", "//li[1]", ".",
    "//b/..", "//comment()", "//div//text()", "id('i')", "1 div 0", "//p | //a", "normalize-space(//p)",
    "//li[re:test(., '^[0-9]+ EUR$')]/text()", "set:distinct(//a)",
]  # fmt: skip


def both(text: str = PAGE, kind: str = "html") -> tuple[parsel.Selector, Selector]:
    return parsel.Selector(text=text, type=kind), Selector.of_page(
        text.encode(), "utf-8", None, kind, "http://x.example/"
    )


def same(theirs: Any, ours: Any) -> None:
    assert isinstance(ours, SelectorList)
    assert ours.getall() == theirs.getall()
    assert (ours.get(), ours.get("none")) == (theirs.get(), theirs.get("none"))
    assert (len(ours), bool(ours)) == (len(theirs), bool(theirs))
    assert ours.re(r"(\d+) EUR") == theirs.re(r"(\d+) EUR")
    assert ours.re_first(r"\w+", "none") == theirs.re_first(r"\w+", "none")
    assert [each.get() for each in ours] == [each.get() for each in theirs]
    assert repr(ours) == repr(theirs)
    assert ours.getall() == theirs.getall(), "after selectors were created"


@pytest.mark.parametrize(
    ("query", "message"), [("div::txt(", "Expected an argument"), ("p::nothing", "pseudo-element")]
)
def test_an_error_names_the_query(query: str, message: str) -> None:
    _, ours = both()
    for found in (ours, ours.css("body")):
        with pytest.raises((SyntaxError, RuntimeError), match=message) as caught:
            found.css(query)
        assert str(caught.value).endswith(f" in {query!r}")


@pytest.mark.parametrize("query", CSS)
def test_css_selects_the_same_as_parsel(query: str) -> None:
    theirs, ours = both()
    same(theirs.css(query), ours.css(query))
    same(theirs.css("div").css(query), ours.css("div").css(query))
    for one, other in zip(theirs.css("div"), ours.css("div"), strict=True):
        same(one.css(query), other.css(query))


@pytest.mark.parametrize("query", XPATH)
def test_xpath_selects_the_same_as_parsel(query: str) -> None:
    theirs, ours = both()
    same(theirs.xpath(query), ours.xpath(query))
    same(theirs.css("div").xpath(query), ours.css("div").xpath(query))
    same(theirs.css("p::text").xpath(query), ours.css("p::text").xpath(query))


@pytest.mark.parametrize("query", ["//b", "//a:i/@n", "//r/*", "count(//*)", "b", "r b::text"])
def test_xml_with_namespaces_is_selected(query: str) -> None:
    theirs, ours = both(XML, "xml")
    for each in (theirs, ours):
        each.register_namespace("a", "urn:a")
    find = "css" if query.startswith(("b", "r")) else "xpath"
    same_texts = getattr(ours, find)(query).getall()
    assert same_texts == getattr(theirs, find)(query).getall() != []
    assert ours.xpath("//q:i/@n", namespaces={"q": "urn:a"}).getall() == ["1", "2"]
    assert "a" not in Selector(text=XML, type="xml").namespaces, "registered for one page only"


def test_variables_attributes_and_list_methods_work() -> None:
    theirs, ours = both()
    assert ours.xpath("//a[@href=$u]/text()", u="/1").getall() == ["1"]
    assert ours.css("div").attrib == theirs.css("div").attrib
    assert ours.css("nothing").attrib == {}
    found = ours.css("li")
    assert isinstance(found[0], Selector)
    assert isinstance(found[:2], SelectorList)
    assert [each.get() for each in found[::-1]] == [each.get() for each in theirs.css("li")[::-1]]
    one = [1]
    for joined in (one + ours.css("li"), ours.css("li") + one, [*ours.css("li"), 1], list(ours.css("li")) + one):
        assert {type(each) for each in joined} == {Selector, int}
    grown: list[Any] = []
    grown.extend(ours.css("li"))
    grown += ours.css("li")
    assert {type(each) for each in grown} == {Selector}
    assert [type(each) for each in reversed(ours.css("li"))] == [Selector] * 3
    assert type(ours.css("li").copy()[0]) is Selector
    assert found[0] in found
    assert (found.index(found[1]), found.count(found[1])) == (1, 1)
    first, *_ = ours.css("li")
    assert type(first) is Selector
    assert [type(one) for one, _ in zip(ours.css("li"), "abc", strict=True)] == [Selector] * 3
    assert len({id(each) for each in sorted(ours.css("li"), key=lambda each: each.get())}) == 3


@pytest.mark.parametrize("query", ["//[", "//p[foo()]", "$x"])
def test_a_bad_query_is_a_value_error(query: str) -> None:
    for selector in (both()[1], both()[1].css("div")):
        with pytest.raises(ValueError, match="XPath error"):
            selector.xpath(query)


@pytest.mark.parametrize(
    "page",
    [
        "",
        " \n ",
        "\0<p>a\0b</p>",
        "<p>\ufffd</p>",
        "plain",
        "<meta charset=latin1><p>ä</p>",
        "\ufeff<p>b</p>",
        "<p>a" * 500,
    ],
)
def test_unusual_pages_are_parsed_as_by_parsel(page: str) -> None:
    theirs, ours = both(page)
    assert ours.xpath("//p").getall() == theirs.xpath("//p").getall()
    assert ours.get() == theirs.get()


def test_bytes_of_other_encodings_are_decoded() -> None:
    assert Selector.of_page(b"<p>\xff</p>", "utf-8", None, "html", "u").css("p::text").get() == "\ufffd"
    assert Selector.of_page(b"<p>\xe4</p>", "cp1252", None, "html", "u").css("p::text").get() == "ä"


def test_elements_can_be_dropped_and_json_selected() -> None:
    theirs, ours = both()
    for each in (theirs, ours):
        each.css("li").drop()
        each.css("b")[0].drop()
    assert ours.get() == theirs.get()
    data = Selector.of_page(b'{"a": [{"b": 1}, {"b": 2}]}', "utf-8", None, "json", "u")
    assert (
        data.jmespath("a[].b").getall()
        == parsel.Selector(text='{"a": [{"b": 1}, {"b": 2}]}').jmespath("a[].b").getall()
    )
