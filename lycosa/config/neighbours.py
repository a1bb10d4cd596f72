"""Files that are not there: whether a file was meant at all, and which other one may have been."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from lycosa.config.layers import did_you_mean

SUFFIXES = frozenset({".txt", ".csv", ".json", ".jsonl", ".list", ".lst"})
"""How files end that people keep lists in."""

LOOKED_AT = 10_000
"""Names of a folder, at most."""


def is_named_like_a_file(text: str) -> bool:
    """Whether this ends as files do that have a list in them."""
    return os.path.splitext(text)[1].lower() in SUFFIXES  # noqa: PTH122  Path refuses some texts


def instead_of_file(text: str, fits: Callable[[Path], bool] = Path.is_file) -> str:
    """Return the end of an error line for a file that does not exist: what in its folder has a name that is near."""
    folder, name = os.path.split(text)
    by_name = {each.lower(): each for each in islice(_names(folder), LOOKED_AT)}
    near = [by_name[each] for each in difflib.get_close_matches(name.lower(), by_name, n=5)]
    found = [os.path.join(folder, each) for each in near]  # noqa: PTH118  as it was written
    return did_you_mean(next((each for each in found if fits(Path(each))), ""))


def _names(folder: str) -> Iterator[str]:
    with suppress(OSError, ValueError):
        yield from (each.name for each in Path(folder).iterdir() if each.name.isprintable())
