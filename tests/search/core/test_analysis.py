from __future__ import annotations

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.analysis import PLAIN, Analysis, analysis_of
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import parse_query
from lycosa.search.core.schema import IndexEntry
from lycosa.search.core.simplified import SIMPLIFIED


def indexed(analysis: Analysis, text: str) -> str:
    return analysis.entries([IndexEntry(1, {"name": text})])[0].texts["name"]


def test_traditional_characters_are_indexed_and_searched_as_simplified_ones():
    analysis = analysis_of(("simplified",))
    assert indexed(analysis, "電 影 臺 灣 dvd") == "电 影 台 湾 dvd"
    query = analysis.query(parse_query('電影 "臺灣 dvd" -後來 site:h'))
    assert query == parse_query('电影 "台湾 dvd" -后来 site:h')
    assert indexed(PLAIN, "電 影") == "電 影"


def test_each_character_has_one_simplified_form_of_one_character():
    assert len(SIMPLIFIED) > 4000
    assert {len(chr(each)) for each in SIMPLIFIED.values()} == {1}


def test_highlights_mark_the_traditional_and_the_simplified_form_of_a_word():
    analysis = analysis_of(("simplified",))
    highlighter = Highlighter(analysis.query(parse_query("電影")), analysis)
    assert highlighter.title("老電影, 电影") == "老<b>電影</b>, <b>电影</b>"


def test_words_are_indexed_and_searched_by_their_stems():
    pytest.importorskip("snowballstemmer", reason="the extra stem is not installed")
    analysis = analysis_of(("simplified", "stem-english"))
    assert indexed(analysis, "running runner happily 電 s01e02") == "run runner happili 电 s01e02"
    assert analysis.query(parse_query("runs happy")) == parse_query("run happi")
    highlighter = Highlighter(analysis.query(parse_query("running crawlers happy")), analysis)
    assert highlighter.title("He runs; a crawler crawls happily, crunched") == (
        "He <b>runs</b>; a <b>crawler</b> crawls <b>happily</b>, crunched"
    )
    with pytest.raises(IndexFailure, match="there is no stemmer of this language: use one of arabic, "):
        analysis_of(("stem-klingon",))


@pytest.mark.parametrize("names", [("other",), ("",), ("simplified", "traditional")])
def test_an_unknown_analysis_is_refused_in_one_line(names):
    with pytest.raises(IndexFailure, match="is unknown: use simplified, names-only, or stem-LANGUAGE"):
        analysis_of(names)
