"""Scrapy and Lycosa on the same pages: links, forms, cookies, encodings, followed links, settings (C2).

As in `test_against_scrapy.py`, every difference is listed with its reason.
"""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from lycosa.config import load
from lycosa.config.view import SettingsView
from lycosa.core.errors import BadUrl
from lycosa.core.url import canonicalize
from lycosa.crawl.spiders.forms import FormRequest
from lycosa.crawl.spiders.link_extractor import LinkExtractor
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.cookies import CookieJar
from lycosa.http.core.request import Request
from lycosa.http.public_suffixes import is_suffix

scrapy = pytest.importorskip("scrapy", reason="needs Scrapy: pip install 'lycosa[dev]'")

from tests.crawl.test_against_scrapy import assert_listed, differences  # noqa: E402  needs Scrapy, too

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from Twisted
    from scrapy import http
    from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
    from scrapy.linkextractors import LinkExtractor as ScrapyLinkExtractor
    from scrapy.settings import Settings as ScrapySettings
    from tldextract import TLDExtract

HERE = "http://a.example/d/page.html"
HTML = {"Content-Type": "text/html; charset=utf-8"}
SAMPLE = 150
"""How many real pages the links are compared on."""


def scrapy_page(body: bytes, url: str = HERE, kind: str = HTML["Content-Type"]) -> Any:
    return http.HtmlResponse(url, body=body, headers={"Content-Type": kind})


def lycosa_page(body: bytes, url: str = HERE, kind: str = HTML["Content-Type"]) -> Response:
    return Response(url, 200, {"Content-Type": kind}, body)


# --------------------------------------------------------------------------------------------------------------- links

PAGES: dict[str, bytes] = {
    "plain": b"<a href=x>X</a><a href='/y?b=2&amp;a=1'>Y <b>bold</b></a><area href=z alt=no>"
    b"<a href=//b.example/c>c</a>",
    "base": b"<base href='/other/'><a href=x>x</a>",
    "base elsewhere": b"<base href='https://b.example/e/'><a href=x>x</a><a href=/y>y</a>",
    "base late": b"<a href=x>x</a>" + b" " * 5000 + b"<base href='/other/'>",
    "twice": b"<a href=x>first</a><a href=x>second</a><a href='x#part'>third</a>",
    "blanks": b"<a href=' x '>1</a><a href='\n/y\n'>2</a><a href='a b'>3</a><a href='t\tu'>4</a>",
    "no links": b"<a>none</a><a href>empty</a><a href=''>blank</a><a name=x>anchor</a>",
    "schemes": b"<a href=mailto:x@y>m</a><a href='javascript:void(0)'>j</a><a href=ftp://a.example/f>f</a>"
    b"<a href=tel:1>t</a><a href=data:x>d</a><a href=about:blank>b</a>",
    "credentials": b"<a href='http://u:p@a.example/'>in</a>",
    "bad": b"<a href='http://[bad'>1</a><a href='http://'>2</a><a href='http:///x'>3</a>"
    b"<a href='//'>4</a><a href=ok>ok</a>",
    "unicode": "<a href='/ä?ö=ü'>ä</a><a href='http://bücher.example/'>b</a><a href='/%E4'>e</a>".encode(),
    "escapes": b"<a href='/a%20b'>1</a><a href='/%zz'>2</a><a href='/a|b'>3</a><a href='/a{b}'>4</a>",
    "dots": b"<a href='../../../x'>1</a><a href='./y'>2</a><a href='a/./b/../c'>3</a>",
    "entities": b"<a href='?a=1&amp;copy=2&lt=3'>e</a><a href='?x=&#228;'>n</a>",
    "broken markup": b"<p><a href=1>one<p><a href=2>two</a></p><div><a href=3 href=4>three</div><a href=5",
    "comments": b"<!-- <a href=no>no</a> --><script>'<a href=no2>'</script><noscript><a href=n>n</a></noscript>"
    b"<template><a href=t>t</a></template><textarea><a href=x>x</a></textarea>",
    "upper case": b"<A HREF=UP>up</A><a HrEf='mIx'>mix</a>",
    "nested": b"<div>" * 300 + b"<a href=deep>deep</a>",
    "nul": b"<a href='a\x00b'>nul</a><a href=after>after</a>",
    "extensions": b"<a href=a.pdf>p</a><a href=b.JPG>j</a><a href=c.html>h</a>"
    b"<a href=d.zip?x>z</a><a href=e.pdf.html>e</a>",
    "nofollow": b"<a rel=nofollow href=n>n</a><a rel='ugc nofollow' href=m>m</a>",
    "backslashes": b"<a href='\\x\\y'>b</a>",
    "query": b"<a href='?'>q</a><a href='?a'>a</a><a href='?a=1#f'>f</a>",
    "frameset": b"<frameset><frame src=f></frameset>",
}
LINKS_DIFFER = {
    "base late": "the base of the document applies wherever it stands, as in browsers; Scrapy reads 4,096 bytes",
    "schemes": "ftp cannot be fetched",
    "credentials": "URLs hold no passwords",
    "comments": "elements in a template or a textarea are no links of the page (HTML)",
    "backslashes": "backslashes are slashes (WHATWG URL)",
    "bad": "`http:///x` has the host x, and `//` is invalid (WHATWG URL)",
    "escapes": "`|` needs no escape in a path (WHATWG URL)",
    "broken markup": "a link that is never closed ends at the next one (HTML)",
    "nul": "NUL is U+FFFD (HTML)",
    "query": "an empty query is a query (WHATWG URL)",
}


