"""The fingerprints in LMDB, in two levels, so that each LMDB page that is written stores several new fingerprints.

Checkpoints write to a small table (L0). When it is full, checkpoints write to a second L0 table, and the first is
compacted into the large table SEEN_L1: in key order, some rows with each commit. A look-up prefers the newest level. (A
log-structured merge tree: O'Neil et al., 1996. See docs/decisions/0008-levels-of-fingerprints.md.)

A row is written to L1 and deleted from L0 in one transaction: nothing needs repair after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lycosa.frontier.lsm.lmdb import FINGERPRINT, KINDS, META, SEEN_L0A, SEEN_L0B, SEEN_L1, Database, table_number

L0_MAX = 1_000_000
"""Number of rows at which L0 is full."""

L0_SHARE = 32
"""L0 may hold more than L0_MAX if L1 is large: up to 1/L0_SHARE of the rows of L1."""

SCAN_ROWS = 10_000
ALL_ROWS = 1 << 31
NEWEST = b"newest"
META_TABLE = table_number(META)


class Levels:
    """The levels of all segments, which are identified by the numbers of their SEEN_L1 tables.

    All segments switch between their two L0 tables at the same time.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        stored = database.get(META_TABLE, NEWEST)
        self._set_newest(stored[0] if stored else SEEN_L0A)
        self._compacting = self._non_empty(self._older)

    @property
    def compacting(self) -> bool:
        return bool(self._compacting)

    def has(self, seen: int, fingerprint: int) -> bool:
        """L1 is read first: it has most of the fingerprints."""
        key, get = FINGERPRINT.pack(fingerprint), self._database.get
        return (
            get(seen, key) is not None
            or get(seen + self._newest - SEEN_L1, key) is not None
            or (self.compacting and get(seen + self._older - SEEN_L1, key) is not None)
        )

    def find(self, seen: int, fingerprint: int) -> bytes | None:
        key, get = FINGERPRINT.pack(fingerprint), self._database.get
        found = get(seen + self._newest - SEEN_L1, key)
        if found is None and self._compacting:
            found = get(seen + self._older - SEEN_L1, key)
        return get(seen, key) if found is None else found

    def write(self, seen: int, rows: Sequence[tuple[int, bytes]]) -> None:
        """Sorted rows are written faster."""
        pack = FINGERPRINT.pack
        self._database.put(seen + self._newest - SEEN_L1, [(pack(fingerprint), row) for fingerprint, row in rows])

    def rotate_if_full(self, written: Iterable[int]) -> None:
        """Start compacting L0 if it is full in one of these segments, and no compaction runs."""
        if not self._compacting and any(self._is_full(seen) for seen in written):
            self._rotate()

    def compact(self, rows: int) -> None:
        """Move at most this many rows to L1. The caller must commit."""
        while self._compacting and rows > 0:
            seen = self._compacting[-1]
            level = seen + self._older - SEEN_L1
            moved = self._database.rows_after(level, b"", b"", min(rows, SCAN_ROWS))
            rows -= len(moved) or 1
            if moved:
                self._database.put(seen, moved)
                self._database.delete_first(level, len(moved))
            else:
                self.forget(seen)

    def forget(self, seen: int) -> None:
        """Stop compacting a segment: its older L0 table is empty or deleted."""
        if seen in self._compacting:
            self._compacting.remove(seen)

    def fingerprints(self, seen: int) -> Iterator[int]:
        """Yield each fingerprint once."""
        earlier: list[int] = []
        for level in (seen, seen + SEEN_L0A - SEEN_L1, seen + SEEN_L0B - SEEN_L1):
            for key in self._keys(level):
                if all(self._database.get(other, key) is None for other in earlier):
                    yield FINGERPRINT.unpack(key)[0]
            earlier.append(level)

    def keys(self, seen: int, prefix: bytes) -> list[bytes]:
        """A fingerprint with rows in two levels is returned twice."""
        tables = (seen, seen + SEEN_L0A - SEEN_L1, seen + SEEN_L0B - SEEN_L1)
        rows_after = self._database.rows_after
        return [key for table in tables for key, _ in rows_after(table, prefix, prefix, ALL_ROWS)]

    def _rotate(self) -> None:
        self._set_newest(self._older)
        self._database.put(META_TABLE, [(NEWEST, bytes([self._newest]))])
        self._compacting = self._non_empty(self._older)

    def _set_newest(self, kind: int) -> None:
        self._newest = kind
        self._older = SEEN_L0A + SEEN_L0B - kind

    def _non_empty(self, kind: int) -> list[int]:
        tables = (table for table in self._database.tables() if table % KINDS == kind)
        return [table + SEEN_L1 - kind for table in tables if self._database.count(table)]

    def _keys(self, table: int) -> Iterator[bytes]:
        after = b""
        while rows := self._database.rows_after(table, after, b"", SCAN_ROWS):
            yield from (key for key, _ in rows)
            after = rows[-1][0]

    def _is_full(self, seen: int) -> bool:
        rows = self._database.count(seen + self._newest - SEEN_L1)
        return rows >= max(L0_MAX, self._database.count(seen) // L0_SHARE)
