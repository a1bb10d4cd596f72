"""Segments by name (F2)."""

from __future__ import annotations

import pytest

from lycosa.core.segments import order, starts_at


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T02", 7_200.0),
        ("1970-01-01T02:30", 9_000.0),
        ("", 0.0),
        ("spring", 0.0),
        ("2026-13-01", 0.0),
        ("2026-11-21x", 0.0),
    ],
)
def test_the_name_says_the_start(name: str, start: float) -> None:
    assert starts_at(name) == start


def test_the_oldest_comes_first() -> None:
    names = ["2026-11-21", "2026-11-20", "", "2026-11-20T10", "spring"]
    assert sorted(names, key=order) == ["", "spring", "2026-11-20", "2026-11-20T10", "2026-11-21"]
