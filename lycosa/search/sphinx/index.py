"""A search index on Sphinx or Manticore: real-time indexes that the configuration of the server must define.

    NAME_0, NAME_1   the documents; one is in use, the other is for a rebuilt index
    NAME_state       row 1: the marker of the index, and its writer; row 2: the positions

The last process that opened the index for writing is its writer; writes by other processes are refused. Additions wait
in memory until `commit`. Beyond `WAITING_MAX` or `WAITING_MAX_BYTES`, they are sent earlier, and are visible before the
commit. Every statement can be repeated: a statement that a lost connection interrupted is sent again.
"""

from __future__ import annotations

import base64
import logging
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from lycosa.core.errors import IndexFailure, IndexTaken
from lycosa.search.core import sphinxql
from lycosa.search.core.request import IndexMatch, Matches, SearchRequest, ValueCounts
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.core.sphinxql import quoted
from lycosa.search.index_folder import Marker, check_marker, is_outdated, new_marker
from lycosa.search.sphinx.server import ANSWER_MAX_S, SEARCH_MAX_S, SphinxAnswer, SphinxServer

ENGINE = "sphinx"
MARKER_ROW, POSITIONS_ROW = 1, 2
WAITING_MAX = 20_000
WAITING_MAX_BYTES = 32_000_000
STATEMENT_BYTES = 4_000_000
"""A statement ends with the row that makes it larger than this. Here and in WAITING_MAX_BYTES, a character counts as
one byte."""
REMOVED_AT_ONCE = 2_000
STORED_MAX = 4_000_000
"""Maximum size of stored data, compressed and in base64: the server's limit for an attribute."""
MATCHES_MAX = 1000
RANKER = "expr('sum((lcs*10+(min_hit_pos==1))*(user_weight-1))*100+bm25+10000/(20+length)')"
"""Ranks by adjacent words, then words at the start of a text, then rare words, then short documents. Keywords and pairs
have weight 1 and so do not count.
"""

log = logging.getLogger(__name__)


class SphinxWriter:
    """A writer of one index, which may open it again when the server failed."""

    def __init__(self) -> None:
        self.number = secrets.randbits(62) + 1
        self.has_opened = False


