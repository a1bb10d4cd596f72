"""The folder of an index: readers and a new generation."""

from __future__ import annotations

from contextlib import closing

import pytest

from lycosa.search import index_folder
from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.index_folder import IndexFolder
from tests.search.indexes import create_index, open_index


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_a_generation_that_is_adopted_while_a_reader_opens_is_noticed(tmp_path, monkeypatch, engine):
    entries = [IndexEntry(key, {"name": "show"}) for key in (1, 2)]
    check, adopted = index_folder._check, []

    def check_then_adopt(path, wanted):
        marker = check(path, wanted)
        if not adopted:
            adopted.append(marker)
            # The writer adopts the new generation, and has not yet removed the previous one.
            with monkeypatch.context() as slowly:
                slowly.setattr(IndexFolder, "remove_others", lambda _: None)
                writer.adopt(rebuilt)
        return marker

    with closing(create_index(engine, tmp_path, TORRENTS)) as writer:
        writer.add(entries[:1])
        writer.commit({})
        rebuilt = writer.rebuild()
        rebuilt.add(entries)
        monkeypatch.setattr(index_folder, "_check", check_then_adopt)
        with closing(open_index(engine, tmp_path, TORRENTS, write=False)) as reader:
            assert reader.count() == 2
        assert adopted
