"""Highlights: words are marked, the rest is escaped, and the best part of a long text is shown (C7)."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import IndexFailure
from lycosa.search.core.analyzer import normalize
from lycosa.search.core.highlight import SNIPPET_CHARS, SNIPPET_TEXT_MAX, SPANS_MAX, Highlighter
from lycosa.search.core.query import parse_query
from lycosa.search.core.torrent_query import parse_torrent_query


def title(query: str, text: str) -> str:
    return Highlighter(parse_query(query)).title(text)


def snippet(query: str, text: str) -> str:
    return Highlighter(parse_query(query)).snippet(text)


def plain(marked: str) -> str:
    return html.unescape(re.sub("</?b>", "", marked))


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("word", "a Word, words, sword WORD", "a <b>Word</b>, words, sword <b>WORD</b>"),
        ("x", "nothing here", "nothing here"),
        ("resume", "Résumé re\u0301sume\u0301", "<b>Résumé</b> <b>résumé</b>"),
        ("strasse", "die Straße!", "die <b>Straße</b>!"),
        ("fine", "ﬁne ﬁnest", "<b>ﬁne</b> ﬁnest"),
        ("爬虫", "DHT爬虫爬 虫x", "DHT<b>爬虫爬 虫</b>x"),
        ("dht", "DHT爬虫 xdht", "<b>DHT</b>爬虫 xdht"),
        ("DHT爬虫", "DHT爬虫", "<b>DHT爬虫</b>"),
        ('"os path"', "os.path os and path", "<b>os.path</b> os and path"),
        ('"dht 爬虫"', "dht爬虫 dht 爬虫", "<b>dht爬虫</b> <b>dht 爬虫</b>"),
        ("gather asyncio", "asyncio.gather", "<b>asyncio</b>.<b>gather</b>"),
        ("script", "<script>&amp;", "&lt;<b>script</b>&gt;&amp;amp;"),
        ("b", "<b>", "&lt;<b>b</b>&gt;"),
        ("one site:two", "one two", "<b>one</b> two"),
        ("one -two", "one two", "<b>one</b> two"),
        ("title:one two", "one two", "<b>one</b> <b>two</b>"),
        ("half", "½ half", "½ <b>half</b>"),
        ("हिन्दी", "हिन्दी हिन्दीx", "<b>हिन्दी</b> हिन्दीx"),
        ("x" * 70, "x" * 70, f"<b>{'x' * 70}</b>"),
        ("  spaced  ", "  spaced \n out ", "<b>spaced</b> out"),
    ],
)
def test_words_in_titles_are_marked(query, text, marked):
    assert title(query, text) == marked


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("x264", "Great.Show.x264", "Great.Show.<b>x264</b>"),
        ("h265", "Show HEVC hevcx x265", "Show <b>HEVC</b> hevcx <b>x265</b>"),
        ("4k", "Film 4K UHD 2160p", "Film <b>4K</b> <b>UHD</b> <b>2160p</b>"),
        ("web-dl", "A.WEB-DL WEBDL", "A.<b>WEB-DL</b> <b>WEBDL</b>"),
        ("s01e02", "Show 1x02 Season 1 Episode 2 S01E03", "Show <b>1x02</b> <b>Season 1 Episode 2</b> S01E03"),
        ("season 1", "Résumé S01E02 s02e01", "Résumé <b>S01E02</b> s02e01"),
        ("show -x264", "Show.x264", "<b>Show</b>.x264"),
    ],
)
def test_other_spellings_in_names_of_releases_are_marked(query, text, marked):
    parsed = parse_torrent_query(query, 0.0).query
    assert Highlighter(parsed, releases=True).title(text) == marked
    assert Highlighter(parsed).title("x264 4K 1x02").count("<b>") == 0, "in pages they are other words"


def test_other_texts_match_terms_that_the_title_lacks():
    highlighter = Highlighter(parse_torrent_query("great scenes x265", 0.0).query, releases=True)
    others = ["great", "behind the Scenes/1.mkv", "film.HEVC.mkv", "other"]
    assert list(highlighter.other_matches("Great", others)) == others[1:3]
    assert list(highlighter.other_matches("Great scenes, HEVC", others)) == []


@pytest.mark.parametrize("name", ["a" * 250, "1x02 " * 50, "e1 e2 e3 e4 " * 20])
def test_names_that_repeat_a_part_are_searched_fast(name):
    query = parse_query(" ".join("a" * length for length in range(1, 40)) + " t0 t1 t2 t3 t4 t5 t6 t7 t8 t9")
    highlighter = Highlighter(query, releases=True)
    began = time.process_time()
    assert [highlighter.title(name) for _ in range(100)] == [name.strip()] * 100
    assert list(highlighter.other_matches("", [name] * 100)) == []
    assert time.process_time() - began < 1.0, "it took 4 s when each term read all of the name"


@pytest.mark.parametrize(("query", "text"), [("aab", "a" * 50_000 + " " + "xaab " * 9_000), ("ab", "xab " * 20_000)])
def test_texts_that_repeat_a_part_are_searched_fast(query, text):
    began = time.process_time()
    assert "<b>" not in snippet(query, text)
    assert time.process_time() - began < 1.0


def test_title_filter_marks_words_in_the_title_only():
    assert title("title:one two", "one") == "<b>one</b>"
    assert snippet("title:one two", "one two") == "one <b>two</b>"


def test_short_text_is_shown_completely():
    assert snippet("word", "a word here") == "a <b>word</b> here"
    assert snippet("missing", "a word here") == "a word here"
    assert snippet("missing", "") == ""


FILLER = "some filler text " * 100


@pytest.mark.parametrize("before", [FILLER, FILLER * 20, "½ ﬁ é\u00ad " * 3000])
def test_window_with_the_most_query_words_is_shown(before):
    text = f"{before} needle alone {FILLER} the needle in the haystack lies {FILLER}"
    shown = snippet("needle haystack", text)
    assert "the <b>needle</b> in the <b>haystack</b> lies" in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(plain(shown)) <= SNIPPET_CHARS + 30


def test_first_of_equal_windows_is_shown():
    assert "first <b>needle</b>" in snippet("needle", f"{FILLER} first needle {FILLER} second needle")


def test_words_outside_of_the_window_do_not_count():
    text = f"{FILLER} one {FILLER} two three {FILLER} one {FILLER} three"
    assert "<b>two</b> <b>three</b>" in snippet("one two three", text)


def test_window_with_more_hits_is_better():
    assert "needle b" in plain(snippet("needle", f"{FILLER} needle {FILLER} needle a needle b"))


def test_windows_begin_and_end_at_spaces():
    shown = plain(snippet("needle", f"{'abcdefghi ' * 100}needle {'abcdefghi ' * 100}"))
    assert set(shown.strip("… ").split()) == {"abcdefghi", "needle"}


def test_chinese_text_is_cut_without_spaces():
    shown = snippet("爬虫", "说明" * 300 + "爬虫" + "说明" * 300)
    assert "说明<b>爬虫</b>说明" in shown
    assert SNIPPET_CHARS <= len(plain(shown)) <= SNIPPET_CHARS + 10


def test_of_a_word_with_more_occurrences_than_the_bound_the_first_ones_are_marked():
    assert title("a", "a " * (SPANS_MAX + 9)) == " ".join(["<b>a</b>"] * SPANS_MAX + ["a"] * 9)
    assert snippet("a", "a " * 100_000).count("<b>") > 50


def test_beginning_is_shown_if_the_match_lies_beyond_the_bound():
    assert snippet("needle", "x " * SNIPPET_TEXT_MAX + "needle").startswith("x x x")


@given(st.text(max_size=300), st.text(alphabet='ab爬éß½ "<', max_size=20))
def test_marking_only_escapes_and_adds_tags(text, query):
    try:
        highlighter = Highlighter(parse_query(query))
    except IndexFailure:
        return
    marked = highlighter.title(text)
    assert plain(marked) == normalize(" ".join(text.split()))
    assert "<" not in re.sub("</?b>", "", marked)
    assert marked.count("<b>") == marked.count("</b>")
    assert "<" not in re.sub("</?b>", "", highlighter.snippet(text))
