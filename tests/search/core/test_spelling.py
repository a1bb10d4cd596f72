from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.search.core.spelling import distance, nearest, one_slip, respell, two_words


@pytest.mark.parametrize(
    ("one", "other", "slips"),
    [
        ("debian", "debian", 0),
        ("debain", "debian", 1),
        ("debin", "debian", 1),
        ("debiian", "debian", 1),
        ("depian", "debian", 1),
        ("dbeain", "debian", 2),
        ("fedora", "debian", 3),
        ("гаванъ", "гавань", 1),
        ("a", "abcdef", 3),
    ],
)
def test_slips_between_words(one, other, slips):
    assert distance(one, other, 2) == slips
    assert distance(other, one, 2) == slips


@given(st.text("abc", min_size=1, max_size=6), st.text("abc", min_size=1, max_size=6))
def test_texts_with_one_slip_have_distance_one(one, other):
    assert (other in one_slip(one)) == (distance(one, other, 2) == 1)


@given(st.text("abc", min_size=1, max_size=7), st.text("abc", min_size=1, max_size=7), st.integers(0, 8))
def test_the_distance_equals_that_of_a_plain_dynamic_programming_table(one, other, most):
    assert distance(one, other, most) == min(slips_by_table(one, other), most + 1)


def slips_by_table(one: str, other: str) -> int:
    table = {(0, column): column for column in range(len(other) + 1)} | {(row, 0): row for row in range(len(one) + 1)}
    for row, column in product(range(1, len(one) + 1), range(1, len(other) + 1)):
        changed = table[row - 1, column - 1] + (one[row - 1] != other[column - 1])
        table[row, column] = min(table[row - 1, column] + 1, table[row, column - 1] + 1, changed)
        if row > 1 and column > 1 and one[row - 2 : row] == other[column - 1] + other[column - 2]:
            table[row, column] = min(table[row, column], table[row - 2, column - 2] + 1)
    return table[len(one), len(other)]


def test_the_nearest_words_come_first_then_the_most_frequent():
    listed = [("harbor", 5), ("harbour", 90), ("harbours", 3), ("barbour", 4), ("labour", 100), ("harbour", 90)]
    assert nearest("harbuor", listed) == [("harbour", 90), ("harbor", 5), ("barbour", 4), ("harbours", 3)]
    assert nearest("nigth", [("night", 1), ("eight", 50)]) == [("night", 1)], "a short word may have one slip only"


def test_two_words_without_their_space():
    assert list(two_words("abcde")) == [("ab", "cde"), ("abc", "de")]


@pytest.mark.parametrize(
    ("query", "respelled"),
    [
        ("Debain netinst", "DEBAIN netinst"),
        ('"debain live" title:debain x264', '"DEBAIN live" title:DEBAIN x264'),
        ("-debain NOT debain lang:debain debain1 debain", "-debain NOT debain lang:debain debain1 DEBAIN"),
        ('-"debain live" Débain', '-"debain live" DEBAIN'),
        ("debain OR not debain", "DEBAIN OR not DEBAIN"),
    ],
)
def test_only_searched_words_are_respelled(query, respelled):
    assert respell(query, lambda word: "DEBAIN" if word == "debain" else "") == respelled
