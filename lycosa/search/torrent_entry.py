"""The index entry of a torrent: the words of its names, and the values for filters and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from lycosa.search.core.schema import NUMBER_MAX, IndexEntry
from lycosa.search.core.torrent_text import torrent_texts
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import SearchedTorrent

_NOTHING = ContentFacts()
_TYPES = {each: [each.name.lower()] for each in ContentType}
FACTS_KEPT = 10_000
"""Maximum number of `ContentFacts` whose values are cached: many torrents have equal facts."""


def torrent_entry(torrent: SearchedTorrent, *, names_only: bool = False) -> IndexEntry:
    """Return the entry of a stored torrent. Unknown values are left out, not set to 0.

    With `names_only`, the entry has no words from the names of files.
    """
    name, files = torrent_texts(torrent.name, () if names_only else torrent.paths)
    numbers, keywords = _of_facts(torrent.content or _NOTHING)
    numbers = {
        "size": min(torrent.size_bytes, NUMBER_MAX),
        "found": torrent.discovered,
        "files_count": torrent.files_count,
        **numbers,
    }
    if torrent.counted is not None:
        numbers["seeders"] = torrent.seeders
    return IndexEntry(torrent.id, {"name": name, "files": files}, numbers, keywords)


@lru_cache(FACTS_KEPT)
def _of_facts(facts: ContentFacts) -> tuple[dict[str, int], dict[str, Sequence[str]]]:
    """Return numbers and keywords. The keywords include the parent category, so that a search for it finds the
    torrent."""
    numbers = {
        "resolution": facts.resolution or None,
        "year": facts.year or None,
        "season": facts.season,
        "episode": facts.episode,
    }
    categories = dict.fromkeys([str(facts.category), str(facts.category // 1000 * 1000)])
    return (
        {name: number for name, number in numbers.items() if number is not None},
        {"type": _TYPES[facts.type], "language": facts.languages, "category": list(categories)},
    )
