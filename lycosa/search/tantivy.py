"""The embedded search index: tantivy in a folder. One process writes, any number read.

    DIR/lycosa-index.json   {format, version}: written first, so that an unfinished creation is recognized
    DIR/positions.json      source -> bytes read; replaced after each commit of tantivy: never ahead of the documents
    DIR/writer.lock         locked (flock) by the writing process, and contains its id; unlocked when the process ends
    DIR/tantivy/            tantivy's files; DIR/tantivy.erased/ while they are being removed

After kill -9 the index has the documents of the last commit, and the positions of that commit or of the previous one.
Reading the difference again changes nothing, since a document replaces the one with the same key.

tantivy gets folded words (`search.core.analyzer`) separated by spaces, and the encoded document, from which results and
snippets are built. Queries are built term by term; tantivy's query syntax is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import tantivy
from tantivy import Occur, Query

from lycosa.core.errors import IndexFailure
from lycosa.infra.disk import is_full
from lycosa.infra.durable_files import replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close
from lycosa.search.core.analyzer import words
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import LooseQuery, SearchQuery, Term, check_page, parse_query, site_names
from lycosa.search.core.results import Document, SearchPage

FORMAT = "lycosa-index"
VERSION = 1
MARKER, LOCK = "lycosa-index.json", "writer.lock"
UNFINISHED = {LOCK, f"{MARKER}.new"}
"""Files that may exist in the folder of an index whose creation did not finish."""
ERASED = "tantivy.erased"
"""What `tantivy/` is renamed to before its files are removed; a killed process may leave it behind."""
WRITER_HEAP_BYTES = 50_000_000
TEXT_MAX = 2_000_000
"""Maximum characters of a document's text that are indexed; the whole text is stored."""
KEY_MAX = 256
"""Maximum characters of a key; a longer key is replaced by its hash."""
WEIGHTS = {"title": 4.0, "headings": 2.0, "text": 1.0, "url": 0.6}
"""Weight of a word by field."""
PHRASE_WEIGHT = 2.0
"""Extra weight if the words of the query are adjacent in the document."""
_SYSTEM_MESSAGE = re.compile(r'message: "([^"]+)"')
"""The message in an error of tantivy, which looks like this: IoError { io_error: Os { ..., message: "..." }, ... }."""
_TIE_BREAKER = 0.2


class _Marker(msgspec.Struct):
    format: str
    version: int


