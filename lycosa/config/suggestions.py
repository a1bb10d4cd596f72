"""Suggest names for a file that does not exist."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from lycosa.config.layers import did_you_mean

SUFFIXES = frozenset({".txt", ".csv", ".json", ".jsonl", ".list", ".lst"})
"""The usual suffixes of files that hold lists."""

NAMES_MAX = 10_000
"""Maximum number of names in a folder that are compared."""


def looks_like_a_list_file(text: str) -> bool:
    """Return whether text ends like the name of a file that holds a list."""
    return os.path.splitext(text)[1].lower() in SUFFIXES  # noqa: PTH122  Path refuses some texts


def suggest_file(text: str, fits: Callable[[Path], bool] = Path.is_file) -> str:
    """Return the end of an error message that suggests the most similar path in the same folder; "" if there is none.

    Only paths that the function `fits` accepts are suggested.
    """
    folder, name = os.path.split(text)
    by_name = {each.lower(): each for each in islice(_names(folder), NAMES_MAX)}
    near = [by_name[each] for each in difflib.get_close_matches(name.lower(), by_name, n=5)]
    found = [os.path.join(folder, each) for each in near]  # noqa: PTH118  keeps the folder as written
    return did_you_mean(next((each for each in found if fits(Path(each))), ""))


def _names(folder: str) -> Iterator[str]:
    with suppress(OSError, ValueError):
        yield from (each.name for each in Path(folder).iterdir() if each.name.isprintable())
