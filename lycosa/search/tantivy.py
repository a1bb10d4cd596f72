"""The embedded search index: tantivy in a folder (`search.index_folder`). One process writes, any number read.

tantivy gets folded words separated by spaces. Queries are built term by term; tantivy's query syntax is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import tantivy

from lycosa.core.errors import IndexFailure
from lycosa.search.core.request import Matches, SearchRequest, ValueCounts
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.index_folder import IndexFolder, failures
from lycosa.search.tantivy_reader import TantivyReader
from lycosa.search.tantivy_slices import FIELD, has_slices, slice_of

ENGINE, META = "tantivy", "meta.json"
WRITER_HEAP_BYTES = 50_000_000
REBUILD_THREADS = 2
KEY_MAX = 256
"""Maximum characters of a key; a longer key is replaced by its hash."""


class TantivyIndex:
    """The `Index` port in the folder `path`. With `write` it is the only writer, and creates the folder if needed.

    Raises `IndexFailure` if the folder has data other than an index, if a newer Lycosa built the index, or if another
    process writes it. Without `write`, also raises it if there is no index.
    """

    def __init__(self, path: Path, schema: Schema, *, write: bool = False) -> None:
        self.path = path
        self.schema = schema
        self._writer: tantivy.IndexWriter | None = None
        self._reload_lock = threading.Lock()
        self._folder = IndexFolder(path, ENGINE, schema, write=write)
        try:
            self._open(write)
        except BaseException:
            self.close()
            raise

    def _open(self, write: bool) -> None:
        with failures(self.path, "cannot be opened"):
            if write:
                self._folder.remove_others()
                if not (self._folder.data / META).exists():  # they would skip the lost documents
                    self._folder.forget_positions()
                self._index, self._writer = _open_for_writing(self._folder.data, self.schema)
            else:
                self._index = self._open_for_reading()
            self._load()
        self._positions = self._folder.positions()

    def _open_for_reading(self) -> tantivy.Index:
        if not (self._folder.data / META).exists():
            raise IndexFailure(f"the index {self.path} is still empty: fill it with `lycosa index`")
        return tantivy.Index.open(str(self._folder.data))

    def _load(self) -> None:
        self._is_sliced = has_slices(self._index.schema)
        self._index.config_reader("manual")  # `_reader` reloads; tantivy's watcher thread would reload too late
        stamp = self._commit_stamp()
        self._index.reload()
        self._last = TantivyReader(self.schema, self._index, stamp)
        self._adopted = self._folder.read_at

    @property
    def outdated(self) -> bool:
        return self._folder.outdated or (self.schema.numeric_keys and not self._is_sliced)

    @property
    def analysis(self) -> tuple[str, ...]:
        return self._folder.analysis

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        writer = self._writing()
        with failures(self.path, "refuses documents"):
            _add(writer, entries, new, self._is_sliced)

    def remove(self, keys: Sequence[str | int]) -> None:
        writer = self._writing()
        with failures(self.path, "refuses documents"):
            for key in keys:
                writer.delete_documents_by_term("key", _short(key))

    def commit(self, positions: Mapping[str, int]) -> None:
        writer = self._writing()
        with failures(self.path, "cannot commit"):
            writer.commit()
            # Positions are written after the documents: a crash in between repeats documents, but never loses one.
            merged = {**self._positions, **positions}
            self._folder.write_positions(merged)
        self._positions = merged

    def positions(self) -> dict[str, int]:
        return dict(self._positions) if self._writer else self._folder.positions()

    def find(self, request: SearchRequest) -> Matches:
        with failures(self.path, "cannot be searched"):
            return self._reader().find(request)

    def has_matches(self, request: SearchRequest) -> bool:
        with failures(self.path, "cannot be searched"):
            return self._reader().has_matches(request)

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        with failures(self.path, "cannot be searched"):
            return self._reader().count_values(request, limits)

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        with failures(self.path, "cannot be searched"):
            return self._reader().count_ranges(request, field, bounds)

    def count(self) -> int:
        with failures(self.path, "cannot be read"):
            return self._reader().count

    def rebuild(self) -> Rebuilt:
        self._writing()
        return Rebuilt(self.schema, self._folder, self._folder.marker.generation + 1)

    def adopt(self, rebuilt: object) -> None:
        assert isinstance(rebuilt, Rebuilt)
        rebuilt.commit({})
        rebuilt.close()
        self._close_writer()
        with failures(self.path, "cannot be replaced"):
            self._folder.adopt(rebuilt.generation)
            self._index, self._writer = _open_for_writing(self._folder.data, self.schema)
            self._load()

    def close(self) -> None:
        try:
            self._close_writer()
        finally:
            self._folder.close()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # Committed documents are safe, and `add` or `commit` has already reported why a thread failed.
            with contextlib.suppress(ValueError):
                writer.wait_merging_threads()

    def _writing(self) -> tantivy.IndexWriter:
        if self._writer is None:
            raise IndexFailure(f"the index {self.path} is not open for writing")
        return self._writer

    def _commit_stamp(self) -> tuple[int, int]:
        status = (self._folder.data / META).stat()
        return status.st_mtime_ns, status.st_ino

    def _reader(self) -> TantivyReader:
        """Return a reader of the last commit of any process."""
        if self._folder.stamp() != self._adopted:
            with self._reload_lock:
                self._folder.reload()
                self._index = self._open_for_reading()
                self._load()
        stamp = self._commit_stamp()
        if stamp != self._last.stamp:
            with self._reload_lock:
                self._index.reload()
                self._last = TantivyReader(self.schema, self._index, stamp)
        return self._last


class Rebuilt:
    """A new generation of an index, which is filled and then adopted."""

    def __init__(self, schema: Schema, folder: IndexFolder, generation: int) -> None:
        self.schema, self.generation = schema, generation
        self._path = folder.path
        with failures(folder.path, "cannot be rebuilt"):
            folder.remove_others()
            _, self._writer = _open_for_writing(folder.generation(generation), schema, REBUILD_THREADS)

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        """See `Index.add`."""
        with failures(self._path, "refuses documents"):
            _add(self._writer, entries, new, self.schema.numeric_keys)

    def remove(self, keys: Sequence[str | int]) -> None:
        """See `Index.remove`."""
        with failures(self._path, "refuses documents"):
            for key in keys:
                self._writer.delete_documents_by_term("key", _short(key))

    def commit(self, positions: Mapping[str, int]) -> None:
        """See `Index.commit`."""
        with failures(self._path, "cannot commit"):
            self._writer.commit()

    def close(self) -> None:
        """Release the files."""
        with contextlib.suppress(ValueError):
            self._writer.wait_merging_threads()


# -------------------------------------------------------------------------------------------------------- documents


def _open_for_writing(folder: Path, schema: Schema, threads: int = 1) -> tuple[tantivy.Index, tantivy.IndexWriter]:
    folder.mkdir(exist_ok=True)
    exists = (folder / META).exists()  # then its fields may be those of an earlier version
    index = tantivy.Index.open(str(folder)) if exists else tantivy.Index(_fields(schema), str(folder))
    writer = index.writer(WRITER_HEAP_BYTES * threads, threads)
    # An interrupted commit leaves files with the names that the next commit uses.
    writer.garbage_collect_files()
    return index, writer


def _fields(schema: Schema) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    if schema.numeric_keys:
        builder.add_integer_field("key", indexed=True, fast=True)
        builder.add_text_field(FIELD, tokenizer_name="raw", index_option="basic")
    else:
        builder.add_text_field("key", tokenizer_name="raw", index_option="basic")
    for name in schema.keywords:
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic", fast=name in schema.counted)
    for name in schema.texts:
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="position")
    for name in schema.numbers:
        builder.add_unsigned_field(name, fast=True)
    if not schema.numeric_keys:
        builder.add_bytes_field("doc", stored=True)
    return builder.build()


def _add(writer: tantivy.IndexWriter, entries: Sequence[IndexEntry], new: bool, sliced: bool) -> None:
    for entry in entries:
        if not new:
            writer.delete_documents_by_term("key", _short(entry.key))
        writer.add_document(_document(entry, sliced))


def _document(entry: IndexEntry, sliced: bool) -> tantivy.Document:
    made = tantivy.Document()
    if isinstance(entry.key, int):
        made.add_integer("key", entry.key)
        if sliced:
            made.add_text(FIELD, slice_of(entry.key))
    else:
        made.add_text("key", str(_short(entry.key)))
        made.add_bytes("doc", entry.stored)
    for name, values in entry.keywords.items():
        for value in values:
            made.add_text(name, value)
    for name, text in entry.texts.items():
        made.add_text(name, text)
    for name, number in entry.numbers.items():
        made.add_unsigned(name, number)
    return made


def _short(key: str | int) -> str | int:
    return key if isinstance(key, int) or len(key) <= KEY_MAX else hashlib.sha256(key.encode()).hexdigest()
