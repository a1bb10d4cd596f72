"""Pages that would block the parser are cut, in linear time; ordinary pages are not changed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.html import nesting
from lycosa.html.links import extract_links
from lycosa.html.nesting import DEPTH_MAX, limit_nesting
from lycosa.html.page import extract_page, parse_html

COUNT = 100_000
SECONDS_MAX = 5.0
"""An uncut page takes 10 s and more, or all memory; a cut one 0.1 s."""


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * COUNT,
        b"<div>" * COUNT + b"</div>" * COUNT,
        b"<ul><li>" * COUNT,
        b"<h1>a<span>" * COUNT,
        b"<table><tr><td>" * COUNT,
        b"<div><!--</div>-->" * COUNT,
        b"".join(b"<p><b id=%d>" % number for number in range(COUNT)),
    ],
    ids=lambda body: body[:20].decode(),
)
def test_deeply_nested_pages_are_parsed_quickly(body: bytes) -> None:
    started = time.process_time()
    tree = parse_html(b"<a href=/x>first</a>" + body, "utf-8")
    assert extract_page(tree).text.startswith("first")
    assert extract_links(tree, "https://example.com/")[0].url == "https://example.com/x"
    assert time.process_time() - started < SECONDS_MAX


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 900,
        b"<p>text<br><img src=x>" * COUNT,
        b"<a href=/x>y" * COUNT,
        b"<ul>" + b"<li><b>x</b> <i>y</i>" * COUNT + b"</ul>",
        b"<table>" + b"<tr><td><div>x</div>" * COUNT + b"</table>",
        b"<div><p>x<hr><li>" * 1000 + b"</div>" * 1000 + b"<p>x<li>y" * COUNT,
        b"<script>" + b"<div>" * COUNT + b"</script><p>x",
        b"<title>" + b"<b>" * COUNT,
        b"<table><tr></object></b></table><svg></svg>" * 50 + b"<b></i>x</b><p>x<hr>" * (COUNT // 5),
        b"<!--" + b"<div>" * COUNT,
        b"<a" * COUNT,
        b"",
    ],
    ids=lambda body: body[:20].decode(),
)
def test_wide_and_shallow_pages_are_not_cut(body: bytes) -> None:
    started = time.process_time()
    assert limit_nesting(body) == body
    assert time.process_time() - started < SECONDS_MAX


def test_page_is_cut_at_the_tag_that_is_too_deep() -> None:
    body = b"<p>x</p>" + b"<div>" * (DEPTH_MAX + 500)
    assert limit_nesting(body) == b"<p>x</p>" + b"<div>" * DEPTH_MAX


def test_page_is_cut_before_formatting_is_copied_into_every_block() -> None:
    """The page is only cut here and never parsed: uncut, it would make 30 million nodes."""
    unclosed = b"<div>" + b"".join(b"<b id=%d>" % number for number in range(1500)) + b"</div>"
    html = unclosed + b"<p>x</p>" * 20_000
    assert len(unclosed) < len(limit_nesting(html)) < len(unclosed) + 8 * 200


def test_end_tags_do_not_close_elements_outside_of_their_scope() -> None:
    """`</div>` inside a table does not close the div around it."""
    body = b"<div><table></div>" * COUNT
    assert len(nesting.limit_nesting(body[: 18 * 3000] + b"<div>" * 3000)) < 18 * 1001


@given(
    st.lists(
        st.sampled_from([b"<div>", b"</div>", b"<b>", b"</b>", b"<table>", b"</table>", b"<!--", b"<script>", b'x="'])
    )
)
def test_any_order_of_tags_is_accepted(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    assert nesting._offset_of_excess(body) == len(body)