def both_links(body: bytes, url: str = HERE) -> tuple[Any, Any]:
    theirs = ScrapyLinkExtractor().extract_links(scrapy_page(body, url))
    ours = LinkExtractor().extract_links(lycosa_page(body, url))
    return canonical(theirs), [(link.url, link.text) for link in ours]


def canonical(links: list[Any]) -> list[tuple[str, str]]:
    """Return each URL once, in our normal form (without a fragment), with the text of its first link."""
    found: dict[str, str] = {}
    for link in links:
        try:
            found.setdefault(canonicalize(link.url), link.text)
        except BadUrl:
            found.setdefault(link.url, link.text)
    return list(found.items())


def test_links_of_difficult_pages_equal_scrapys() -> None:
    assert_listed(differences(PAGES, lambda name: both_links(PAGES[name])), LINKS_DIFFER)


@pytest.mark.site
def test_links_of_real_pages_equal_scrapys(docs_root: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    pages = sorted(path for path in docs_root.rglob("*.html") if path.is_file() and path.stat().st_size < 200_000)
    sample = random.Random(seed).sample(pages, SAMPLE)
    found = differences(sample, both_urls)
    assert found == {}


def both_urls(path: Path) -> tuple[list[str], list[str]]:
    """Return the URLs that can be fetched, without the texts of links.

    The texts of nested links, which HTML forbids, differ.
    """
    body, url = path.read_bytes(), f"http://a.example{path}"
    theirs = canonical(ScrapyLinkExtractor(deny_extensions=()).extract_links(scrapy_page(body, url)))
    ours = LinkExtractor(deny_extensions=()).extract_links(lycosa_page(body, url))
    return [url for url, _ in theirs if is_canonical(url)], [link.url for link in ours]


def is_canonical(url: str) -> bool:
    try:
        return canonicalize(url) == url
    except BadUrl:
        return False


# --------------------------------------------------------------------------------------------------------------- forms

FORMS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "fields": (b"<form action=/s method=post><input name=a value=1><input type=hidden name=b value=2></form>", {}),
    "get": (b"<form action=/s><input name=a value='x y'><input name=b value='\xc3\xa4'></form>", {}),
    "get over a query": (b"<form action='/s?old=1'><input name=a value=1></form>", {}),
    "data": (b"<form method=post><input name=a value=1><input name=b></form>", {"formdata": {"b": "2"}}),
    "removed": (b"<form method=post><input name=a value=1><input name=b value=2></form>", {"formdata": {"a": None}}),
    "several values": (b"<form method=post><input name=a value=1></form>", {"formdata": {"a": ["2", "3"]}}),
    "checkboxes": (b"<form><input type=checkbox name=a><input type=checkbox name=b checked value=y></form>", {}),
    "checked, no value": (b"<form><input type=checkbox name=a checked></form>", {}),
    "radio": (b"<form><input type=radio name=a value=1><input type=radio name=a value=2 checked></form>", {}),
    "select": (b"<form><select name=a><option value=1>x<option value=2 selected>y</select></form>", {}),
    "select, none": (b"<form><select name=a><option value=1>x<option value=2>y</select></form>", {}),
    "select, text": (b"<form><select name=a><option>one<option selected>two</select></form>", {}),
    "multiple": (b"<form><select name=a multiple><option selected>1<option>2<option selected>3</select></form>", {}),
    "textarea": (b"<form><textarea name=a>some text</textarea></form>", {}),
    "submit": (b"<form><input name=a value=1><input type=submit name=go value=Go></form>", {}),
    "two submits": (b"<form><input type=submit name=go value=1><input type=submit name=go2 value=2></form>", {}),
    "clicked": (
        b"<form><input type=submit name=go value=1><input type=submit name=go2 value=2></form>",
        {"clickdata": {"name": "go2"}},
    ),
    "not clicked": (b"<form><input name=a value=1><input type=submit name=go value=1></form>", {"dont_click": True}),
    "button": (b"<form><button name=b value=1>x</button><input name=a value=2></form>", {}),
    "no name": (b"<form><input value=1><input name=a value=2></form>", {}),
    "second": (b"<form action=/1></form><form action=/2><input name=a value=1></form>", {"formnumber": 1}),
    "by id": (b"<form id=x action=/1></form><form id=y action=/2></form>", {"formid": "y"}),
    "by name": (b"<form name=x action=/1></form><form name=y action=/2></form>", {"formname": "y"}),
    "by css": (b"<form action=/1></form><form class=c action=/2></form>", {"formcss": "form.c"}),
    "by xpath": (b"<form action=/1></form><form action=/2><input name=q></form>", {"formxpath": "//input[@name='q']"}),
    "no action": (b"<form><input name=a value=1></form>", {}),
    "relative": (b"<form action='../s'><input name=a value=1></form>", {}),
    "base": (b"<base href=/e/><form action=s><input name=a value=1></form>", {}),
    "method": (b"<form><input name=a value=1></form>", {"method": "POST"}),
    "unknown method": (b"<form method=put><input name=a value=1></form>", {}),
    "disabled": (b"<form><input name=a value=1 disabled><input name=b value=2></form>", {}),
    "fieldset": (b"<form><fieldset disabled><input name=a value=1></fieldset><input name=b value=2></form>", {}),
    "form attribute": (b"<form id=f><input name=a value=1></form><input name=b value=2 form=f>", {}),
    "image": (b"<form><input name=a value=1><input type=image name=i value=x></form>", {}),
    "formaction": (b"<form action=/1><button formaction=/2 name=b value=1>x</button></form>", {}),
    "multipart": (b"<form method=post enctype=multipart/form-data><input name=a value=1></form>", {}),
    "get without fields": (b"<form action='/s?old=1'></form>", {}),
    "empty action and base": (b"<base href=/e/><form action=''><input name=a value=1></form>", {}),
    "lines": (b"<form><textarea name=a>\none\ntwo</textarea></form>", {}),
}
FORMS_DIFFER = {
    "disabled": "HTML: disabled fields are not sent",
    "fieldset": "as above",
    "form attribute": "HTML: a field belongs to the form that it names",
    "image": "HTML: an image sends the position of the click",
    "formaction": "HTML: the formaction of the clicked button overrides the action of the form",
    "multipart": "HTML: enctype selects the encoding of the body, here multipart",
    "get without fields": "HTML: the fields replace the query, even if there are none",
    "empty action and base": "HTML: an empty action is the page itself, not its base",
    "lines": "HTML: lines end in CRLF, and the first line end is not part of the text",
}


