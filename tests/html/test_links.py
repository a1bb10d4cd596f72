"""Links, found and resolved as in browsers (C10), on hand-written and random pages."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadUrl
from lycosa.core.url import URL_MAX, fingerprint, host_key
from lycosa.html import links as links_module
from lycosa.html.links import CACHED_LENGTH_MAX, LINKS_MAX, extract_links, join
from lycosa.html.page import parse_html

BASE = "https://example.com/dir/page.html?q=1"


def urls(html: str | bytes, base_url: str = BASE) -> list[str]:
    body = html if isinstance(html, bytes) else html.encode()
    return [link.url for link in extract_links(body, base_url)]


def test_link_has_its_fingerprint_and_host_key() -> None:
    (link,) = extract_links(parse_html(b"<a href=/x>", "utf-8"), BASE)
    assert link == ("https://example.com/x", fingerprint("GET", link.url), host_key(link.url), False)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<a href="a">', "https://example.com/dir/a"),
        ("<area href=/a>", "https://example.com/a"),
        ("<iframe src=a></iframe>", "https://example.com/dir/a"),
        ("<frameset><frame src=a></frameset>", "https://example.com/dir/a"),
        ("<link rel=next href=a>", "https://example.com/dir/a"),
        ("<link rel='foo CANONICAL' href=a>", "https://example.com/dir/a"),
        ("<link rel=alternate href=a>", "https://example.com/dir/a"),
        ("<meta http-equiv=Refresh content='5; URL=a'>", "https://example.com/dir/a"),
        ("<meta http-equiv=refresh content='0;url=\"a\"x'>", "https://example.com/dir/a"),
        ("<meta http-equiv=refresh content=\"0, 'a'\">", "https://example.com/dir/a"),
        ("<meta http-equiv=refresh content='1.5 a'>", "https://example.com/dir/a"),
        ("<A HREF='a?x=1&amp;y=2&copy=3'>", "https://example.com/dir/a?x=1&y=2&copy=3"),
        ("<a href='  a\n'>", "https://example.com/dir/a"),
        ("<a href='/a\tb\nc'>", "https://example.com/abc"),
        ("<a href='\x01/a\x1f'>", "https://example.com/a"),
        ("<a href>", BASE),
        ("<a href=''>", BASE),
        ("<a href='#x'>", BASE),
        ("<a href=' #x'>", BASE),
        ("<a href='a #x'>", "https://example.com/dir/a%20"),
        ("<a href='?r=2'>", "https://example.com/dir/page.html?r=2"),
        ("<a href='https:?r=2'>", "https://example.com/dir/page.html?r=2"),
        ("<a href='https:x'>", "https://example.com/dir/x"),
        ("<a href='http:x'>", "http://x/"),
        ("<a href='//other.example'>", "https://other.example/"),
        ("<a href='HTTP://OTHER.example:80/#a'>", "http://other.example/"),
        ("<a href='http://other.example/a'>", "http://other.example/a"),
        ("<a href='..\\x'>", "https://example.com/x"),
        ("<a href='a:b/c'><a href='./a:b'>", "https://example.com/dir/a:b"),
        ("<a href='ü'>", "https://example.com/dir/%C3%BC"),
        ("<noscript><a href=a></a></noscript>", "https://example.com/dir/a"),
        ("<svg><a href=a></a></svg>", "https://example.com/dir/a"),
    ],
)
def test_elements_that_are_links(html: str, expected: str) -> None:
    assert urls(html) == [expected]


@pytest.mark.parametrize(
    "html",
    [
        "<!-- <a href=a> -->",
        "<script>'<a href=a>'</script>",
        "<style><a href=a></style>",
        "<template><a href=a></a></template>",
        "<textarea><a href=a></textarea>",
        "<img src=a><script src=a></script><form action=a></form><use href=a>",
        "<link rel=stylesheet href=a><link href=a><link rel='alternate stylesheet' href=a><link rel=next>",
        "<meta http-equiv=refresh content=5><meta http-equiv=refresh content='url=a'><meta name=x content='5;url=a'>",
        "<meta http-equiv=refresh content='5;'>",
        "<a href=javascript:void(0)><a href='JavaScript:x'><a href='java\nscript:x'><a href=mailto:a@b>",
        "<a href=data:text/html,x><a href=tel:+1><a href=ftp://example.com/><a href='http://['><a href='//a b/'>",
        "<a href='http://anna:geheim@example.com/'>",
        "<svg><a xlink:href=a></a></svg>",
        "<a>no href</a>",
        "<iframe></iframe><iframe src></iframe>",
    ],
)
def test_elements_that_are_not_links(html: str) -> None:
    assert urls(html) == []


def test_links_are_unique_and_in_document_order() -> None:
    html = "<link rel=next href=n><a href=b><iframe src=c></iframe><a href='b#x'><a href='./b'><area href=a>"
    assert urls(html) == [f"https://example.com/dir/{name}" for name in "nbca"]
    assert urls(html + "<a href=/dir/c>") == urls(html)


def test_first_base_with_an_href_counts() -> None:
    assert urls("<base target=x><base href=/b/><base href=/c/><a href=a><a href='#f'>") == [
        "https://example.com/b/a",
        "https://example.com/b/",
    ]
    assert urls("<base href='javascript:x'><a href=a>") == ["https://example.com/dir/a"]
    assert urls("<base href=//other.example><a href=a>") == ["https://other.example/a"]


def test_nofollow_only_if_every_element_with_the_url_says_so() -> None:
    html = (
        b"<a rel='me NoFollow' href=a><a rel=nofollow href=b><a href=b><a href=c><a rel=nofollow href=./c>"
        b"<a rel href=d><a rel=nofollow href=e><a href=./e>"
        b"<a href=f><a rel=nofollow href=f>"
    )
    marks = {link.url[-1]: link.nofollow for link in extract_links(html, BASE)}
    assert marks == {"a": True, "b": False, "c": False, "d": False, "e": False, "f": False}


@pytest.mark.parametrize(("content", "nofollow"), [("index,NoFollow", True), ("none", True), ("noindex", False)])
def test_meta_robots_nofollow_applies_to_every_link(content: str, nofollow: bool) -> None:
    html = f"<meta name=Robots content='{content}'><meta name=robots content=all><a href=a><iframe src=b>"
    assert [link.nofollow for link in extract_links(html.encode(), BASE)] == [nofollow, nofollow]


def test_number_and_length_of_links_are_bounded() -> None:
    with_many = b"".join(b"<a href=%d>" % number for number in range(LINKS_MAX + 10))
    assert len(extract_links(with_many, BASE)) == LINKS_MAX
    assert urls("<a href='" + "a" * URL_MAX + "'>") == []
    long = "a" * (CACHED_LENGTH_MAX + 1)
    assert urls(f"<a href={long}>", f"https://example.com/{long}/x") == [f"https://example.com/{long}/{long}"]


def test_encoding_is_respected_and_a_bad_base_url_raises() -> None:
    html = "<a href='ü'>".encode("latin-1")
    assert extract_links(html, BASE, "windows-1252")[0].url == "https://example.com/dir/%C3%BC"
    with pytest.raises(BadUrl):
        extract_links(b"", "example.com")


HREFS = (
    st.text(alphabet="../")
    | st.text(alphabet="ab-/.?=")
    | st.text(alphabet="ahtps:/.?#@\\ \t\n%[]0\x00é", max_size=12)
    | st.sampled_from(
        [
            "https:",
            "http:a",
            "HTTPS:/x",
            "//",
            "///a",
            "/\\a",
            "..",
            "https://",
            "http:?",
            "https:#",
            "./?",
            " ?x",
            "\t",
            ":",
        ]
    )
)
BASES = st.sampled_from(
    [
        BASE,
        "https://example.com/",
        "http://example.com:8080/a/b/?c/d",
        "http://[::1]/a;b/c?",
        "https://a/b//c/d?x=//y",
    ]
)


@given(HREFS, BASES)
def test_cache_does_not_affect_how_an_href_is_resolved(href: str, base_url: str) -> None:
    """The cache has a part of the base URL as its key; the result is that of the whole base URL."""
    links = links_module._resolved({links_module._unfragmented(href): False}, base_url, nofollow=False)
    expected = join(base_url, href)
    assert [link.url for link in links] == ([] if expected is None else [expected])


PIECES = "<a href= <base href= <link rel=next <meta http-equiv=refresh content='0;url= <iframe src= > ' \" /a <!-- --> "
PIECES += "<script> </script> <template> & &amp; &#0; \x00 é rel=nofollow <svg> name=robots content=none xlink:href=b #"


def test_random_pages_never_raise() -> None:
    seed = 20_261_121
    rng = random.Random(seed)
    for _ in range(1000):
        pieces = [*PIECES.split(" "), " ", rng.randbytes(3).decode("latin-1")]
        html = "".join(rng.choices(pieces, k=30)).encode(rng.choice(["utf-8", "latin-1", "utf-16"]))
        for link in extract_links(html, BASE, rng.choice(["utf-8", "windows-1252", "utf-16-le"])):
            assert join(link.url, "") == link.url, f"seed {seed}"


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(html: bytes) -> None:
    extract_links(html, BASE)
