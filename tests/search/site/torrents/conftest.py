from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.search.site.torrents.sample_torrents import TorrentSite, torrent_site


@pytest.fixture(scope="module")
def torrents(tmp_path_factory) -> Iterator[TorrentSite]:
    """A site that the tests of a module share and do not change."""
    with torrent_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module")
def site(torrents):
    return torrents.server