class SphinxIndex:
    """Implements `search.ports.Index`. Raises `IndexFailure`; `IndexUnavailable` while the server does not answer,
    `IndexTaken` if another process has opened the index since `writer` did."""

    def __init__(
        self, address: SphinxAddress, schema: Schema, *, write: bool = False, writer: SphinxWriter | None = None
    ) -> None:
        self.schema = schema
        self._server = SphinxServer(address, ANSWER_MAX_S if write else SEARCH_MAX_S)
        self._name = address.name
        self._new = new_marker(schema, ENGINE)
        self._writer = (writer or SphinxWriter()) if write else None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        marker = self._read_marker()
        if marker is None and not self._writer:
            raise self._unfilled("is still empty")
        if marker is None:
            erase_sphinx(self._server.address)
            marker = self._new
        elif self._writer and self._writer.has_opened:
            self.check_writer()
        self._marker = marker
        if self._writer:
            self._write_marker(marker)
            self._writer.has_opened = True
            self._server.ask(f"TRUNCATE RTINDEX {self._name}_{1 - marker.generation}")
        self._feed = self._new_feed(marker.generation)

    @property
    def outdated(self) -> bool:
        return is_outdated(self._marker, self._new)

    @property
    def analysis(self) -> tuple[str, ...]:
        return self._marker.analysis

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        self._feed.add(entries)

    def remove(self, keys: Sequence[str | int]) -> None:
        self._feed.remove(keys)

    def commit(self, positions: Mapping[str, int]) -> None:
        self._feed.flush()
        if positions:
            body = msgspec.json.encode({**self.positions(), **positions}).decode()
            self.ask(f"REPLACE INTO {self._name}_state (id, body, writer) VALUES ({POSITIONS_ROW}, {quoted(body)}, 0)")

    def positions(self) -> dict[str, int]:
        body = self._state(POSITIONS_ROW)
        return msgspec.json.decode(body[0], type=dict[str, int]) if body else {}

    def find(self, request: SearchRequest) -> Matches:
        more, order = sphinxql.order(request)
        stored = "" if self.schema.numeric_keys else ", stored"
        last = request.offset + request.limit
        answer = self._search(
            f"SELECT id, WEIGHT() AS w{stored}{more} FROM",
            f"{sphinxql.condition(request, self.schema)} ORDER BY {order} LIMIT {request.offset}, {request.limit}"
            f" OPTION max_matches={max(MATCHES_MAX, last)}, {self._ranking(request)}",
            counted=True,
        )
        return Matches(answer.total, [self._match(row, request) for row in answer.rows])

    def has_matches(self, request: SearchRequest, more_than: int = 0) -> bool:
        rest = f"LIMIT {more_than + 1} OPTION ranker=none, cutoff={more_than + 1}"
        found = self._search("SELECT id FROM", f"{sphinxql.condition(request, self.schema)} {rest}")
        return len(found.rows) > more_than

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        return ValueCounts({field: self._count_values(request, field, limit) for field, limit in limits.items()})

    def _count_values(self, request: SearchRequest, field: str, limit: int) -> dict[str, int]:
        answer = self._search(
            "SELECT GROUPBY() AS g, COUNT(*) AS c FROM",
            f"{sphinxql.condition(request, self.schema)} GROUP BY v_{field} ORDER BY c DESC, g ASC LIMIT {limit}"
            " OPTION ranker=none",
        )
        counts = {sphinxql.value_of(code): count for code, count in answer.rows}
        return {value: counts[value] for value in sorted(counts, key=lambda value: (-counts[value], value)) if value}

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        points = ", ".join(map(str, bounds))
        answer = self._search(
            f"SELECT INTERVAL(n_{field}, {points}) AS place, COUNT(*) AS c FROM",
            f"{sphinxql.condition(request, self.schema)} GROUP BY place LIMIT {len(bounds) + 1} OPTION ranker=none",
        )
        counts = dict(answer.rows)
        return [counts.get(place, 0) for place in range(1, len(bounds))]

    def count(self) -> int:
        return int(self._search("SELECT COUNT(*) AS c FROM", "").rows[0][0])

    def size_bytes(self) -> int:
        """Return the size in memory and on the disk of the server."""
        facts = dict(self.ask(f"SHOW INDEX {self._name}_{self._marker.generation} STATUS").rows)
        return int(facts["ram_bytes"]) + int(facts["disk_bytes"])

    def rebuild(self) -> Feed:
        self.check_writer()
        generation = 1 - self._marker.generation
        self._server.ask(f"TRUNCATE RTINDEX {self._name}_{generation}")
        return self._new_feed(generation)

    def adopt(self, rebuilt: object) -> None:
        assert isinstance(rebuilt, Feed)
        self._feed.flush()
        rebuilt.flush()
        before = self._marker.generation
        self._write_marker(msgspec.structs.replace(self._new, generation=rebuilt.generation))
        self._feed = self._new_feed(rebuilt.generation)
        self._server.ask(f"TRUNCATE RTINDEX {self._name}_{before}")

    def close(self) -> None:
        self._server.close()

    def ask(self, statement: str) -> SphinxAnswer:
        return self._server.ask(statement)

    def check_writer(self) -> None:
        """Raise `IndexFailure` if this process is not the writer, `IndexTaken` if it no longer is."""
        at = self._server.address
        if not self._writer:
            raise IndexFailure(f"the index {at} is not open for writing")
        if self._state(MARKER_ROW)[1:] != (self._writer.number,):
            raise IndexTaken(f"the index {at} was opened or emptied by another process: only one may write it")

    def _unfilled(self, state: str) -> IndexFailure:
        return IndexFailure(f"the index {self._server.address} {state}: fill it with `{self.schema.filled_by}`")

    def _new_feed(self, generation: int) -> Feed:
        return Feed(self, f"{self._name}_{generation}", generation)

    def _read_marker(self) -> Marker | None:
        found = self._state(MARKER_ROW)
        if not found:
            return None
        return check_marker(msgspec.json.decode(found[0], type=Marker), self._new, str(self._server.address))

    def _write_marker(self, marker: Marker) -> None:
        body = quoted(msgspec.json.encode(marker).decode())
        number = self._writer.number if self._writer else 0
        self.ask(f"REPLACE INTO {self._name}_state (id, body, writer) VALUES ({MARKER_ROW}, {body}, {number})")
        self._marker = marker

    def _state(self, row: int) -> tuple[Any, ...]:
        rows = self.ask(f"SELECT body, writer FROM {self._name}_state WHERE id = {row}").rows
        return rows[0] if rows else ()

    def _search(self, select: str, rest: str, *, counted: bool = False) -> SphinxAnswer:
        """Search the documents; search again if a rebuilt index was adopted in the meantime."""
        while True:
            searched = self._marker
            answer = self._server.ask(f"{select} {self._name}_{searched.generation}{rest}", counted=counted)
            marker = self._read_marker()
            if marker is None:
                raise self._unfilled("was emptied")
            if marker.generation == searched.generation:
                return answer
            self._marker = marker

    def _ranking(self, request: SearchRequest) -> str:
        if request.sort or request.query is None:
            return "ranker=none"
        weights = ", ".join(f"{name}={1 + round(10 * weight)}" for name, weight in self.schema.texts.items())
        return f"ranker={RANKER}, field_weights=({weights})"

    def _match(self, row: tuple[Any, ...], request: SearchRequest) -> IndexMatch:
        key, weight, *rest = row
        score = 0.0 if request.sort else float(weight)
        if self.schema.numeric_keys:
            return IndexMatch(key, score)
        return IndexMatch("", score, zlib.decompress(base64.b64decode(rest[0])))


