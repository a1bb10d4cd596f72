"""`bench/sphinx_batch.py`: the batch indexer reads the rows that a command writes."""

from __future__ import annotations

import pytest

from lycosa.search.core.schema import IndexEntry
from tests.bench.conftest import programs
from tests.conftest import need
from tests.servers.sphinx import SPHINX, find_sphinx


@pytest.fixture(autouse=True, scope="module")
def batch():
    with programs("sphinx_batch") as imported:
        yield imported.sphinx_batch


def test_an_index_has_the_rows_of_the_command(batch, tmp_path):
    need(SPHINX, find_sphinx() is not None)
    fields = batch.text_fields(files=True)
    rows = [IndexEntry(key, {"name": "show", "files": "read me"}, {"size": key}) for key in (1, 2, 3)]
    (tmp_path / "rows.tsv").write_text("".join(batch.fed_row(each, fields) for each in rows))
    assert batch.batch_index(tmp_path, f"cat {tmp_path}/rows.tsv", fields, "16M") == 3
    assert sum(file.stat().st_size for file in tmp_path.glob("plain.*")) > 0
    with pytest.raises(AssertionError):
        batch.batch_index(tmp_path, "false", fields, "16M")
