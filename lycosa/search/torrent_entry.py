"""The index entry of a torrent: the words of its names, and the values for filters and sorting."""

from __future__ import annotations

from functools import lru_cache

from lycosa.search.core.schema import NUMBER_MAX, IndexEntry
from lycosa.search.core.torrent_text import torrent_texts
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import SearchedTorrent

_NOTHING = ContentFacts()
_TYPES = {each: [each.name.lower()] for each in ContentType}


def torrent_entry(torrent: SearchedTorrent) -> IndexEntry:
    """Return the entry of a stored torrent. Unknown values are left out, not set to 0."""
    facts = torrent.content or _NOTHING
    name, files = torrent_texts(torrent.name, torrent.paths)
    numbers = {
        "size": min(torrent.size_bytes, NUMBER_MAX),
        "found": torrent.discovered,
        "files_count": torrent.files_count,
        "resolution": facts.resolution or None,
        "year": facts.year or None,
        "season": facts.season,
        "episode": facts.episode,
        "seeders": None if torrent.counted is None else torrent.seeders,
    }
    return IndexEntry(
        torrent.id,
        {"name": name, "files": files},
        {name: number for name, number in numbers.items() if number is not None},
        {"type": _TYPES[facts.type], "language": facts.languages, "category": _categories(facts.category)},
    )


@lru_cache(1000)
def _categories(category: int) -> list[str]:
    """Return the category and its parent: a search for the parent finds all of its categories."""
    return list(dict.fromkeys([str(category), str(category // 1000 * 1000)]))
