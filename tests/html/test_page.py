"""Title, headings, visible text and language of a page, and the tree they are read from."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.html.links import extract_links
from lycosa.html.page import HEADING_MAX, HEADINGS_MAX, TEXT_MAX, TITLE_MAX, PageText, extract_page, parse_html


def page(html: str, content_language: str = "") -> PageText:
    return extract_page(parse_html(html.encode(), "utf-8"), content_language)


def test_text_of_a_complete_page() -> None:
    html = """<!doctype html><html lang="en-GB"><head><title> A
      title </title><style>p {}</style></head><body><h1>One</h1><p>First.</p><h2>Two <b>and</b></h2><p>Second.</p>"""
    assert page(html) == PageText("A title", ["One", "Two and"], "One First. Two and Second.", "en-gb")


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>a</title><h1>b</h1>", "a"),
        ("<title> </title><meta property=og:title content=' c  d '><h1>b</h1>", "c d"),
        ("<meta property=og:title content><h2>x</h2><h1>b <i>c</i></h1>", "b c"),
        ("<h2>x</h2>", "x"),
        ("<p>text", ""),
        ("<p>text<title>late</title>", "late"),
        ("<p><svg><title>icon</title></svg><title>late</title>", "late"),
        ("<title>&lt;b&gt; &amp;</title>", "<b> &"),
        ("<title>" + "a" * 5000 + "</title>", "a" * TITLE_MAX),
        ("", ""),
    ],
)
def test_title_comes_from_title_meta_or_heading(html: str, title: str) -> None:
    assert page(html).title == title


def test_headings_are_in_document_order_and_bounded() -> None:
    assert page("<h3>c</h3><h1> a\n</h1><h6></h6><h6>f<script>x</script></h6>").headings[:2] == ["c", "a"]
    with_many = page("<h1>x</h1>" * (HEADINGS_MAX + 5) + "<h2>" + "y" * 5000)
    assert len(with_many.headings) == HEADINGS_MAX
    assert page("<h2>" + "y" * 5000).headings == ["y" * HEADING_MAX]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a</p><p>b</p>", "a b"),
        ("<table><tr><td>Name</td><td>Age</td></tr></table>", "Name Age"),
        ("<ul><li>a<li>b</ul>c<br>d<hr>e", "a b c d e"),
        ("a  b\n\tc&nbsp;d", "a b c d"),
        ("<p>see <a>here</a>, <i>there</i>; <b>(now</b>).</p>", "see here, there; (now)."),
        ("edit <code>x</code> <code>.gitignore</code>", "edit x .gitignore"),
        ("<td><code>a</code><code>.b</code>", "a .b"),
        ("<p>a<script>var x='b';</script>c", "a c"),
        ("a<script>b</script> b <script>b</script>c", "a b c"),
        ("a<style>b</style><noscript><style>s</style>please <b>enable</b></noscript>c", "a c"),
        ("a<noscript>b<noscript>c</noscript></noscript>d", "a d"),
        ("a<iframe><p>old</p></iframe><template>no</template><!-- no -->b", "a b"),
        ("a<script></script><script>b</script>", "a"),
        ("<head><title>no</title></head>a", "a"),
        ("<pre>a\n  b</pre>", "a b"),
        ("日本<b>語</b>", "日本 語"),
        ("<frameset><frame src=a><noframes>no</noframes></frameset>", ""),
        ("", ""),
    ],
)
def test_visible_text(html: str, text: str) -> None:
    assert page(html).text == text


def test_text_is_bounded() -> None:
    assert len(page("ab " * TEXT_MAX).text) == TEXT_MAX


@pytest.mark.parametrize(
    ("html", "header", "lang"),
    [
        ("<html lang=EN>", "de", "en"),
        ("<html lang=' zh_CN '>", "", "zh-cn"),
        ("<html lang='zh-Hant-TW'>", "", "zh-hant-tw"),
        ("<html xml:lang=fr>", "de", "fr"),
        ("<html lang=''>", "de-AT, en", "de-at"),
        ("<html lang>", "", ""),
        ("<html lang='<script>'>", "de", "de"),
        ("<html lang='english please'>", "", ""),
        ("<html lang=" + "a-" * 50 + "a>", "", ""),
        ("<p>", "x" * 100, ""),
    ],
)
def test_language_comes_from_the_page_or_the_header(html: str, header: str, lang: str) -> None:
    assert page(html, header).lang == lang


def test_extraction_does_not_change_the_tree() -> None:
    tree = parse_html(b"<h1>a</h1><script>{'json': 1}</script><noscript><a href=b>b</a></noscript>", "utf-8")
    before = tree.html
    first = extract_page(tree)
    assert tree.html == before
    assert extract_page(tree) == first
    assert [link.url for link in extract_links(tree, "https://example.com/")] == ["https://example.com/b"]


@pytest.mark.parametrize(
    ("body", "encoding", "text"),
    [
        ("Grüße".encode(), "utf-8", "Grüße"),
        ("\ufeffGrüße".encode(), "utf-8", "Grüße"),
        (b"a\xff\xe4b", "utf-8", "a\ufffd\ufffdb"),
        ("Grüße".encode("latin-1"), "windows-1252", "Grüße"),
        ("<meta charset=utf-8>Grüße".encode("latin-1"), "windows-1252", "Grüße"),
        ("<meta charset=latin-1>Grüße".encode(), "utf-8", "Grüße"),
        ("\ufeff日本".encode("utf-16-le"), "utf-16-le", "日本"),
        ("日本".encode("euc_jp"), "euc_jp", "日本"),
        (b"+2AA-", "utf-7", "?"),
        (b"", "utf-8", ""),
    ],
)
def test_parse_html_uses_the_given_encoding(body: bytes, encoding: str, text: str) -> None:
    assert extract_page(parse_html(body, encoding)).text == text


def test_unknown_encoding_raises_lookup_error() -> None:
    with pytest.raises(LookupError):
        parse_html(b"x", "no such encoding")


@given(st.binary(max_size=300) | st.text(alphabet="<>/abh1sctitle &;'\"=!-\x00\x1f ", max_size=120).map(str.encode))
def test_random_bytes_never_raise(body: bytes) -> None:
    result = extract_page(parse_html(body, "utf-8"))
    assert "\x1f" not in result.text
    assert result.text == " ".join(result.text.split())


SEARCH_WITHIN_A_SEARCH = """
import gc
from lycosa.html.page import parse_html

