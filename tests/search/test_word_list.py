"""The word list of an index: completions, words with a similar spelling, limits."""

from __future__ import annotations

import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from lycosa.core.errors import BadQuery, IndexFailure
from lycosa.search import word_list
from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.speller import FEW, Speller
from lycosa.search.word_list import WordCounter, WordList

NAMES = ["show one", "show two", "showman", "silver harbour", "silver night train", "night train", "英 雄 x1y2z3w4v5"]


def entries(names: list[str], first: int = 1) -> list[IndexEntry]:
    return [IndexEntry(key, {"name": name, "files": "readme"}) for key, name in enumerate(names, first)]


def filled(path: Path, names: list[str] = NAMES) -> WordList:
    with closing(WordCounter(path, TORRENTS)) as counter:
        counter.add(entries(names))
        counter.commit()
    return WordList(path)


def test_frequent_words_complete_a_prefix(tmp_path):
    words = filled(tmp_path)
    assert words.completions("sh", 5) == ["show", "showman"]
    assert words.completions("sh", 1) == ["show"]
    assert words.completions("readme", 5) == [], "words of files"
    assert words.completions("英", 5) == words.completions("x1", 5) == [], "single characters, and codes"
    assert words.completions("\ud800", 5) == []


def test_words_with_a_similar_spelling(tmp_path):
    words = filled(tmp_path)
    assert words.similar("sivler") == [("silver", 2)]
    assert words.similar("harbuor") == words.similar("arbour") == words.similar("harbuo") == [("harbour", 1)]
    assert words.similar("nihgt") == [("night", 2)]
    assert words.similar("nihgt", 3) == words.similar("niht", 3) == [], "less frequent words"
    assert words.similar("two") == [], "short words"
    assert words.divided("nighttrain") == "night train"
    assert words.divided("nightmare") == ""


def test_a_rare_spelling_does_not_hide_a_frequent_one(tmp_path):
    words = filled(tmp_path, [*["harbour"] * 12, "habur"])
    assert words.similar("habuor") == [("harbour", 12), ("habur", 1)]
    assert words.similar("habuor", 2) == [("harbour", 12)]
    assert filled(tmp_path / "few", ["harbour", "habur"]).similar("habuor") == [("habur", 1)], "as frequent"


def test_calls_with_one_connection_see_the_list_as_others_do(tmp_path):
    with filled(tmp_path).connected() as words:
        assert words.frequencies(["show", "other"]) == {"show": 2}
        assert words.similar("sivler") == [("silver", 2)]
    with WordList(tmp_path / "missing").connected() as words:
        assert (words.frequencies(["show"]), words.similar("sivler")) == ({}, [])


def test_without_a_list_no_words_are_found(tmp_path):
    words = WordList(tmp_path)
    assert (words.completions("sh", 5), words.similar("harbuor"), words.frequencies(["show"])) == ([], [], {})


def test_documents_that_are_indexed_again_are_counted_once(tmp_path):
    words = filled(tmp_path)
    with closing(WordCounter(tmp_path, TORRENTS)) as counter:
        counter.add(entries(NAMES))
        counter.add(entries(["show three"], len(NAMES) + 1))
        counter.commit()
    assert words.frequencies(["show", "three", "four"]) == {"show": 3, "three": 1}


def test_a_new_list_replaces_the_old_one_at_once(tmp_path):
    words = filled(tmp_path)
    with closing(WordCounter(tmp_path, TORRENTS)) as counter:
        for _ in range(2):
            counter.restart()
            counter.add(entries(["other"]))
            counter.commit()
            assert words.frequencies(["show", "other"]) == {"show": 2}
        counter.adopt()
        counter.add(entries(["show"], 2))
        counter.commit()
    assert words.frequencies(["show", "other"]) == {"show": 1, "other": 1}


def test_a_rebuild_that_failed_leaves_the_old_list_in_use(tmp_path):
    words = filled(tmp_path)
    with closing(WordCounter(tmp_path, TORRENTS)) as counter:
        counter.restart()
        counter.add(entries(["other"]))
        counter.abandon()
        counter.add(entries(["show one"]))
        counter.add(entries(["show another"], 100))
        counter.commit()
    assert words.frequencies(["show", "one", "other", "another"]) == {"show": 3, "one": 1, "another": 1}


def test_a_list_that_cannot_be_created_is_explained(tmp_path):
    (tmp_path / "words").touch()
    with pytest.raises(IndexFailure, match="has a word list that cannot be opened"):
        WordCounter(tmp_path, TORRENTS)


def test_rare_words_are_removed_first(tmp_path, monkeypatch):
    monkeypatch.setattr(word_list, "WORDS_MAX", 40)
    words = filled(
        tmp_path, [*["often"] * 3, *(f"rare{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}" for n in range(100))]
    )
    assert words.completions("", 100) == ["often"]


def test_a_spelling_with_more_results_is_suggested(tmp_path):
    speller = Speller(filled(tmp_path))
    totals = {"Silver harbour": 1, "silver x264": 2, "night train": 9}
    tried = []

    def has_more(query: str, total: int) -> bool:
        tried.append(query)
        return totals.get(query, 0) > total

    assert speller.suggestion("Sivler harbuor", 0, has_more) == ""
    assert speller.suggestion("Silver harbuor", 0, has_more) == "Silver harbour"
    assert speller.suggestion("sivler x264", 1, has_more) == "silver x264"
    assert speller.suggestion("sivler x264", 2, has_more) == "", "the same number is not more"
    assert speller.suggestion("nighttrain", 0, has_more) == "night train"
    tried.clear()
    assert speller.suggestion("Silver harbuor", FEW + 1, has_more) == ""
    assert speller.suggestion("silver night 1080p -harbuor", 0, has_more) == ""
    assert tried == [], "nothing to try"


@pytest.mark.parametrize("query", ["ﾊﾞﾊﾞ", unicodedata.normalize("NFD", "한글")])
def test_words_that_are_shorter_when_normalized_have_no_suggestion(tmp_path, query):
    assert Speller(filled(tmp_path)).suggestion(query, 0, lambda *_: True) == ""


def test_a_spelling_that_is_no_valid_query_is_not_suggested(tmp_path):
    def has_more(query: str, total: int) -> bool:
        raise BadQuery("too many words")

    assert Speller(filled(tmp_path)).suggestion("nighttrain", 0, has_more) == ""
