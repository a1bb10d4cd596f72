"""The SphinxQL that Lycosa writes: no character of a text or of a query becomes an operator."""

from __future__ import annotations

import re

import pytest

from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.schema import PAGES, TORRENTS, IndexEntry
from lycosa.search.core.sphinxql import columns, condition, document_id, fed, quoted, row, value_code, value_of


def test_no_character_of_a_text_ends_its_string_literal() -> None:
    assert quoted("it's \\' \0 \ud800") == "'it\\'s \\\\\\'   ?'"


@pytest.mark.parametrize(
    "hostile", ['"', "'", "\\", ")", "(", "|", "@files", "-", "!", "*", "~2", "/1", "^", "$", "<<"]
)
def test_special_characters_of_a_word_are_no_operators(hostile) -> None:
    query = SearchQuery(((Term((f"a{hostile}b",)),),), (Term((hostile,)),))
    written = condition(SearchRequest(query), PAGES)
    first, second = re.findall('"([^"]*)"', written)
    assert re.fullmatch("[a-z0-9 ]+", first)
    assert re.fullmatch("[a-z0-9 ]*", second)
    assert written.count('"') == 4


def test_words_that_the_server_would_cut_or_not_know_stay_different() -> None:
    long, other = "a" * 64, "a" * 63 + "b"
    assert len(fed(long)) == 40
    assert fed(long) != fed(other)
    assert fed(f"x {long} y") == f"x {fed(long)} y"
    assert fed("\U00030000 z") == "u30000 z"


@pytest.mark.parametrize("value", ["video", "0", "007", "application", "zh", "z" * 11])
def test_a_counted_value_is_read_from_its_number(value) -> None:
    assert value_of(value_code(value)) == value
    assert value_code(value) < 2**62


def test_long_and_non_ascii_values_are_encoded_as_hashes() -> None:
    assert value_of(value_code("z" * 12)) == ""
    assert 2**62 <= value_code("Zwölf") < 2**63


def test_ids_of_documents_are_positive_and_fit_into_63_bits() -> None:
    assert document_id(7) == 7
    assert 0 < document_id("http://h/") <= 2**62 + 1
    assert document_id("a") != document_id("b")


@pytest.mark.parametrize("schema", [PAGES, TORRENTS])
def test_a_row_has_a_value_for_each_column(schema) -> None:
    entry = IndexEntry(1, {schema.title: "one"}, {}, {})
    written = row(entry, schema, "")
    assert written.replace("()", "''").count(",") + 1 == len(columns(schema))


def test_numbers_are_bounds_and_values_are_tokens() -> None:
    filters = (ValueFilter("size", 5), ValueFilter("year", None, 3), ValueFilter("type", values=("a') OR 1=1 --",)))
    written = condition(SearchRequest(None, filters), TORRENTS)
    assert "n_size >= 5 AND n_size <= 9223372036854775807 AND n_year >= 0 AND n_year <= 3" in written
    assert "OR 1" not in written


def test_a_word_that_a_loosened_query_has_twice_counts_twice() -> None:
    optional = tuple(Term((word,)) for word in ("a", "b", "a", "c"))
    written = condition(SearchRequest(LooseQuery((), (), optional, 2)), TORRENTS)
    assert '("b c"/2)' in written
    assert '("a")' in written