tree, other = parse_html(b"<ul>" + b"<li>a<b>c</b>" * 50, "utf-8"), parse_html(b"<b>x", "utf-8")
late = []

class Late:
    def __init__(self):
        self.me = self  # only the garbage collector finds it

    def __del__(self):
        late.append((tree.selector is not usual, len(other.css("b")), len(tree.css("b"))))

usual = tree.selector
gc.set_threshold(3)
for _ in range(100):
    Late()
    assert [node.tag for node in tree.css("li")] == ["li"] * 50
gc.disable()
print(*sorted(set(late)))
"""


MATCH_AROUND_A_SEARCH = """
import gc
from lycosa.html.page import parse_html

tree, other = parse_html(b"<ul>" + b"<li>a<b>c</b>" * 50, "utf-8"), parse_html(b"<b>x", "utf-8")

class Late:
    def __init__(self):
        self.me = self

    def __del__(self):
        other.css("b")

held = []
for each in range(1, 40):
    gc.set_threshold(0)
    gc.collect()
    Late()
    held.append([[] for _ in range(300)])
    gc.set_threshold(gc.get_count()[0] + each)
    assert tree.css_matches("li > b")
"""


def test_search_during_any_matches_uses_another_engine() -> None:
    """During `any_matches` selectolax does not set `current_node`, so this call needs an engine of its own."""
    command = [sys.executable, "-c", MATCH_AROUND_A_SEARCH]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_search_during_a_search_uses_another_engine() -> None:
    """A finalizer may search in the middle of a search; with one engine that is a segmentation fault."""
    search = [sys.executable, "-c", SEARCH_WITHIN_A_SEARCH]
    done = subprocess.run(search, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "(True, 1, 50)" in done.stdout


def test_all_pages_share_one_engine() -> None:
    trees = [parse_html(b"<p>", "utf-8") for _ in range(2)]
    assert trees[0].selector is trees[1].selector
