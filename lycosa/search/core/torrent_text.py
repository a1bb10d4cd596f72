"""The searched texts of a torrent: the words of its name, and the words of its paths that the name lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from lycosa.search.core.analyzer import COUNTER_DIGITS, units, words
from lycosa.search.core.ascii_words import ascii_words
from lycosa.search.core.release_names import one_spelling, season_of

TEXT_MAX_BYTES = 250
"""Maximum size of both texts together. Further words improve the results too little for their space."""
NAME_MAX = 1000
"""Maximum number of characters read from a name or a path."""
PATHS_MAX = 200
"""Maximum number of files whose names are read."""
PATHS_AT_ONCE = 8
"""Number of paths split into words together, which is faster. Often the first group fills the text."""
TITLE_WORDS_MAX = 4
"""Number of title words taken from a name without season, resolution and year."""
_AFTER_TITLE = re.compile(r"s\d\d(?:e\d+)?|\d{3,4}p|(?:19|20)\d\d")


def torrent_texts(name: str, paths: Iterable[str]) -> tuple[str, str]:
    """Return the words of the name and those of the files. The latter begin with the seasons of episodes in the name:
    s01 for s01e02."""
    named, left = _within(_units(name[:NAME_MAX]), TEXT_MAX_BYTES)
    known, counters = set(named), list[str]()
    listed, left = _within([season for unit in named if (season := season_of(unit))], left)
    rest = islice(paths, PATHS_MAX)
    while some := [path[:NAME_MAX] for path in islice(rest, PATHS_AT_ONCE)]:
        new = list[str]()
        for unit in _units("\n".join(some)):
            if unit in known:
                continue
            known.add(unit)
            # Numbers of files, tracks and pages get the remaining space.
            (counters if len(unit) <= COUNTER_DIGITS and unit.isdigit() else new).append(unit)
        kept, left = _within(new, left)
        listed += kept
        if len(kept) < len(new):
            break
    if counters:
        listed += _within(counters, left)[0]
    return " ".join(named), " ".join(listed)


def torrent_words(text: str) -> list[str]:
    """Return the words of a name, or of a part of a query."""
    return words(one_spelling(text))


def title_words(name: str) -> list[str]:
    """Return the words of a name before its season, year or resolution: other releases of the same work share them."""
    found = torrent_words(name[:NAME_MAX])
    end = next((place for place, word in enumerate(found) if place and _AFTER_TITLE.fullmatch(word)), None)
    return found[: TITLE_WORDS_MAX if end is None else end]


def _units(text: str) -> list[str]:
    return ascii_words(text) if text.isascii() else units(one_spelling(text))


def _within(units: list[str], limit_bytes: int) -> tuple[list[str], int]:
    """Return the first units that fit, and the number of bytes left."""
    joined = " ".join(units)
    if len(joined) < limit_bytes and joined.isascii():
        return units, limit_bytes - len(joined) - bool(units)
    left = limit_bytes
    for place, unit in enumerate(units):
        left -= 1 + (len(unit) if unit.isascii() else len(unit.encode()) - unit.count(" "))
        if left < 0:
            return units[:place], 0
    return units, left
