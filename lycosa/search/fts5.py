"""A search index in SQLite (FTS5), for small sites. SQLite is in Python's standard library.

DIR/fts5/index.sqlite   entries (a row per document: key, numbers, stored data), keywords, words (FTS5), positions

The texts are already analyzed, so FTS5 splits them only at spaces. Until `commit`, changes are in a transaction that
readers do not see.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from lycosa.core.errors import IndexFailure
from lycosa.infra.sqlite import open_database
from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import IndexMatch, Matches, SearchRequest, ValueCounts, ValueFilter
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.index_folder import IndexFolder, failures

ENGINE, FILE = "fts5", "index.sqlite"
TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"


class Fts5Index:
    """Implements `search.ports.Index`. With `write`, creates a missing folder `path`. Raises `IndexFailure`."""

    def __init__(self, path: Path, schema: Schema, *, write: bool = False) -> None:
        self.path = path
        self.schema = schema
        self._write = write
        self._turn = threading.Lock()
        self._folder = IndexFolder(path, ENGINE, schema, write=write)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        data = self._folder.data
        if self._write:
            with _failures(self.path, "cannot be opened"):
                self._folder.remove_others()
                data.mkdir(exist_ok=True)
        elif not (data / FILE).exists():
            raise IndexFailure(f"the index {self.path} is still empty: fill it with `{self.schema.filled_by}`")
        with _failures(self.path, "cannot be opened"):
            self._writer = _Writer(self.path, data / FILE, self.schema) if self._write else None
            self._reader = _connect(data / FILE, self.schema)
        self._adopted = self._folder.read_at

    @property
    def outdated(self) -> bool:
        return self._folder.outdated

    @property
    def analysis(self) -> tuple[str, ...]:
        return self._folder.analysis

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        self._writing().add(entries, new=new)

    def remove(self, keys: Sequence[str | int]) -> None:
        self._writing().remove(keys)

    def commit(self, positions: Mapping[str, int]) -> None:
        self._writing().commit(positions)

    def positions(self) -> dict[str, int]:
        return dict(self._read("SELECT source, position FROM positions"))

    def find(self, request: SearchRequest) -> Matches:
        matching = _Matching(self.schema, request)
        order = (
            f"e.{request.sort} {'ASC NULLS LAST' if request.ascending else 'DESC'}" if request.sort else "score DESC"
        )
        with _failures(self.path, "cannot be searched"):
            [(total,)] = self._read(
                f"SELECT count(*) FROM {matching.source} WHERE {matching.condition}", matching.values
            )
            page = self._read(
                f"SELECT e.key, {matching.score} AS score, e.stored FROM {matching.source}"
                f" WHERE {matching.condition} ORDER BY {order}, e.id LIMIT ? OFFSET ?",
                [*matching.values, request.limit, request.offset],
            )
        return Matches(total, [IndexMatch(key, 0.0 if request.sort else score, stored) for key, score, stored in page])

    def has_matches(self, request: SearchRequest, more_than: int = 0) -> bool:
        matching = _Matching(self.schema, request)
        with _failures(self.path, "cannot be searched"):
            found = f"SELECT 1 FROM {matching.source} WHERE {matching.condition} LIMIT {more_than + 1}"
            return len(self._read(found, matching.values)) > more_than

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        return ValueCounts({field: self._count_values(request, field, limit) for field, limit in limits.items()})

    def _count_values(self, request: SearchRequest, field: str, limit: int) -> dict[str, int]:
        matching = _Matching(self.schema, request)
        matches = f"SELECT e.id FROM {matching.source} WHERE {matching.condition}"
        # CROSS JOIN: otherwise SQLite reads all keywords first, even if few documents match.
        joined = f"({matches}) m CROSS JOIN keywords k ON k.id = m.id" if matching.has_words else "keywords k"
        condition = "TRUE" if matching.has_words else f"k.id IN ({matches})"
        with _failures(self.path, "cannot be searched"):
            counts = self._read(
                f"SELECT k.value, count(*) FROM {joined} WHERE {condition} AND k.field = ?"
                " GROUP BY k.value ORDER BY count(*) DESC, k.value LIMIT ?",
                [*matching.values, field, limit],
            )
        return dict(counts)

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        matching = _Matching(self.schema, request)
        within = ", ".join(f"coalesce(sum(e.{field} >= ? AND e.{field} < ?), 0)" for _ in bounds[1:])
        values = [*chain(*pairwise(bounds)), *matching.values]
        with _failures(self.path, "cannot be searched"):
            [row] = self._read(f"SELECT {within} FROM {matching.source} WHERE {matching.condition}", values)
        return list(row)

    def count(self) -> int:
        return int(self._read("SELECT count(*) FROM entries")[0][0])

    def rebuild(self) -> Fts5Rebuilt:
        self._writing()
        number = self._folder.marker.generation + 1
        folder = self._folder.generation(number)
        with _failures(self.path, "cannot be rebuilt"):
            self._folder.remove_others()
            folder.mkdir()
            return Fts5Rebuilt(self.path, folder / FILE, self.schema, number)

    def adopt(self, rebuilt: object) -> None:
        assert isinstance(rebuilt, Fts5Rebuilt)
        with _failures(self.path, "cannot be replaced"):
            rebuilt.commit(self.positions())
            rebuilt.close()
            with self._turn:
                self._close_files()
                self._folder.adopt(rebuilt.generation)
                self._open()

    def close(self) -> None:
        with self._turn:
            self._close_files()
        self._folder.close()

    def _close_files(self) -> None:
        for opened in (getattr(self, "_writer", None), getattr(self, "_reader", None)):
            if opened is not None:
                opened.close()

    def _writing(self) -> _Writer:
        if self._writer is None:
            raise IndexFailure(f"the index {self.path} is not open for writing")
        return self._writer

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn, _failures(self.path, "cannot be read"):
            if self._folder.stamp() != self._adopted:
                self._close_files()
                self._folder.reload()
                self._open()
            return self._reader.execute(statement, values).fetchall()


class _Writer:
    """Writes into a database of the index in the folder `index`. Raises `IndexFailure`."""

    def __init__(self, index: Path, path: Path, schema: Schema) -> None:
        self._index = index
        self._schema = schema
        self._database = _connect(path, schema)

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        with _failures(self._index, "does not accept documents"):
            self._begin()
            for entry in entries:
                if not new:
                    self._remove(entry.key)
                self._add(entry)

    def remove(self, keys: Sequence[str | int]) -> None:
        with _failures(self._index, "does not accept documents"):
            self._begin()
            for key in keys:
                self._remove(key)

    def commit(self, positions: Mapping[str, int]) -> None:
        with _failures(self._index, "cannot commit"):
            self._begin()
            self._database.executemany("REPLACE INTO positions VALUES (?, ?)", positions.items())
            self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()

    def _begin(self) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")

    def _add(self, entry: IndexEntry) -> None:
        texts = [entry.texts.get(name, "") for name in self._schema.texts]
        numbers = [entry.numbers.get(name) for name in self._schema.numbers]
        row = self._insert("entries", [None, entry.key, entry.stored, *numbers])
        self._database.execute(
            f"INSERT INTO words (rowid, {', '.join(self._schema.texts)}) VALUES ({_marks(1 + len(texts))})",
            [row, *texts],
        )
        for field, values in entry.keywords.items():
            for value in dict.fromkeys(values):
                self._insert("keywords", [field, value, row])

    def _remove(self, key: str | int) -> None:
        for (row,) in self._database.execute("SELECT id FROM entries WHERE key = ?", [key]).fetchall():
            for statement in (
                "DELETE FROM words WHERE rowid = ?",
                "DELETE FROM keywords WHERE id = ?",
                "DELETE FROM entries WHERE id = ?",
            ):
                self._database.execute(statement, [row])

    def _insert(self, table: str, values: Sequence[Any]) -> int:
        return self._database.execute(f"INSERT INTO {table} VALUES ({_marks(len(values))})", values).lastrowid or 0


class Fts5Rebuilt(_Writer):
    """A new generation of an index, to be filled and then adopted."""

    def __init__(self, index: Path, path: Path, schema: Schema, generation: int) -> None:
        super().__init__(index, path, schema)
        self.generation = generation
        self._folder = path.parent

    def discard(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _connect(path: Path, schema: Schema) -> sqlite3.Connection:
    numbers = "".join(f", {name} INTEGER" for name in schema.numbers)
    make = [
        f"CREATE TABLE entries (id INTEGER PRIMARY KEY, key UNIQUE NOT NULL, stored BLOB NOT NULL{numbers})",
        "CREATE TABLE keywords (field TEXT, value TEXT, id INTEGER, PRIMARY KEY (field, value, id)) WITHOUT ROWID",
        "CREATE INDEX keywords_of ON keywords (id)",
        "CREATE TABLE positions (source TEXT PRIMARY KEY, position INTEGER NOT NULL)",
        f'CREATE VIRTUAL TABLE words USING fts5 ({", ".join(schema.texts)}, tokenize="{TOKENIZER}")',
        *(f"CREATE INDEX by_{name} ON entries ({name})" for name in schema.numbers),
    ]
    return open_database(path, lambda _: None, make)


@contextmanager
def _failures(index: Path, what: str) -> Iterator[None]:
    with failures(index, what):
        try:
            yield
        except sqlite3.Error as error:
            raise ValueError(str(error)) from error


def _marks(count: int) -> str:
    return ", ".join("?" * count)


class _Matching:
    def __init__(self, schema: Schema, request: SearchRequest) -> None:
        self._schema = schema
        self.source, self.score, self.has_words = "entries e", "0.0", False
        self._conditions: list[str] = []
        self.values: list[Any] = []
        if request.query is not None:
            self._match(request.query)
        for each in request.filters:
            self._filter(each)
        if request.without:
            self._add(f"e.key NOT IN ({_marks(len(request.without))})", request.without)

    @property
    def condition(self) -> str:
        return " AND ".join(self._conditions) or "TRUE"

    def _match(self, query: SearchQuery | LooseQuery) -> None:
        optional = query.optional if isinstance(query, LooseQuery) else ()
        sites = [clause for clause in query.clauses if any(term.where == "site" for term in clause)]
        searched = [clause for clause in (*query.clauses, optional) if clause and clause not in sites]
        if searched:
            weights = ", ".join(str(weight) for weight in self._schema.texts.values())
            self.has_words = True
            self.source = "words CROSS JOIN entries e ON e.id = words.rowid"
            self.score = f"-bm25(words, {weights})"
            expressions = (" OR ".join(map(self._expression, clause)) for clause in searched)
            self._add("words MATCH ?", [" AND ".join(f"({each})" for each in expressions)])
        for clause in sites:
            self._add(*self._any_of(clause))
        if isinstance(query, LooseQuery):
            some = " UNION ALL ".join("SELECT rowid AS id FROM words WHERE words MATCH ?" for _ in optional)
            enough = f"e.id IN (SELECT id FROM ({some}) GROUP BY id HAVING count(*) >= ?)"
            self._add(enough, [*map(self._expression, optional), query.needed])
        for term in query.excluded:
            condition, values = self._any_of((term,))
            self._add(f"NOT {condition}", values)

    def _any_of(self, terms: tuple[Term, ...]) -> tuple[str, list[Any]]:
        parts, values = [], list[Any]()
        for term in terms:
            if term.where == "site":
                parts.append("SELECT id FROM keywords WHERE field = 'site' AND value = ?")
                values.append(term.words[0])
            else:
                parts.append("SELECT rowid FROM words WHERE words MATCH ?")
                values.append(self._expression(term))
        return f"e.id IN ({' UNION '.join(parts)})", values

    def _expression(self, term: Term) -> str:
        phrase = '"' + " ".join(term.words) + '"'
        return f"{self._schema.title} : {phrase}" if term.where == "title" else phrase

    def _filter(self, wanted: ValueFilter) -> None:
        if wanted.values:
            listed = _marks(len(wanted.values))
            # A query with words leaves few documents: look up the keywords of each.
            source = "keywords k WHERE k.id = e.id AND" if self.has_words else "keywords k WHERE"
            found = f"SELECT k.id FROM {source} k.field = ? AND k.value IN ({listed})"
            condition = f"EXISTS ({found})" if self.has_words else f"e.id IN ({found})"
            self._add(condition, [wanted.field, *wanted.values])
            return
        if wanted.low is None and wanted.high is None:
            self._add(f"e.{wanted.field} IS NOT NULL", [])
        if wanted.low is not None:
            self._add(f"e.{wanted.field} >= ?", [wanted.low])
        if wanted.high is not None:
            self._add(f"e.{wanted.field} <= ?", [wanted.high])

    def _add(self, condition: str, values: Sequence[Any]) -> None:
        self._conditions.append(condition)
        self.values += values
