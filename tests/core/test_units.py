"""A number of bytes reads the same everywhere (F7)."""

from __future__ import annotations

import pytest

from lycosa.core.units import size


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_600, "1.0 MB"), (162e6, "162 MB"), (1.1e9, "1.1 GB")],
)
def test_size(size_bytes, said):
    assert size(size_bytes) == said


def test_the_largest_unit_has_no_end():
    assert size(5e15) == "5,000 TB"
