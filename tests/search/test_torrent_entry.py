"""The values of a torrent in the index."""

from __future__ import annotations

from lycosa.search.torrent_entry import torrent_entry
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import SearchedTorrent

TORRENT = SearchedTorrent(1, "Some game", (), 1, 1000, 0, None, 0, None)


def test_a_torrent_is_found_in_its_category_and_in_the_parent_of_the_category():
    for category, found in ((1180, ["1180", "1000"]), (5040, ["5040", "5000"]), (8000, ["8000"])):
        entry = torrent_entry(TORRENT._replace(content=ContentFacts(category=category)))
        assert entry.keywords["category"] == found
