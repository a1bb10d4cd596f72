"""The query language: any text is parsed or refused in one line (C7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import IndexFailure
from lycosa.search.core.query import (
    LIMIT_MAX,
    OFFSET_MAX,
    QUERY_MAX,
    QUERY_WORDS_MAX,
    SearchQuery,
    Term,
    check_page,
    page_as_json,
    parse_query,
    site_names,
)
from lycosa.search.core.results import Hit, SearchPage


def shown(query: SearchQuery) -> str:
    """Format a parsed query: a.b for adjacent words, | for or, - for not."""
    clauses = ["|".join(map(show_term, clause)) for clause in query.clauses]
    return " ".join([*clauses, *(f"-{show_term(term)}" for term in query.excluded)])


def show_term(term: Term) -> str:
    text = ".".join(term.words)
    text = f'"{text}"' if term.quoted else text
    return text if term.where == "any" else f"{term.where}:{text}"


@pytest.mark.parametrize(
    ("query", "understood"),
    [
        ("one two", "one two"),
        ("Os.Path", "os.path"),
        ('"one two" three', '"one.two" three'),
        ("“one two”", '"one.two"'),
        ('one "two three', "one two three"),
        ('"', None),
        ('""', None),
        ('a"b c"d', 'a "b.c" d'),
        ("one -two", "one -two"),
        ('one -"two three"', 'one -"two.three"'),
        ("one NOT two", "one -two"),
        ("NOT one two", "two -one"),
        ("one - two", "one two"),
        ("well-known", "well.known"),
        ("one OR two three", "one|two three"),
        ("one OR two OR three", "one|two|three"),
        ("OR one OR", "one"),
        ("one OR -two three", "one three -two"),
        ("one AND two", "one two"),
        ("and or not", "and or not"),
        ("AND OR", "and or"),
        ("title:One", "title:one"),
        ('TITLE:"one two"', 'title:"one.two"'),
        ("title: one", "title one"),
        ("title:", "title"),
        ("-title:one two", "two -title:one"),
        ("site:Example.ORG", "site:example.org"),
        ("site:https://user@h.example:8080/a?b#c", "site:h.example:8080"),
        ("site:*.example.org.", "site:example.org"),
        ("site:[::1]:80 x", "site:::1:80 x"),
        ("site:/// x", "x"),
        ("a:b:c", "a.b.c"),
        ("title：one", "title:one"),
        ("DHT爬虫", "dht 爬.虫"),
        ('"DHT爬虫"', '"dht.爬.虫"'),
        ("title:DHT爬虫", "title:dht title:爬.虫"),
        ("one\u3000two", "one two"),
        ("one * two", "one two"),
    ],
)
def test_queries_are_parsed(query, understood):
    if understood is None:
        with pytest.raises(IndexFailure):
            parse_query(query)
    else:
        assert shown(parse_query(query)) == understood


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "the query is empty: write a word"),
        ("  ", "the query is empty: write a word"),
        ("?!", "the query '?!' has no word in it: write at least one"),
        ("-one", "the query '-one' only excludes words: add a word to search for"),
        ("x" * (QUERY_MAX + 1), f"the query has {QUERY_MAX + 1} characters: use at most {QUERY_MAX}"),
        ("x " * (QUERY_WORDS_MAX + 1), f"the query has {QUERY_WORDS_MAX + 1} words: use at most {QUERY_WORDS_MAX}"),
    ],
)
def test_invalid_queries_are_refused_in_one_line(query, message):
    with pytest.raises(IndexFailure) as caught:
        parse_query(query)
    assert str(caught.value) == message


@given(st.text(max_size=60) | st.text(alphabet='ab爬"-:. OR', max_size=60))
def test_any_text_is_a_query_or_refused_in_one_line(text):
    try:
        query = parse_query(text)
    except IndexFailure as refusal:
        assert len(str(refusal).splitlines()) == 1
    else:
        assert query.clauses
        assert all(term.words and all(term.words) for clause in query.clauses for term in clause)


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("one two.three", "one two three"),
        ("one site:x", "one"),
        ("one OR two", ""),
        ("title:one two", ""),
        ('"a b" c', "a b c"),
    ],
)
def test_plain_words_of_a_query(query, plain):
    assert parse_query(query).plain_words == tuple(plain.split())


@pytest.mark.parametrize(
    ("query", "optional", "needed", "required"),
    [
        ("one two", ["one", "two"], 1, ""),
        ("one two three", ["one", "two", "three"], 2, ""),
        ('one two "three four" -five', ["one", "two"], 1, '"three.four" -five'),
        ("one two site:x OR site:y", ["one", "two"], 1, "site:x|site:y"),
        ("os.path", ["os", "path"], 1, ""),
        ("北京大学", ["北.京", "京.大", "大.学"], 2, ""),
    ],
)
def test_queries_that_can_be_loosened(query, optional, needed, required):
    loose = parse_query(query).loosened()
    assert [show_term(term) for term in loose.optional] == optional
    assert loose.needed == needed
    assert shown(SearchQuery(loose.clauses, loose.excluded)) == required


@pytest.mark.parametrize("query", ["one", "北京", '"one two"', "title:one two", "one OR two"])
def test_queries_that_cannot_be_loosened(query):
    assert parse_query(query).loosened() is None


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("https://Docs.Example.org/a", ["docs.example.org", "example.org", "org"]),
        ("http://h:80/", ["h", "h:80"]),
        ("http://127.0.0.1:8000/", ["127.0.0.1", "127.0.0.1:8000"]),
        ("http://[::1]:9/", ["::1", "::1:9"]),
        ("http://me:pw@h/", ["h"]),
        ("", []),
        ("http://", []),
    ],
)
def test_names_by_which_the_site_filter_finds_a_url(url, names):
    assert site_names(url) == names


def test_page_bounds_are_checked():
    check_page(1, 0)
    check_page(LIMIT_MAX, OFFSET_MAX)
    for limit, offset in [(0, 0), (LIMIT_MAX + 1, 0), (1, -1), (1, OFFSET_MAX + 1)]:
        with pytest.raises(IndexFailure, match="out of range"):
            check_page(limit, offset)


def test_page_of_results_as_json():
    hit = Hit("http://h/", "T", "<b>T</b>", "s", "2026", "en", 1.5)
    encoded = page_as_json("t", SearchPage(7, [hit], 1.23456, True), 1, 2)
    assert encoded["hits"] == [hit._asdict()]
    assert (encoded["total"], encoded["partial"], encoded["took_ms"], encoded["limit"], encoded["offset"]) == (
        7,
        True,
        1.235,
        1,
        2,
    )
