"""Reads the files of outputs as other programs do: Python's readers, `zcat` and `zstdcat`."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.conftest import need

TOOLS = {".gz": "zcat", ".zst": "zstdcat"}


def decompressed(path: Path) -> bytes:
    """Return the content of a file as another program decompresses it."""
    if path.suffix not in TOOLS or not path.stat().st_size:
        return path.read_bytes()
    need("zstdcat (apt-get install zstd)", shutil.which(TOOLS[path.suffix]) is not None)
    return subprocess.run([TOOLS[path.suffix], path], check=True, capture_output=True).stdout


def lines(path: Path) -> list[Any]:
    content = decompressed(path)
    assert content[-1:] in {b"", b"\n"}
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def array(path: Path) -> list[Any]:
    found: list[Any] = json.loads(decompressed(path))
    return found


def csv_rows(path: Path) -> list[Any]:
    """Return the cells with text; numbers are converted back."""
    rows = csv.DictReader(io.StringIO(decompressed(path).decode(), newline=""), strict=True)
    return [{name: int(text) if text.isdigit() else text for name, text in row.items() if text} for row in rows]


def sqlite_rows(path: Path) -> list[Any]:
    """Return the fields of the items that are not null."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM items ORDER BY _position, rowid")]
    return [{name: value for name, value in row.items() if name[0] != "_" and value is not None} for row in rows]


READERS: dict[str, Callable[[Path], list[Any]]] = {
    "jsonl": lines,
    "jsonl.gz": lines,
    "jsonl.zst": lines,
    "csv": csv_rows,
    "csv.gz": csv_rows,
    "csv.zst": csv_rows,
    "json": array,
    "json.gz": array,
    "json.zst": array,
    "sqlite": sqlite_rows,
}
"""How a file is read, by its suffix."""
