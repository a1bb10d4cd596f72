"""The fingerprints that LMDB has, in levels, so that a new one does not cost a page of its own.

A fingerprint is a random key: with ten million in the table SEEN, a checkpoint of 100,000 would rewrite nearly as many
pages. So checkpoints write to a small table, where many share a page. When that is full, another one takes its place,
and the first one sinks into SEEN: in order, some rows with each commit, until it is empty. Who asks for a fingerprint
is told what the newest level says. (A log-structured merge tree with two levels: O'Neil et al., 1996.)

The step before, from memory to disk, is a checkpoint: `memtable.py` (`freeze`, `advance`).

To sink a row twice is the same as once, so an owner that died leaves nothing to repair: the next one begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lycosa.frontier.lsm.lmdb import FINGERPRINT, KINDS, META, SEEN_L0A, SEEN_L0B, SEEN_L1, Database, table_number

L0_MAX = 1_000_000
"""Rows with which the newest level of fingerprints is full."""

L0_SHARE = 32
"""It has room for so small a share of what SEEN has, when that is more."""

SCAN_ROWS = 10_000
NEWEST = b"newest"
META_TABLE = table_number(META)


class Levels:
    """The levels of all segments; they change places together. A segment is named by the number of its table SEEN."""

    def __init__(self, database: Database) -> None:
        self._database = database
        kept = database.stored(META_TABLE, NEWEST)
        self._set(kept[0] if kept else SEEN_L0A)
        self._sinking = self._filled(self._older)
        self._behind = b""

    @property
    def sinking(self) -> bool:
        """Whether there are rows that `sink` should move."""
        return bool(self._sinking)

    def has(self, seen: int, fingerprint: int) -> bool:
        """Whether there is a row of the fingerprint; most are in SEEN."""
        key, stored = FINGERPRINT.pack(fingerprint), self._database.stored
        return (
            stored(seen, key) is not None
            or stored(seen + self._newest - SEEN_L1, key) is not None
            or (self.sinking and stored(seen + self._older - SEEN_L1, key) is not None)
        )

    def find(self, seen: int, fingerprint: int) -> bytes | None:
        """Return the row of a fingerprint."""
        key, stored = FINGERPRINT.pack(fingerprint), self._database.stored
        found = stored(seen + self._newest - SEEN_L1, key)
        if found is None and self._sinking:
            found = stored(seen + self._older - SEEN_L1, key)
        return stored(seen, key) if found is None else found

    def write(self, seen: int, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write rows, which are in order."""
        pack = FINGERPRINT.pack
        self._database.put(seen + self._newest - SEEN_L1, [(pack(fingerprint), row) for fingerprint, row in rows])

    def change_places(self, written: Iterable[int]) -> None:
        """Begin to sink the newest level, if in one of these segments it is full and nothing sinks."""
        if not self._sinking and any(self._is_full(seen) for seen in written):
            self._change()

    def sink(self, rows: int) -> None:
        """Move so many rows down, and empty what has none left. The caller commits."""
        while self._sinking and rows > 0:
            seen = self._sinking[-1]
            level = seen + self._older - SEEN_L1
            moved = self._database.behind(level, self._behind, b"", min(rows, SCAN_ROWS))
            rows -= len(moved) or 1
            if moved:
                self._database.put(seen, moved)
                self._behind = moved[-1][0]
            else:
                self._database.empty(level)
                self.forget(seen)

    def forget(self, seen: int) -> None:
        """The tables of this segment are empty or deleted."""
        if seen in self._sinking:
            if seen == self._sinking[-1]:
                self._behind = b""
            self._sinking.remove(seen)

    def fingerprints(self, seen: int) -> Iterator[int]:
        """Yield what is known, each once."""
        above: list[int] = []
        for level in (seen, seen + SEEN_L0A - SEEN_L1, seen + SEEN_L0B - SEEN_L1):
            for key in self._keys(level):
                if all(self._database.stored(other, key) is None for other in above):
                    yield FINGERPRINT.unpack(key)[0]
            above.append(level)

    def _change(self) -> None:
        self._set(self._older)
        self._database.put(META_TABLE, [(NEWEST, bytes([self._newest]))])
        self._sinking = self._filled(self._older)

    def _set(self, newest: int) -> None:
        self._newest = newest
        self._older = SEEN_L0A + SEEN_L0B - newest

    def _filled(self, kind: int) -> list[int]:
        """Return the segments that have rows in a level."""
        tables = (table for table in self._database.tables() if table % KINDS == kind)
        return [table + SEEN_L1 - kind for table in tables if self._database.count(table)]

    def _keys(self, table: int) -> Iterator[bytes]:
        after = b""
        while rows := self._database.behind(table, after, b"", SCAN_ROWS):
            yield from (key for key, _ in rows)
            after = rows[-1][0]

    def _is_full(self, seen: int) -> bool:
        rows = self._database.count(seen + self._newest - SEEN_L1)
        return rows >= max(L0_MAX, self._database.count(seen) // L0_SHARE)
