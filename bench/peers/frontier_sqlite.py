"""A frontier on SQLite as one would write it: two tables, one statement for many rows, WAL.

Without sync the setting is `synchronous=OFF`, with which the data survive the death of the process, as ours do; with
sync it is `synchronous=FULL`. The fingerprint is the row id of `seen`. There are no hosts and there is no politeness:
first come, first served; no tokens, no priorities, no counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from workload import Page

from lycosa.core.url import fingerprint

CACHE_KIB = 64 * 1024
QUEUED, DONE = 0, 1

Row = tuple[int, int, str]


class Peer:
    """See `cycle.Peer`. A lease is arrival, fingerprint, URL."""

    SAFE = True

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._file = folder / "frontier.db"
        self._sync = sync
        self._lent = 0

    async def open(self) -> None:
        self._db = sqlite3.connect(self._file, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if self._sync else 'OFF'}")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.execute("CREATE TABLE IF NOT EXISTS seen (fp INTEGER PRIMARY KEY, state INTEGER)")
        self._db.execute("CREATE TABLE IF NOT EXISTS queue (arrival INTEGER PRIMARY KEY, fp INTEGER, url TEXT)")
        self._arrivals = self._db.execute("SELECT max(arrival) FROM queue").fetchone()[0] or 0
        self._db.execute("BEGIN")

    def prepare(self, pages: Sequence[Page]) -> dict[int, str]:
        return {fingerprint("GET", url) - 2**63: url for url, _ in pages}

    async def push(self, batch: dict[int, str]) -> int:
        marks = ",".join("?" * len(batch))
        known = {row[0] for row in self._db.execute(f"SELECT fp FROM seen WHERE fp IN ({marks})", [*batch])}
        rows = enumerate((row for row in batch.items() if row[0] not in known), self._arrivals + 1)
        new = [(arrival, *row) for arrival, row in rows]
        self._db.executemany(f"INSERT INTO seen VALUES (?, {QUEUED})", [row[1:2] for row in new])
        self._db.executemany("INSERT INTO queue VALUES (?, ?, ?)", new)
        self._arrivals += len(new)
        return len(new)

    async def lease(self, limit: int, now: float) -> list[Row]:
        select = "SELECT arrival, fp, url FROM queue WHERE arrival > ? ORDER BY arrival LIMIT ?"
        rows = self._db.execute(select, (self._lent, limit)).fetchall()
        if rows:
            self._lent = rows[-1][0]
        return rows

    async def ack(self, leases: list[Row], now: float) -> None:
        self._db.executemany("DELETE FROM queue WHERE arrival = ?", [row[:1] for row in leases])
        self._db.executemany(f"UPDATE seen SET state = {DONE} WHERE fp = ?", [row[1:2] for row in leases])

    async def commit(self) -> None:
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")

    async def close(self) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()