def both_forms(name: str) -> tuple[Any, Any]:
    body, arguments = FORMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in Scrapy
        theirs = http.FormRequest.from_response(scrapy_page(body), **arguments)
    ours = FormRequest.from_response(lycosa_page(body), **arguments)
    return normalized(theirs.url, theirs.method, theirs.body), normalized(ours.url, ours.method, ours.body)


def normalized(url: str, method: str, body: bytes) -> tuple[Any, ...]:
    """Return the parts of a submitted form; the order of its fields is ignored."""
    parts = urlsplit(url)
    fields = parse_qsl(parts.query, keep_blank_values=True) + parse_qsl(body.decode(), keep_blank_values=True)
    return parts.scheme, parts.netloc, parts.path, method, sorted(fields)


def test_submitted_forms_equal_scrapys() -> None:
    assert_listed(differences(FORMS, both_forms), FORMS_DIFFER)


# ------------------------------------------------------------------------------------------------------------- cookies

HISTORIES: dict[str, list[tuple[str, list[str]]]] = {
    "sent back": [("http://a.example/", ["a=1"]), ("http://a.example/x", [])],
    "other host": [("http://a.example/", ["a=1"]), ("http://b.example/", [])],
    "overwritten": [("http://a.example/", ["a=1"]), ("http://a.example/", ["a=2; Path=/"]), ("http://a.example/", [])],
    "path": [("http://a.example/", ["a=1; Path=/d"]), ("http://a.example/", []), ("http://a.example/d/x", [])],
    "default path": [("http://a.example/d/x", ["a=1"]), ("http://a.example/", []), ("http://a.example/d/y", [])],
    "domain": [("http://w.a.example/", ["a=1; Domain=a.example"]), ("http://x.a.example/", [])],
    "foreign domain": [
        ("http://a.example/", ["a=1; Domain=b.example"]),
        ("http://b.example/", []),
        ("http://a.example/", []),
    ],
    "expired": [
        ("http://a.example/", ["a=1"]),
        ("http://a.example/", ["a=; Max-Age=0; Path=/"]),
        ("http://a.example/", []),
    ],
    "old date": [("http://a.example/", ["a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]), ("http://a.example/", [])],
    "secure": [("https://a.example/", ["a=1; Secure"]), ("http://a.example/", []), ("https://a.example/", [])],
    "several": [("http://a.example/", ["a=1", "b=2", "c=3"]), ("http://a.example/", [])],
    "quoted": [("http://a.example/", ['a="x y"']), ("http://a.example/", [])],
    "equals": [("http://a.example/", ["a=b=c"]), ("http://a.example/", [])],
    "port": [("http://a.example:8080/", ["a=1"]), ("http://a.example/", [])],
    "longer paths first": [("http://a.example/d/x", ["a=1; Path=/", "b=2; Path=/d"]), ("http://a.example/d/x", [])],
    "suffix": [("http://a.co.uk/", ["a=1; Domain=co.uk"]), ("http://b.co.uk/", [])],
    "subdomain": [("http://a.example/", ["a=1"]), ("http://www.a.example/", [])],
    "secure from http": [("http://a.example/", ["a=1; Secure"]), ("https://a.example/", [])],
    "bad path": [("http://a.example/", ["a=1; Path=x"]), ("http://a.example/", [])],
    "prefix": [("https://a.example/", ["__Host-a=1; Secure; Path=/; Domain=a.example"]), ("https://a.example/", [])],
    "localhost": [("http://localhost/", ["a=1; Domain=localhost"]), ("http://localhost/", [])],
}
COOKIES_DIFFER = {
    "subdomain": "without Domain a cookie is for its host only (RFC 6265 §5.4)",
    "secure from http": "http cannot set secure cookies (RFC 6265bis §5.7)",
    "bad path": "a path without a leading slash is ignored: the default path applies (RFC 6265 §5.2.4)",
    "prefix": "__Host- forbids a Domain (RFC 6265bis §4.1.3)",
    "localhost": "localhost may be its own Domain",
}


def both_cookies(name: str) -> tuple[list[str], list[str]]:
    """Return the Cookie headers that Scrapy and Lycosa send along the history."""
    middleware, jar = CookiesMiddleware(), CookieJar(is_suffix)
    theirs, ours = [], []
    for url, lines in HISTORIES[name]:
        request = http.Request(url)
        middleware.process_request(request)
        theirs.append((request.headers.get("Cookie") or b"").decode())
        ours.append(jar.header(url, 1e9))
        middleware.process_response(request, http.Response(url, headers={"Set-Cookie": lines}))
        jar.set_from(url, lines, 1e9)
    return theirs, ours


def test_sent_cookies_equal_scrapys(monkeypatch: pytest.MonkeyPatch) -> None:
    offline = TLDExtract(suffix_list_urls=(), include_psl_private_domains=True)
    monkeypatch.setattr(f"{CookiesMiddleware.__module__}._split_domain", offline)  # the original would use the network
    assert_listed(differences(HISTORIES, both_cookies), COOKIES_DIFFER)


# ----------------------------------------------------------------------------------------------------------- responses

TEXTS: dict[str, tuple[bytes, str]] = {
    "header": ("Größe".encode("cp1252"), "text/html; charset=iso-8859-1"),
    "meta": ('<meta charset="windows-1251"><p>привет'.encode("cp1251"), "text/html"),
    "header before meta": ('<meta charset="utf-8"><p>Größe'.encode("cp1252"), "text/html; charset=iso-8859-1"),
    "bom before header": (b"\xef\xbb\xbf" + "Größe".encode(), "text/html; charset=iso-8859-1"),
    "utf-16 bom": ("Größe".encode("utf-16"), "text/html"),
    "no label, utf-8": ("<p>Größe".encode(), "text/html"),
    "no label, cp1252": ("<p>Größe".encode("cp1252"), "text/html"),
    "http-equiv": (b'<meta http-equiv=content-type content="text/html; charset=gb2312"><p>\xc4\xe3', "text/html"),
    "unknown label": ("Größe".encode(), "text/html; charset=x-klingon"),
    "wrong bytes": (b"<p>a\xffb", "text/html; charset=utf-8"),
}


def test_texts_of_responses_equal_scrapys() -> None:
    def both(name: str) -> tuple[str, str]:
        body, kind = TEXTS[name]
        return scrapy_page(body, kind=kind).text, lycosa_page(body, kind=kind).text

    reason = "without a label we take UTF-8 or windows-1252; Scrapy guesses, here an Arabic code page"
    assert_listed(differences(TEXTS, both), {"no label, cp1252": reason})


FOLLOWED = ("x", "/y", "?z", "#f", " b ", "http://b.example", "//c.example/", "ä", "a b", "", "../up", "x?ä=ö")


def test_followed_links_equal_scrapys() -> None:
    def both(link: str) -> tuple[str, str]:
        return canonicalize(scrapy_page(b"").follow(link).url), canonicalize(lycosa_page(b"").follow(link).url)

    assert_listed(differences(FOLLOWED, both), {})


def test_selectors_return_the_same_as_scrapys() -> None:
    body = b"<title>T</title><ul><li class=a>1<li>2</ul><a href=x>x</a><p>text \xc3\xa4</p>"
    theirs, ours = scrapy_page(body), lycosa_page(body)
    for query in ("title::text", "li::text", "li.a::text", "a::attr(href)", "p::text", "none::text"):
        assert theirs.css(query).getall() == ours.css(query).getall()
    for query in ("//li/text()", "count(//li)", "//a/@href", "//li[contains(., $x)]"):
        variables = {"x": "1"} if "$x" in query else {}
        assert theirs.xpath(query, **variables).getall() == ours.xpath(query, **variables).getall()
    body = b'{"a": {"b": [1, "two", null]}}'
    theirs, ours = http.JsonResponse(HERE, body=body), lycosa_page(body, kind="application/json")
    for query in ("a.b[0]", "a.b[1]", "a.b", "none"):
        assert theirs.jmespath(query).getall() == ours.jmespath(query).getall()
    assert theirs.json() == ours.json()


def test_attributes_of_a_followed_request_equal_scrapys() -> None:
    theirs = scrapy_page(b"").follow("x", method="POST", headers={"A": "b"}, meta={"k": 1}, priority=3, flags=["f"])
    ours = lycosa_page(b"").follow("x", method="POST", headers={"A": "b"}, meta={"k": 1}, priority=3, flags=["f"])
    for name in ("url", "method", "body", "meta", "priority", "dont_filter", "flags", "cb_kwargs", "encoding"):
        assert getattr(theirs, name) == getattr(ours, name), name
    assert theirs.headers.to_unicode_dict() == dict(ours.headers)


def test_bodies_of_requests_equal_scrapys() -> None:
    for body in (None, "", b"", "ä", b"\xff", "x"):
        assert scrapy.Request(HERE, body=body).body == Request(HERE, body=body).body
    assert scrapy.Request(HERE, body="ä", encoding="latin-1").body == Request(HERE, body="ä", encoding="latin-1").body


# ------------------------------------------------------------------------------------------------------------ settings

USER_SETTINGS: dict[str, Any] = {
    "NUMBER": 5, "TEXT_NUMBER": "7", "FLOAT": "1.5", "YES": "True", "NO": "0", "ONE": 1, "LIST": "a,b", "ITEMS": ["x"],
    "DICT": '{"a": 1}', "NONE": None,
}  # fmt: skip
GETTERS = [
    *(("getbool", name) for name in ("YES", "NO", "ONE", "MISSING")),
    *(("getint", name) for name in ("NUMBER", "TEXT_NUMBER", "MISSING")),
    *(("getfloat", name) for name in ("FLOAT", "NUMBER", "MISSING")),
    *(("getlist", name) for name in ("LIST", "ITEMS", "MISSING")),
    *(("getdict", name) for name in ("DICT", "MISSING")),
    *(("get", name) for name in ("NUMBER", "LIST", "MISSING", "NONE")),
    *(("getfloat", name) for name in ("DOWNLOAD_DELAY",)),
    *(("getint", name) for name in ("RETRY_TIMES", "DEPTH_LIMIT", "REDIRECT_MAX_TIMES", "CLOSESPIDER_ITEMCOUNT")),
    *(("getbool", name) for name in ("COOKIES_ENABLED", "ROBOTSTXT_OBEY", "HTTPCACHE_ENABLED", "AUTOTHROTTLE_ENABLED")),
    *(("getlist", name) for name in ("HTTPERROR_ALLOWED_CODES",)),
]
SETTINGS_DIFFER = {("getbool", "ROBOTSTXT_OBEY"): "robots.txt is obeyed by default"}


def test_getters_of_settings_equal_scrapys() -> None:
    theirs = ScrapySettings(USER_SETTINGS)
    ours = SettingsView(load({}, spider_settings={"user": USER_SETTINGS}, environ={}, folder=Path("/dev/null")))
    found = differences(GETTERS, lambda case: (getattr(theirs, case[0])(case[1]), getattr(ours, case[0])(case[1])))
    assert_listed(found, SETTINGS_DIFFER)
