"""What the names of a torrent say about its content."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

# fmt: off
LANGUAGES = (
    "en", "zh", "ja", "ko", "ru", "de", "fr", "es", "it", "pt", "pl", "nl", "tr", "ar", "hi", "ta", "te", "ml", "bn",
    "th", "vi", "id", "uk", "cs", "hu", "ro", "el", "he", "fa", "sv", "da", "no", "fi", "bg", "sr", "hr", "ms", "tl",
    "kn", "pa",
)
# fmt: on
"""ISO 639-1 codes. Their positions are stored: add new codes at the end."""
OTHER = 8000
"""Newznab's category Other, for unknown content."""


class ContentType(IntEnum):
    """The kind of content. The numbers are stored."""

    UNKNOWN = 0
    VIDEO = 1
    AUDIO = 2
    TEXT = 3
    APPLICATION = 4
    ARCHIVE = 5
    IMAGE = 6
    ADULT = 7


class ContentFacts(NamedTuple):
    """Facts found in names. `category` is Newznab's number, `resolution` the number of lines of the picture.

    A `resolution` or `year` of 0 is unknown. A whole season or a range of episodes has no episode; a double episode
    (S01E01E02) counts as its first.
    """

    type: ContentType = ContentType.UNKNOWN
    category: int = OTHER
    resolution: int = 0
    year: int = 0
    season: int | None = None
    episode: int | None = None
    languages: tuple[str, ...] = ()

    def to_numbers(self) -> tuple[int, ...]:
        """Return the facts as FACT_NUMBERS non-negative integers."""
        seasons = (0 if each is None else each + 1 for each in (self.season, self.episode))
        mask = sum(1 << LANGUAGES.index(each) for each in self.languages)
        return (self.type.value, self.category, self.resolution, self.year, *seasons, mask)


FACT_NUMBERS = len(ContentFacts().to_numbers())


def facts_of(numbers: Sequence[int]) -> ContentFacts:
    """Undo `to_numbers`. Raises `ValueError`."""
    kind, category, resolution, year, season, episode, mask = numbers
    places = [each - 1 if each else None for each in (season, episode)]
    return ContentFacts(ContentType(kind), category, resolution, year, places[0], places[1], _languages(mask))


@lru_cache(1000)
def _languages(mask: int) -> tuple[str, ...]:
    return tuple(each for place, each in enumerate(LANGUAGES) if mask >> place & 1)
