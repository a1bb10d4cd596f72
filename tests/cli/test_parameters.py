"""Types of options."""

from __future__ import annotations

import click
import pytest

from lycosa.cli.parameters import Size


@pytest.mark.parametrize(("text", "size_bytes"), [("10G", 10**10), ("500MB", 5 * 10**8), ("1.5GiB", 3 << 29), ("7", 7)])
def test_sizes_are_read_with_and_without_the_letter_b(text: str, size_bytes: int):
    assert Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "ten", "10x", "-1G"])
def test_a_text_that_is_no_size_is_refused_with_valid_examples(text: str):
    with pytest.raises(click.BadParameter, match="write 500MB, 10G"):
        Size().convert(text, None, None)
