"""Opening the index of torrents."""

from __future__ import annotations

import pytest

from lycosa.app.torrent_search import open_torrent_index
from lycosa.core.errors import IndexFailure
from lycosa.search.core.schema import TORRENTS
from lycosa.search.index_folder import FORMAT, VERSION, Marker, write_marker


@pytest.mark.parametrize("write", [False, True])
def test_an_engine_of_another_lycosa_is_named(tmp_path, write):
    write_marker(tmp_path, Marker(FORMAT, VERSION, TORRENTS.kind, TORRENTS.words, "other"))
    with pytest.raises(IndexFailure, match=r"unknown engine 'other': update Lycosa"):
        open_torrent_index(tmp_path, write=write)
