"""The embedded search index: tantivy in a folder (`search.index_folder`). One process writes, any number read.

tantivy gets folded words separated by spaces. Queries are built term by term; tantivy's query syntax is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import tantivy
from tantivy import FieldType, Occur, Order, Query

from lycosa.core.errors import IndexFailure
from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import IndexMatch, Matches, SearchRequest, ValueFilter
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.index_folder import IndexFolder, failures

ENGINE, META = "tantivy", "meta.json"
WRITER_HEAP_BYTES = 50_000_000
REBUILD_THREADS = 2
KEY_MAX = 256
"""Maximum characters of a key; a longer key is replaced by its hash."""
PHRASE_WEIGHT = 2.0
"""Extra weight if the words of the query are adjacent in the document."""
_TIE_BREAKER = 0.2


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
        self._fields = self._index.schema
        self._index.config_reader("manual")  # `_searcher` reloads; tantivy's watcher thread would reload too late
        self._seen = self._commit_stamp()
        self._index.reload()
        self._adopted = self._folder.read_at

    @property
    def outdated(self) -> bool:
        return self._folder.outdated

    @property
    def analysis(self) -> tuple[str, ...]:
        return self._folder.analysis

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        writer = self._writing()
        with failures(self.path, "refuses documents"):
            _add(writer, entries, new)

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
            searcher = self._searcher()
            found = searcher.search(
                self._query(request),
                request.limit,
                offset=request.offset,
                order_by_field=request.sort or None,
                order=Order.Asc if request.ascending else Order.Desc,
            )
            keyed = self._keys(searcher, found)
            scores = [0.0 if request.sort else score for score, _ in found.hits]
        page = [IndexMatch(key, score, stored) for (key, stored), score in zip(keyed, scores, strict=True)]
        return Matches(int(found.count), page)  # type: ignore[attr-defined]  # missing in the type stubs

    def has_matches(self, request: SearchRequest) -> bool:
        with failures(self.path, "cannot be searched"):
            return bool(self._searcher().search(self._query(request), 1, count=False).hits)

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> dict[str, dict[str, int]]:
        wanted = {field: {"terms": {"field": field, "size": limit}} for field, limit in limits.items()}
        with failures(self.path, "cannot be searched"):
            found = self._searcher().aggregate(self._query(request), wanted)
        return {field: {bucket["key"]: bucket["doc_count"] for bucket in found[field]["buckets"]} for field in limits}

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        ranges = [{"from": low, "to": high} for low, high in pairwise(bounds)]
        wanted = {field: {"range": {"field": field, "ranges": ranges}}}
        with failures(self.path, "cannot be searched"):
            found = self._searcher().aggregate(self._query(request), wanted)
        counts = {bucket.get("from", 0): bucket["doc_count"] for bucket in found[field]["buckets"]}
        return [counts[low] for low, _ in pairwise(bounds)]

    def count(self) -> int:
        with failures(self.path, "cannot be read"):
            return self._searcher().num_docs

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

    def _searcher(self) -> tantivy.Searcher:
        """Return a searcher over the last commit of any process."""
        if self._folder.stamp() != self._adopted:
            with self._reload_lock:
                self._folder.reload()
                self._index = self._open_for_reading()
                self._load()
        stamp = self._commit_stamp()
        if stamp != self._seen:
            with self._reload_lock:
                self._index.reload()
                self._seen = stamp
        return self._index.searcher()

    def _keys(self, searcher: tantivy.Searcher, found: tantivy.SearchResult) -> list[tuple[str | int, bytes]]:
        addresses = [address for _, address in found.hits]
        if self.schema.numeric_keys:
            return [(int(key or 0), b"") for key in searcher.fast_field_values("key", addresses)]
        return [("", searcher.doc(address)["doc"][0]) for address in addresses]

    def _query(self, request: SearchRequest) -> Query:
        return _Queries(self.schema, self._fields).of(request)


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
            _add(self._writer, entries, new)

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
    index = tantivy.Index(_fields(schema), str(folder), reuse=True)
    writer = index.writer(WRITER_HEAP_BYTES * threads, threads)
    # An interrupted commit leaves files with the names that the next commit uses.
    writer.garbage_collect_files()
    return index, writer


def _fields(schema: Schema) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    if schema.numeric_keys:
        builder.add_integer_field("key", indexed=True, fast=True)
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


def _add(writer: tantivy.IndexWriter, entries: Sequence[IndexEntry], new: bool) -> None:
    for entry in entries:
        if not new:
            writer.delete_documents_by_term("key", _short(entry.key))
        writer.add_document(_document(entry))


def _document(entry: IndexEntry) -> tantivy.Document:
    made = tantivy.Document()
    if isinstance(entry.key, int):
        made.add_integer("key", entry.key)
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


# ---------------------------------------------------------------------------------------------------------- queries


class _Queries:
    """Builds tantivy queries for one kind of document."""

    def __init__(self, schema: Schema, fields: tantivy.Schema) -> None:
        self._schema, self._fields = schema, fields

    def of(self, request: SearchRequest) -> Query:
        """Return the query of a request."""
        query = self._matching(request.query)
        if not request.filters and not request.without:
            return query
        parts = [(Occur.Must, query)]
        if request.without:
            parts.append((Occur.MustNot, Query.term_set_query(self._fields, "key", list(request.without))))
        # A filter must not influence the order of the results.
        parts += [(Occur.Must, Query.const_score_query(self._filter(each), 0.0)) for each in request.filters]
        return Query.boolean_query(parts)

    def _filter(self, wanted: ValueFilter) -> Query:
        if wanted.values:
            return Query.term_set_query(self._fields, wanted.field, list(wanted.values))
        low = 0 if wanted.low is None else wanted.low
        return Query.range_query(self._fields, wanted.field, FieldType.Unsigned, low, wanted.high)

    def _matching(self, query: SearchQuery | LooseQuery | None) -> Query:
        if query is None:
            return Query.all_query()
        return self._most_of(query) if isinstance(query, LooseQuery) else self._all_of(query)

    def _all_of(self, query: SearchQuery) -> Query:
        parts = [(Occur.Must, self._clause(clause)) for clause in query.clauses]
        parts += [(Occur.MustNot, self._term(term)) for term in query.excluded]
        side_by_side = query.plain_words
        if len(side_by_side) > 1:
            near = [
                Query.boost_query(self._words_in(field, side_by_side), PHRASE_WEIGHT * self._schema.texts[field])
                for field in self._schema.near
            ]
            parts.append((Occur.Should, Query.disjunction_max_query(near)))
        return Query.boolean_query(parts)

    def _most_of(self, query: LooseQuery) -> Query:
        some = Query.boolean_query([(Occur.Should, self._term(term)) for term in query.optional], query.needed)
        parts = [(Occur.Must, some)]
        parts += [(Occur.Must, self._clause(clause)) for clause in query.clauses]
        parts += [(Occur.MustNot, self._term(term)) for term in query.excluded]
        return Query.boolean_query(parts)

    def _clause(self, clause: tuple[Term, ...]) -> Query:
        if len(clause) == 1:
            return self._term(clause[0])
        return Query.boolean_query([(Occur.Should, self._term(term)) for term in clause])

    def _term(self, term: Term) -> Query:
        if term.where == "site":
            if "site" not in self._schema.keywords:
                return Query.empty_query()
            return Query.const_score_query(Query.term_query(self._fields, "site", term.words[0], "basic"), 0.0)
        texts = self._schema.texts
        if term.where == "title":
            title = self._schema.title
            return Query.boost_query(self._words_in(title, term.words), texts[title])
        places = [Query.boost_query(self._words_in(field, term.words), weight) for field, weight in texts.items()]
        return Query.disjunction_max_query(places, _TIE_BREAKER)

    def _words_in(self, field: str, found: tuple[str, ...]) -> Query:
        if len(found) == 1:
            return Query.term_query(self._fields, field, found[0], "freq")
        return Query.phrase_query(self._fields, field, list(found))