class Feed:
    """Implements `search.ports.NewIndex`: sends documents to one generation of an index."""

    def __init__(self, index: SphinxIndex, name: str, generation: int) -> None:
        self._index, self._name, self.generation = index, name, generation
        self._waiting: dict[int, str] = {}
        self._bytes = 0

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        schema = self._index.schema
        for entry in entries:
            stored = "" if schema.numeric_keys else base64.b64encode(zlib.compress(entry.stored, 1)).decode()
            if len(stored) > STORED_MAX:
                log.warning("%s is too large for the search server: it is not indexed", str(entry.key)[:200])
                self._waiting[sphinxql.document_id(entry.key)] = ""  # also remove an earlier version
                continue
            row = self._waiting[sphinxql.document_id(entry.key)] = sphinxql.row(entry, schema, stored)
            self._bytes += len(row)
        if len(self._waiting) > WAITING_MAX or self._bytes > WAITING_MAX_BYTES:
            self.flush()

    def remove(self, keys: Sequence[str | int]) -> None:
        self._waiting.update(dict.fromkeys(map(sphinxql.document_id, keys), ""))

    def discard(self) -> None:
        """Drop the waiting changes. The next writer empties this generation."""
        self._waiting.clear()
        self._bytes = 0

    def flush(self) -> None:
        """Send the waiting changes. If this fails, they stay queued."""
        self._index.check_writer()
        removed = [number for number, row in self._waiting.items() if not row]
        for start in range(0, len(removed), REMOVED_AT_ONCE):
            listed = ", ".join(map(str, removed[start : start + REMOVED_AT_ONCE]))
            self._index.ask(f"DELETE FROM {self._name} WHERE id IN ({listed})")
        columns = ", ".join(sphinxql.columns(self._index.schema))
        for rows in _statements(row for row in self._waiting.values() if row):
            self._index.ask(f"REPLACE INTO {self._name} ({columns}) VALUES {rows}")
        self._waiting.clear()
        self._bytes = 0


def sphinx_marker(address: SphinxAddress) -> Marker | None:
    """Return the marker; None if the index is empty. Raises `IndexFailure`."""
    with closing(SphinxServer(address, SEARCH_MAX_S)) as server:
        rows = server.ask(f"SELECT body FROM {address.name}_state WHERE id = {MARKER_ROW}").rows
        return msgspec.json.decode(rows[0][0], type=Marker) if rows else None


def erase_sphinx(address: SphinxAddress) -> None:
    """Empty an index, so that it can be built again. Raises `IndexFailure`."""
    with closing(SphinxServer(address)) as server:
        for part in ("state", "0", "1"):
            server.ask(f"TRUNCATE RTINDEX {address.name}_{part}")


def _statements(rows: Iterable[str]) -> Iterator[str]:
    """Yield the values of statements of about STATEMENT_BYTES."""
    some: list[str] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row)
        if size > STATEMENT_BYTES:
            yield ",".join(some)
            some, size = [], 0
    if some:
        yield ",".join(some)
