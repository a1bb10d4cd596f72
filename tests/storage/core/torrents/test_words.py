from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.core.torrents.words import WordIndex, hashed_word, normalized, words_of


def found(name: str, *listed: str) -> set[str]:
    return set(WordIndex([(word, word) for word in listed]).find(words_of(normalized(name))))


@pytest.mark.parametrize(
    ("name", "listed", "is_found"),
    [
        ("A.Web-DL.of.it", "web dl", True),
        ("A Web of DL", "web dl", False),
        ("WEBS DL", "web dl", False),
        ("ＦＵＬＬ　Ｗｉｄｔｈ", "full width", True),
        ("Straße", "STRASSE", True),
        ("电影国语中字1080p", "国语", True),
        ("电影国语中字1080p", "1080p", True),
        ("dht爬虫", "dht", True),
        ("русский фильм", "Фильм", True),
        ("фильмы", "фильм", False),
        ("scunthorpe", "thor", False),
    ],
)
def test_listed_words_are_found_as_whole_words(name: str, listed: str, is_found: bool):
    assert found(name, listed) == ({listed} if is_found else set())


@pytest.mark.parametrize("name", ["Some Secret.Word here", "SECRET_word", "secretword", "[secret-word]", "x秘密语言y"])
def test_hashed_words_are_found_when_joined_and_inside_runs_of_chinese_characters(name: str):
    index = WordIndex([], [(hashed_word("secret word"), 1), (hashed_word("密语"), 2)])
    assert index.find(words_of(normalized(name)))


@pytest.mark.parametrize(
    "name", ["secret words", "secrets word", "asecret word", "word secret", "密 语", "secret 电影 word"]
)
def test_hashed_words_are_not_found_in_longer_reversed_or_separated_words(name: str):
    index = WordIndex([], [(hashed_word("secret word"), 1), (hashed_word("密语"), 2)])
    assert not index.find(words_of(normalized(name)))


def test_a_name_without_words_matches_no_list():
    assert WordIndex([("a", 1)], [(hashed_word("secret word"), 2)]).find(words_of("- ! -")) == []


def test_a_hashed_word_reveals_only_its_length():
    assert hashed_word("Secret Word") == hashed_word("secretword")
    assert hashed_word("secretword").startswith("10-")
    assert "secret" not in hashed_word("secretword")


@pytest.mark.parametrize("word", ["", "!!", "a b c d e", "中文 and more"])
def test_invalid_words_are_refused(word: str):
    with pytest.raises(UsageError):
        WordIndex([(word, 1)])


@pytest.mark.parametrize("word", ["secret", "4-xyz", "0-0123456789abcdef"])
def test_invalid_hashes_are_refused(word: str):
    with pytest.raises(UsageError):
        WordIndex([], [(word, 1)])
