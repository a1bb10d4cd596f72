"""Writes documents into tantivy. Several processes can fill a new index in parts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import tantivy

from lycosa.infra.durable_files import replace_file
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.index_folder import failures
from lycosa.search.tantivy_documents import add_entries, remove_keys, schema_fields

META, MANAGED = "meta.json", ".managed.json"
WRITER_HEAP_BYTES = 50_000_000
PART_HEAP_BYTES_MAX = 300_000_000
DOCUMENT_HEAP_BYTES = 500
"""Approximate memory for a torrent while its segment is in memory."""
PART_SEGMENTS = 6
"""Number of segments of a part, if PART_HEAP_BYTES_MAX allows. It is less than eight, because tantivy merges eight
segments of similar size.
"""
REBUILD_THREADS = 2
PART = "part."


class Rebuilt:
    """A new generation, in the folder `data`, to be filled and then adopted."""

    def __init__(self, schema: Schema, index: Path, data: Path, generation: int) -> None:
        self.schema, self.generation = schema, generation
        self._index, self._data = index, data
        self._writer: tantivy.IndexWriter | None = None
        data.mkdir()

    def open_part(self, number: int, documents: int) -> TantivyPart:
        return TantivyPart(self.schema, self._index, self._data / f"{PART}{number}", documents)

    def join_parts(self) -> None:
        with failures(self._index, "cannot be rebuilt"):
            _join(self._data, sorted(self._data.glob(f"{PART}*/")))

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        with failures(self._index, "does not accept documents"):
            add_entries(self._writing(), self.schema, entries, new, self.schema.numeric_keys)

    def remove(self, keys: Sequence[str | int]) -> None:
        with failures(self._index, "does not accept documents"):
            if keys:
                remove_keys(self._writing(), keys)

    def commit(self) -> None:
        with failures(self._index, "cannot commit"):
            if self._writer is not None or not (self._data / META).exists():
                self._writing().commit()

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(ValueError):
                self._writer.wait_merging_threads()

    def discard(self) -> None:
        self.close()
        shutil.rmtree(self._data, ignore_errors=True)

    def _writing(self) -> tantivy.IndexWriter:
        if self._writer is None:
            _, self._writer = open_for_writing(self._data, self.schema, REBUILD_THREADS)
        return self._writer


class TantivyPart:
    """A part of a new generation, in the folder `data`. Its segments are large, so that few have to be merged."""

    def __init__(self, schema: Schema, index: Path, data: Path, documents: int) -> None:
        self._index, self._schema = index, schema
        heap_bytes = min(max(documents * DOCUMENT_HEAP_BYTES // PART_SEGMENTS, WRITER_HEAP_BYTES), PART_HEAP_BYTES_MAX)
        with failures(index, "cannot be rebuilt"):
            _, self._writer = open_for_writing(data, schema, heap_bytes=heap_bytes)

    def add(self, entries: Sequence[IndexEntry]) -> None:
        with failures(self._index, "does not accept documents"):
            add_entries(self._writer, self._schema, entries, True, self._schema.numeric_keys)

    def finish(self) -> None:
        with failures(self._index, "cannot commit"):
            self._writer.commit()
            self._writer.wait_merging_threads()


def open_for_writing(
    folder: Path, schema: Schema, threads: int = 1, heap_bytes: int = WRITER_HEAP_BYTES
) -> tuple[tantivy.Index, tantivy.IndexWriter]:
    """Open the index in a folder, with `heap_bytes` for each thread. Raises `ValueError`, `OSError`."""
    folder.mkdir(exist_ok=True)
    exists = (folder / META).exists()  # an existing index keeps its fields, perhaps of an earlier version
    index = tantivy.Index.open(str(folder)) if exists else tantivy.Index(schema_fields(schema), str(folder))
    writer = index.writer(heap_bytes * threads, threads)
    # An interrupted commit leaves files whose names the next commit uses.
    writer.garbage_collect_files()
    return index, writer


def _join(folder: Path, parts: Sequence[Path]) -> None:
    """Move the segments of the parts into the folder. Segments have unique names and are independent."""
    metas = [msgspec.json.decode((part / META).read_bytes()) for part in parts]
    managed = {name for part in parts for name in msgspec.json.decode((part / MANAGED).read_bytes())}
    for part in parts:
        for file in part.iterdir():
            if file.name in managed and file.name != META:
                file.rename(folder / file.name)
    joined = {
        **metas[0],
        "segments": [segment for each in metas for segment in each["segments"]],
        "opstamp": max(each["opstamp"] for each in metas),
    }
    replace_file(folder / MANAGED, msgspec.json.encode(sorted(managed)), sync=True)
    replace_file(folder / META, msgspec.json.encode(joined), sync=True)
    for part in parts:
        for file in part.iterdir():
            file.unlink()
        part.rmdir()
