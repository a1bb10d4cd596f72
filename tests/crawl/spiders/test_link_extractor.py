"""`LinkExtractor` (C2): which links it extracts; lexbor and parsel find the same."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from lycosa.core.errors import BadSpider
from lycosa.crawl.spiders import link_extractor as module
from lycosa.crawl.spiders.link_extractor import IGNORED_EXTENSIONS, LINK_TEXT_MAX, Link, LinkExtractor
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import collect

SITE = "http://shop.example"
PAGE = """<!doctype html><html><head><link rel=next href=/next></head><body>
<nav><a href="/">Home</a><a href="/cart?b=2&amp;a=1">Cart</a></nav>
<main id=main>
  <h1><a href="/item/1">One <b>bold</b> item</a></h1>
  <map><area href="item/2#specs" alt=two></map>
  <a class=more href=" /item/1 ">One again</a>
  <a href="/item/3.pdf">Manual</a>
  <a href="https://cdn.other.example/item/4" rel="external nofollow">Four</a>
  <div data-url="/ajax/5"><img src="/pic/5.png">Five</div>
  <a href="mailto:a@shop.example">Mail</a><a href="javascript:void(0)">Script</a><a>None</a><a href="http://[bad">Bad</a>
</main></body></html>"""


def page(
    body: str | bytes = PAGE, url: str = f"{SITE}/list?page=1", kind: str = "text/html; charset=utf-8"
) -> Response:
    return Response(url, 200, {"Content-Type": kind}, body.encode() if isinstance(body, str) else body)


def urls(body: str | bytes = PAGE, **arguments: Any) -> list[str]:
    """Return the URLs without the site; assert that lexbor and parsel find the same."""
    fast = LinkExtractor(**arguments).extract_links(page(body))
    if "restrict_xpaths" not in arguments and "restrict_css" not in arguments:
        slow = LinkExtractor(**arguments, restrict_xpaths="/html").extract_links(page(body))
        assert fast == slow
    return [link.url.removeprefix(SITE) for link in fast]


def test_links_are_unique_and_in_the_order_of_the_page() -> None:
    assert LinkExtractor().extract_links(page()) == [
        Link(f"{SITE}/", "Home"),
        Link(f"{SITE}/cart?b=2&a=1", "Cart"),
        Link(f"{SITE}/item/1", "One bold item"),
        Link(f"{SITE}/item/2", "", "specs"),
        Link("https://cdn.other.example/item/4", "Four", nofollow=True),
    ]
    assert urls() == ["/", "/cart?b=2&a=1", "/item/1", "/item/2", "https://cdn.other.example/item/4"]


def test_links_compare_by_value() -> None:
    link = Link("http://a.example/", "a", "f", nofollow=True)
    assert link == Link("http://a.example/", "a", "f", nofollow=True)
    assert link != Link("http://a.example/", "a", "f")
    assert link != "http://a.example/"
    assert len({link, Link("http://a.example/", "a", "f", nofollow=True)}) == 1
    assert repr(link) == "Link('http://a.example/', 'a', fragment='f', nofollow=True)"
    assert page().follow(link).url == link.url


ANY_CASE = re.compile("CART", re.IGNORECASE)


async def _collected(link: Link) -> Any:
    return await collect([link], "parse")


def test_a_link_is_not_an_item() -> None:
    with pytest.raises(BadSpider, match="yielded a Link"), pytest.MonkeyPatch.context():
        _collected(Link("http://a.example/")).send(None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"allow": "item"}, ["/item/1", "/item/2", "https://cdn.other.example/item/4"]),
        ({"allow": [r"/item/\d$", ANY_CASE], "deny": ("2", "4")}, ["/item/1"]),
        ({"allow": [r"/item/\d$", ANY_CASE], "deny": ["4", "2$"]}, ["/cart?b=2&a=1", "/item/1"]),
        ({"allow": (r"/(item)/1", r"/(c)art\?", "nothing")}, ["/cart?b=2&a=1", "/item/1"]),
        ({"allow": (r"(n)othing", r"(t)h(?:e)r\.exampl(e)/i\1\2m")}, ["https://cdn.other.example/item/4"]),
        ({"deny": "item"}, ["/", "/cart?b=2&a=1"]),
        ({"allow_domains": "other.example"}, ["https://cdn.other.example/item/4"]),
        ({"allow_domains": ["er.example"]}, []),
        ({"deny_domains": {"SHOP.example"}}, ["https://cdn.other.example/item/4"]),
        ({"deny_extensions": ["html"], "allow": "item"}, ["/item/1", "/item/2", "/item/3.pdf", "https://cdn.other.example/item/4"]),
        ({"deny_extensions": (), "allow": "pdf"}, ["/item/3.pdf"]),
        ({"restrict_text": "bold"}, ["/item/1"]),
        ({"restrict_text": [re.compile("again"), "^Four$"]}, ["/item/1", "https://cdn.other.example/item/4"]),
        ({"canonicalize": True, "allow": "cart"}, ["/cart?a=1&b=2"]),
        ({"unique": False, "allow": "item/1"}, ["/item/1", "/item/1"]),
        ({"tags": "area"}, ["/item/2"]),
        ({"tags": None}, []),
        ({"attrs": None}, []),
        ({"tags": ("div", "img"), "attrs": ("data-url", "src"), "deny_extensions": ()}, ["/ajax/5", "/pic/5.png"]),
        ({"tags": "*", "attrs": ("href", "data-url"), "allow": ("next", "ajax")}, ["/next", "/ajax/5"]),
        ({"tags": "div", "attrs": "*"}, ["/ajax/5"]),
        ({"tags": "*", "attrs": ["href", "src"], "deny_tags": ("a", "img")}, ["/next", "/item/2"]),
        ({"tags": "*", "attrs": "*", "deny_attrs": "href", "allow": "ajax"}, ["/ajax/5"]),
    ],
)  # fmt: skip
def test_arguments_select_links(arguments: dict[str, Any], expected: list[str]) -> None:
    assert urls(**arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"restrict_css": "nav"}, ["/", "/cart?b=2&a=1"]),
        ({"restrict_css": ("h1", "a.more")}, ["/item/1"]),
        ({"restrict_css": "a.more", "unique": False}, ["/item/1"]),
        ({"restrict_css": "a:contains('Cart')"}, ["/cart?b=2&a=1"]),
        ({"restrict_xpaths": "//nav/a[2]"}, ["/cart?b=2&a=1"]),
        ({"restrict_xpaths": ["//map", "//nav/a[1]"]}, ["/item/2", "/"]),
        ({"restrict_xpaths": "//map", "restrict_css": "nav"}, ["/item/2", "/", "/cart?b=2&a=1"]),
        ({"restrict_css": "footer"}, []),
    ],
)
def test_only_the_given_regions_are_searched(arguments: dict[str, Any], expected: list[str]) -> None:
    assert urls(**arguments) == expected


def test_css_that_lexbor_knows_does_not_build_a_second_tree() -> None:
    response = page()
    LinkExtractor(restrict_css="main").extract_links(response)
    assert "selector" not in vars(response)
    LinkExtractor(restrict_css="a:contains('x')").extract_links(response)
    assert "selector" in vars(response)


def test_process_value_takes_absolute_urls_and_returns_other_urls_or_none() -> None:
    body = """<a href="javascript:go('../other/1.html')">a</a><a href=" 2.html ">b</a>"""
    body += """<a href="http://[x">c</a><a href=n>d</a>"""
    seen = []

    def process(value: str) -> str | None:
        seen.append(value)
        found = re.search(r"go\('(.*?)'", value)
        return found[1] if found else None if value.endswith("/n") else value

    for more in ({}, {"restrict_xpaths": "//body"}):
        extractor = LinkExtractor(process_value=process, **more)
        links = extractor.extract_links(page(body, f"{SITE}/dir/page.html"))
        assert [link.url for link in links] == [f"{SITE}/other/1.html", f"{SITE}/dir/2.html"]
    assert seen[1] == f"{SITE}/dir/2.html"
    LinkExtractor(process_value=process, strip=False).extract_links(page(body, f"{SITE}/dir/page.html"))
    assert seen[-2].endswith(" ")


@pytest.mark.parametrize("base", ["<base href='http://cdn.example/x/'>", "<BASE HREF='http://cdn.example/x/'>"])
def test_links_are_relative_to_the_base_element(base: str) -> None:
    body = f"<head>{base}</head><body><p><a href=y>y</a><a href=/z>z</a>"
    expected = ["http://cdn.example/x/y", "http://cdn.example/z"]
    assert urls(body) == expected
    assert urls(body, restrict_css="p") == urls(body, restrict_xpaths="//p") == expected


def test_a_link_keeps_the_fragment_apart_from_the_url() -> None:
    body = "<a href='#top'>top</a><a href='/a#x'>1</a><a href='/a#y'>2</a><a href='/b #z '>3</a>"
    links = LinkExtractor().extract_links(page(body))
    assert [(link.url.removeprefix(SITE), link.fragment) for link in links] == [
        ("/list?page=1", "top"),
        ("/a", "x"),
        ("/b%20", "z"),
    ]


def test_encodings_and_character_references_are_decoded() -> None:
    body = '<p><a href="/größe?q=größe&amp;c=&euro;">Größe &gt; 1</a>'.encode("iso-8859-15")
    (link,) = LinkExtractor().extract_links(page(body, kind="text/html; charset=iso-8859-15"))
    assert link == Link(f"{SITE}/gr%C3%B6%C3%9Fe?q=gr%C3%B6%C3%9Fe&c=%E2%82%AC", "Größe > 1")


def test_links_of_xhtml_with_namespaces_are_found() -> None:
    body = '<html xmlns="http://www.w3.org/1999/xhtml"><body><a href="/x">x</a></body></html>'
    for arguments in ({}, {"restrict_xpaths": "/*"}):
        links = LinkExtractor(**arguments).extract_links(page(body, kind="application/xml"))
        assert links == [Link(f"{SITE}/x", "x")]


def test_an_empty_href_links_to_the_page_itself() -> None:
    assert urls("<a href>x</a>") == urls("<a href=''>x</a>") == urls("<a href=#>x</a>") == ["/list?page=1"]
    assert urls("") == urls("\x00") == []


def test_xlink_href_of_svg_is_not_a_link() -> None:
    assert urls("<svg><a xlink:href='/x'>x</a></svg>") == []


def test_the_method_matches_checks_patterns_and_domains() -> None:
    extractor = LinkExtractor("ok", "no", "a.example", "b.a.example")
    assert extractor.matches("http://c.a.example/ok")
    assert not extractor.matches("http://a.example/x")
    assert not extractor.matches("http://a.example/ok/no")
    assert not extractor.matches("http://xa.example/ok")
    assert not extractor.matches("http://c.b.a.example/ok")
    assert LinkExtractor(allow_domains="127.0.0.1").matches("http://127.0.0.1:8000/")
    assert LinkExtractor(allow_domains="a.example:81").matches("http://x.a.example:81?q")
    assert not LinkExtractor(allow_domains="a.example:81").matches("http://a.example/")
    assert LinkExtractor(allow_domains="[::1]").matches("http://[::1]/x")


def test_extensions_are_compared_in_lower_case_with_the_path() -> None:
    body = "<a href='/a.PDF?x'>1</a><a href='/b?f=x.pdf'>2</a><a href='/c.tar.gz'>3</a><a href='/pdf'>4</a>"
    assert urls(body) == ["/b?f=x.pdf", "/pdf"]
    assert "pdf" in IGNORED_EXTENSIONS


def test_the_cache_of_verdicts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICTS_MAX", 10)
    extractor = LinkExtractor(allow="[02468]$")
    body = "".join(f"<a href=/{n}>{n}</a>" for n in range(100))
    assert len(extractor.extract_links(page(body))) == 50
    assert len(extractor.extract_links(page(body))) == 50
    assert len(extractor._verdicts) <= 10


def test_links_and_their_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_MAX", 10)
    body = "".join(f"<a href=/{n}>{'x' * 20_000}</a>" for n in range(20))
    links = LinkExtractor().extract_links(page(body))
    assert (len(links), len(links[0].text)) == (10, LINK_TEXT_MAX)


def test_an_extractor_can_be_pickled() -> None:
    extractor = pickle.loads(pickle.dumps(LinkExtractor(allow=["item", "x"], restrict_css="main")))
    assert len(extractor.extract_links(page())) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allow": "["}, "allow of a LinkExtractor: '[' is not a regular expression"),
        ({"deny": ["x", 3]}, "deny of a LinkExtractor: 3 is not a regular expression"),
        ({"restrict_css": "a["}, "restrict_css of a LinkExtractor: 'a[' is not a CSS selector"),
        ({"restrict_xpaths": "//a["}, "restrict_xpaths of a LinkExtractor"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSpider) as caught:
        LinkExtractor(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("xpath", ["//a/@href", "//a/text()", "string(//a)"])
def test_xpath_that_selects_no_elements_is_refused(xpath: str) -> None:
    with pytest.raises(BadSpider, match="select elements"):
        LinkExtractor(restrict_xpaths=xpath).extract_links(page())