class TantivyIndex:
    """The `Index` port in the folder `path`. With `write` it is the only writer, and creates the folder if needed.

    Raises `IndexFailure` if the folder holds no index or other data, or if the index is newer or has another writer.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        self._lock: int | None = None
        self._writer: tantivy.IndexWriter | None = None
        self._reload_lock = threading.Lock()
        if write:
            self._lock = _claim(path)
        else:
            _check(path)
        try:
            self._open(write)
        except BaseException:
            self.close()
            raise

    def _open(self, write: bool) -> None:
        folder = self.path / "tantivy"
        with _failures(self.path, "cannot be opened"):
            if write:
                _remove_erased(self.path)
                folder.mkdir(exist_ok=True)
                if not tantivy.Index.exists(str(folder)):  # old positions would skip documents that are missing here
                    (self.path / "positions.json").unlink(missing_ok=True)
                self._index = tantivy.Index(_schema(), str(folder), reuse=True)
                self._writer = self._index.writer(WRITER_HEAP_BYTES, 1)
                # An interrupted commit leaves files with the names that the next commit uses.
                self._writer.garbage_collect_files()
            elif not (folder / "meta.json").exists():
                raise IndexFailure(f"the index {self.path} is still empty: fill it with `lycosa index build`")
            else:
                self._index = tantivy.Index.open(str(folder))
            self._schema = self._index.schema
            self._index.config_reader("manual")  # `_searcher` reloads; tantivy's watcher thread would reload too late
            self._seen = self._commit_stamp()
            self._index.reload()
        self._positions = _read_positions(self.path)

    def add(self, documents: Sequence[Document]) -> None:
        writer = self._writing()
        with _failures(self.path, "refuses documents"):
            for document in documents:
                writer.delete_documents_by_term("key", _key(document))
                writer.add_document(_tantivy_document(document))

    def commit(self, positions: Mapping[str, int]) -> None:
        writer = self._writing()
        with _failures(self.path, "cannot commit"):
            writer.commit()
            # After the documents: a crash in between repeats documents, but never loses one.
            merged = {**self._positions, **positions}
            replace_file(self.path / "positions.json", msgspec.json.encode(merged), sync=True)
        self._positions = merged

    def positions(self) -> dict[str, int]:
        return dict(self._positions) if self._writer else _read_positions(self.path)

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        started = time.perf_counter()
        check_page(limit, offset)
        parsed = parse_query(query)
        highlighter = Highlighter(parsed)
        partial = False
        with _failures(self.path, "cannot be searched"):
            searcher = self._searcher()
            found = searcher.search(self._all_of(parsed), limit, offset=offset)
            loose = None if _total(found) else parsed.loosened()
            if loose:
                found = searcher.search(self._most_of(loose), limit, offset=offset)
                partial = _total(found) > 0
            hits = [highlighter.hit(_stored(searcher, address), score) for score, address in found.hits]
        return SearchPage(_total(found), hits, (time.perf_counter() - started) * 1000, partial)

    def count(self) -> int:
        with _failures(self.path, "cannot be read"):
            return self._searcher().num_docs

    def close(self) -> None:
        """Release the index. Documents that were not committed are dropped."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                # Committed documents are safe, and `add` or `commit` has reported the failure of a thread.
                with contextlib.suppress(ValueError):
                    writer.wait_merging_threads()
        finally:
            if self._lock is not None:
                unlock_and_close(self._lock)
                self._lock = None

    def _writing(self) -> tantivy.IndexWriter:
        if self._writer is None:
            raise IndexFailure(f"the index {self.path} is not open for writing")
        return self._writer

    def _commit_stamp(self) -> tuple[int, int]:
        status = (self.path / "tantivy" / "meta.json").stat()
        return status.st_mtime_ns, status.st_ino

    def _searcher(self) -> tantivy.Searcher:
        """Return a searcher over the last commit of any process."""
        stamp = self._commit_stamp()
        if stamp != self._seen:
            with self._reload_lock:
                self._index.reload()
                self._seen = stamp
        return self._index.searcher()

    # ------------------------------------------------------------------------------------------------ queries

    def _all_of(self, query: SearchQuery) -> Query:
        parts = [(Occur.Must, self._clause(clause)) for clause in query.clauses]
        parts += [(Occur.MustNot, self._term(term)) for term in query.excluded]
        side_by_side = query.plain_words
        if len(side_by_side) > 1:
            near = [
                Query.boost_query(self._words_in(field, side_by_side), PHRASE_WEIGHT * WEIGHTS[field])
                for field in ("title", "text")
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
            # A filter must not influence the order of the results.
            return Query.const_score_query(Query.term_query(self._schema, "site", term.words[0], "basic"), 0.0)
        if term.where == "title":
            return Query.boost_query(self._words_in("title", term.words), WEIGHTS["title"])
        places = [Query.boost_query(self._words_in(field, term.words), weight) for field, weight in WEIGHTS.items()]
        return Query.disjunction_max_query(places, _TIE_BREAKER)

    def _words_in(self, field: str, found: tuple[str, ...]) -> Query:
        if len(found) == 1:
            return Query.term_query(self._schema, field, found[0], "freq")
        return Query.phrase_query(self._schema, field, list(found))


def erase(path: Path) -> None:
    """Empty the index in this folder, whatever its version, so that it can be rebuilt. Raises `IndexFailure`."""
    lock = _claim(path, any_version=True)
    try:
        with _failures(path, "cannot be erased"):
            (path / "positions.json").unlink(missing_ok=True)
            _remove_erased(path)
            if (path / "tantivy").exists():
                # Renamed first: a kill must not leave an index of which some files are missing.
                (path / "tantivy").rename(path / ERASED)
                _remove_erased(path)
            _write_marker(path)
    finally:
        unlock_and_close(lock)


def _remove_erased(path: Path) -> None:
    if (path / ERASED).exists():
        shutil.rmtree(path / ERASED)


# ------------------------------------------------------------------------------------------------------ documents


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("site", tokenizer_name="raw", index_option="basic")
    for field in WEIGHTS:
        builder.add_text_field(field, tokenizer_name="whitespace", index_option="position")
    builder.add_bytes_field("doc", stored=True)
    return builder.build()


def _key(document: Document) -> str:
    key = document.key
    return key if len(key) <= KEY_MAX else hashlib.sha256(key.encode()).hexdigest()


def _tantivy_document(document: Document) -> tantivy.Document:
    made = tantivy.Document()
    made.add_text("key", _key(document))
    for name in site_names(document.url):
        made.add_text("site", name)
    made.add_text("title", " ".join(words(document.title)))
    made.add_text("headings", " ".join(words(document.headings)))
    made.add_text("text", " ".join(words(document.text[:TEXT_MAX])))
    made.add_text("url", " ".join(words(document.url)))
    made.add_bytes("doc", msgspec.msgpack.encode(document))
    return made


def _stored(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> Document:
    return msgspec.msgpack.decode(searcher.doc(address)["doc"][0], type=Document)


def _total(found: tantivy.SearchResult) -> int:
    return int(found.count)  # type: ignore[attr-defined]  # missing in the type stubs


# --------------------------------------------------------------------------------------------------------- folder


@contextlib.contextmanager
def _failures(path: Path, what: str) -> Iterator[None]:
    """Translate errors of tantivy and of the system into `IndexFailure`."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        if message := _SYSTEM_MESSAGE.search(reason):
            reason = message[1]
        # tantivy's threads do not report the reason of a failure.
        reason = "no space left on the device" if is_full(path) else reason[:1].lower() + reason[1:]
        raise IndexFailure(f"the index {path} {what}: {reason}") from error


def _claim(path: Path, *, any_version: bool = False) -> int:
    """Lock the index in this folder for writing. Creates an index in a new or empty folder."""
    with _failures(path, "cannot be created"):
        path.mkdir(parents=True, exist_ok=True)
        is_new = not {entry.name for entry in path.iterdir()} - UNFINISHED
    if not is_new:  # before the lock: create no file in a folder that is not ours
        _check(path, any_version=any_version)
    lock = _lock(path)
    try:
        if is_new and not (path / MARKER).exists():  # checked with the lock: another process may have created it
            with _failures(path, "cannot be created"):
                _write_marker(path)
        _check(path, any_version=any_version)
    except BaseException:
        unlock_and_close(lock)
        raise
    return lock


def _check(path: Path, *, any_version: bool = False) -> None:
    try:
        marker = msgspec.json.decode((path / MARKER).read_bytes(), type=_Marker)
    except FileNotFoundError:
        what = "is not a search index" if path.exists() else "does not exist"
        raise IndexFailure(f"{path} {what}: give --index the folder of an index, or a new one to build") from None
    except (msgspec.MsgspecError, OSError) as error:
        raise IndexFailure(f"{path}/{MARKER} cannot be read ({error}): this is not an index of Lycosa") from error
    if marker.format != FORMAT:
        raise IndexFailure(f"{path} is a {marker.format!r}, not a search index: choose another folder")
    if marker.version > VERSION and not any_version:
        raise IndexFailure(f"the index {path} has version {marker.version}, this Lycosa reads {VERSION}: update Lycosa")


def _write_marker(path: Path) -> None:
    replace_file(path / MARKER, msgspec.json.encode(_Marker(FORMAT, VERSION)), sync=True)


def _lock(path: Path) -> int:
    """Lock the index for writing. Return the descriptor of the lock, which is released when the process ends."""
    with _failures(path, "cannot be locked"):
        try:
            return lock_file(path / LOCK, 0o666)
        except BlockingIOError:
            owner = f"process {lock_owner(path / LOCK)}"
            raise IndexFailure(f"the index {path} is being written by {owner}: wait until it ends") from None


def _read_positions(path: Path) -> dict[str, int]:
    """Return the positions. Return {} if they cannot be read: reading all sources again changes nothing."""
    try:
        return msgspec.json.decode((path / "positions.json").read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError):
        return {}
