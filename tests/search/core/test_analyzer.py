"""Words: how text is split and folded (C8: CJK and Latin text are both found)."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.search.core.analyzer import WORD_MAX, fold, is_unspaced, normalize, original_index, units, words
from tests.conftest import PROVE

CHARACTERS = range(sys.maxunicode + 1) if PROVE else [*range(0x40000), *range(0xE0000, 0xE1000)]
"""All characters, or only those of the planes in which Unicode has assigned characters other than private ones."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("Hello, World!", "hello world"),
        ("asyncio.gather(os.path)", "asyncio gather os path"),
        ("snake_case and kebab-case", "snake case and kebab case"),
        ("don't", "don t"),
        ("h.264 1080p S01E02", "h 264 1080p s01e02"),
        ("手撕包菜 DHT爬虫", "手 撕 包 菜 dht 爬 虫"),
        ("ウェブ、ー", "ウ ェ ブ ー"),
        ("한국어", "한 국 어"),
        ("ภาษา", "ภ า ษ า"),
        ("हिन्दी में।", "हिन्दी में"),
        ("Привет, Ёлка", "привет елка"),
        ("Résumé RESUME re\u0301sume\u0301", "resume resume resume"),
        ("Straße Łódź Ørsted Ærø", "strasse lodz orsted aero"),
        ("İstanbul ISTANBUL \u0131", "istanbul istanbul i"),
        ("ΣΊΣΥΦΟΣ σίσυφος", "σισυφοσ σισυφοσ"),
        ("ＦＵＬＬ ﬁne ①½", "full fine 11 2"),
        ("ｶﾞﾗｽ ガラス", "ガ ラ ス ガ ラ ス"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zero width"),
        ("שָׁלוֹם مُحَمَّد", "שלום محمد"),
        ("a\x00b\nc", "a b c"),
        ("\ud800 lone", "lone"),
        ("x" * (WORD_MAX + 2), "x" * WORD_MAX + " xx"),
        ("é" * (WORD_MAX + 1), "e" * WORD_MAX + " e"),
    ],
)
def test_texts_are_split_into_folded_words(text, found):
    assert words(text) == found.split()


@given(st.text())
def test_words_do_not_depend_on_unicode_composition(text):
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


@given(st.text())
def test_words_are_stable_under_repetition(text):
    once = words(text)
    assert words(" ".join(once)) == once


@given(st.text())
def test_words_do_not_depend_on_case(text):
    ascii_only = text.encode("ascii", "ignore").decode()
    assert words(ascii_only.upper()) == words(ascii_only.lower())


def test_folding_is_idempotent_for_every_character():
    for code in CHARACTERS:
        once = fold(chr(code))
        assert fold(once) == once, hex(code)


@given(st.text(), st.text())
def test_folding_the_parts_of_a_text_folds_the_text(one, other):
    assert fold(one + other) == fold(one) + fold(other)


@given(st.text(alphabet="aé½ﬁ\u00ad爬ß \u0301", max_size=2000))
def test_original_index_is_the_inverse_of_folding(text):
    ends = [len(fold(text[: n + 1])) for n in range(len(text))]
    for place in (*range(0, len(fold(text)), 7), len(fold(text)), len(fold(text)) + 5):
        expected = next((n for n, end in enumerate(ends) if end > place), len(text))
        assert original_index(text, place) == expected


def test_normalizing_does_not_change_ascii():
    text = "plain"
    assert normalize(text) is text


@pytest.mark.parametrize(
    ("word", "unspaced"), [("爬", True), ("ก", True), ("ア", True), ("글", True), ("a", False), ("я", False)]
)
def test_is_unspaced(word, unspaced):
    assert is_unspaced(word) == unspaced


def test_adjacent_characters_and_the_short_numbers_beside_them_are_one_unit():
    found = {
        "爱情第01集完": ["爱 情", "第 01 集", "完"],
        "EP02第3话.mp4": ["ep02", "第 3 话", "mp4"],
        "2020年12月": ["2020", "年 12 月"],
        "3D电影 第1080p": ["3d", "电 影", "第", "1080p"],
        "第7": ["第 7"],
        "été हिन्दी 5": ["ete", "हिन्दी", "5"],
    }
    assert {text: units(text) for text in found} == found
    for text, each in found.items():
        assert " ".join(each).split() == words(text)
