"""Opening the index of pages."""

from __future__ import annotations

from contextlib import closing

import pytest

from lycosa.app.search import open_index
from lycosa.core.errors import IndexFailure


def test_an_index_is_not_locked_after_its_words_could_not_be_opened(tmp_path):
    open_index(tmp_path, write=True).close()
    for file in (tmp_path / "words").iterdir():
        file.unlink()
    (tmp_path / "words").rmdir()
    (tmp_path / "words").touch()
    with pytest.raises(IndexFailure, match="has a word list that cannot be opened"):
        open_index(tmp_path, write=True)
    (tmp_path / "words").unlink()
    with closing(open_index(tmp_path, write=True)) as index:
        assert index.count() == 0
