"""Counts, durations and sizes: parsed and formatted in one place (F7)."""

from __future__ import annotations

import pytest

from lycosa.core.units import (
    format_count,
    format_duration,
    format_rough_duration,
    format_size,
    parse_duration,
    parse_size,
)


def test_counts_are_shown_with_the_plural_of_their_noun():
    assert [format_count(number, "page") for number in (0, 1, 2000)] == ["0 pages", "1 page", "2,000 pages"]
    assert [format_count(number, "dead proxy") for number in (1, 2)] == ["1 dead proxy", "2 dead proxies"]
    assert [format_count(number, "success") for number in (1, 2)] == ["1 success", "2 successes"]


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_600, "1.0 MB"), (162e6, "162 MB"), (1.1e9, "1.1 GB")],
)
def test_sizes_are_shown_in_powers_of_1000(size_bytes, shown):
    assert format_size(size_bytes) == shown


def test_the_largest_unit_of_size_is_unbounded():
    assert format_size(5e15) == "5,000 TB"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((-5, "0 s"), (0, "0 s"), (0.25, "0.2 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59, "59 s"), (59.4, "59 s")),
        *((59.7, "1 min"), (60, "1 min"), (61, "1 min 1 s"), (90, "1 min 30 s"), (3600, "1 h"), (3700, "1 h 1 min")),
        *((90_000, "1 d 1 h"), (1e9, "11,574 d 1 h")),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(seconds, shown):
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0 s"), (29, "29 s"), (60, "1 min"), (3600, "1 h"), (36 * 3600, "2 d"), (35 * 3600, "35 h")],
)
def test_rough_durations_are_shown_in_one_unit(seconds, shown):
    assert format_rough_duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), (" 90s ", 90.0), ("30 m", 1800.0), ("2H", 7200.0), ("1.5d", 129_600.0), ("2w", 1_209_600.0)]
    + [(text, None) for text in ("", "s", "-1s", "1 month", "1e9s", "nan", "inf", "1.s", ".5s", "1s2", "9" * 400)],
)
def test_durations_are_read_with_or_without_a_unit(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("500000", 500_000), ("10MB", 10_000_000), (" 1.5 KiB ", 1536), ("1b", 1), ("2 gib", 2 * 1024**3)]
    + [(text, None) for text in ("", "MB", "-1", "10 apples", "1e3", "9" * 400 + "GB")],
)
def test_sizes_are_read_with_or_without_a_unit(text, size_bytes):
    assert parse_size(text) == size_bytes
