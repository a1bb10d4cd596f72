"""Files of lines: long lines are cut, compressed files are read and written, and only complete files get their name."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from lycosa.core.errors import StorageError, UsageError
from lycosa.infra.line_files import READ_ERRORS, decompressed, new_file, numbered_lines

TEXT = b"first\nsecond\n"


def test_a_long_line_is_cut_and_the_next_one_is_read() -> None:
    stream = io.BytesIO(b"a" * 100 + b"\nb\n\nlast")
    assert list(numbered_lines(stream, 5)) == [(1, b"a" * 7), (2, b"b\n"), (3, b"\n"), (4, b"last")]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_file_written_under_any_suffix_is_read_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    with new_file(str(path), suffix=suffix) as stream:
        stream.write(TEXT)
    with path.open("rb") as file:
        assert decompressed(file, suffix).read() == TEXT
    assert (path.read_bytes() == TEXT) == (not suffix)


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    with pytest.raises(TypeError), new_file(str(path), suffix=".gz") as stream:
        stream.writelines([TEXT, None])
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"kept")
    with pytest.raises(UsageError, match="exists"), new_file(str(path)):
        pass
    assert path.read_bytes() == b"kept"
    with pytest.raises(StorageError, match="no such file"), new_file(str(tmp_path / "none" / "b")):
        pass


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "empty"])
def test_a_damaged_file_raises_one_of_the_read_errors(suffix: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with new_file(str(path), suffix=suffix) as stream:
        stream.write(bytes(range(256)) * 100)
    data = path.read_bytes()
    changed = data[:20] + bytes(each ^ 255 for each in data[20:60]) + data[60:]
    damaged = {"cut": data[:-9], "changed": changed, "foreign": b"not compressed", "empty": b""}[damage]
    try:
        list(numbered_lines(decompressed(io.BytesIO(damaged), suffix), 1000))
    except READ_ERRORS:
        return
    assert damage == "empty"


def test_all_gzip_members_of_a_file_that_grew_are_read() -> None:
    packed = io.BytesIO(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert [line for _, line in numbered_lines(decompressed(packed, ".gz"), 9)] == [b"a\n", b"b\n"]
