"""When torrents were seen, and how many peers they have.

The columns `worth` and `counted` have no database index: it would add half the size of the table, and a random write
for each change. Instead, one scan finds many torrents to evict, or many whose peers are to be counted next."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from lycosa.storage.core.torrent_record import Popularity, key_of
from lycosa.storage.records.database import DatabaseThread
from lycosa.storage.records.rows import OFFSET, Row, counted, read_counted, read_worth, worth

DUE_ROWS = 5_000
"""Torrents that are remembered from a scan, to count their peers next."""
SLOW_SCAN_S = 0.25
SCAN_PAUSE = 100
"""The minimum time from the start of a slow scan to the next scan, as a multiple of its duration. So slow scans take at
most 1 % of the time."""


class PopularityTable(DatabaseThread):
    """The methods except `__init__` must be called in a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[int] = []
        self._next_scan = 0.0

    def _see(self, ids: Iterable[int], now: int) -> None:
        rows = {row[0]: row for row in self._popularity(ids)}
        changed = []
        for number, column, counts in rows.values():
            seeders, seen = read_worth(column)
            if seen < now:
                changed.append((number, worth(seeders, now), counts))
        self._update(changed)

    def _set_counts(self, latest: dict[int, Popularity]) -> list[int]:
        """Store the counts that are newer than the stored ones. Return the ids of the changed torrents."""
        changed = []
        for number, column, counts in list(self._popularity(latest)):
            new = latest[number]
            at, _ = read_counted(counts)
            if at is None or at < new.counted:
                _, seen = read_worth(column)
                changed.append((number, worth(new.seeders, seen), counted(new.counted, new.leechers)))
        self._update(changed)
        return [row[0] for row in changed]

    def _least_worth(self, count: int) -> list[int]:
        """Return the ids of the torrents with the fewest seeders; with the same number, those seen least recently."""
        query = "SELECT id FROM torrent_popularity ORDER BY worth, id LIMIT ?"
        return [number for (number,) in self._query(query, [count])]

    def _due_for_count(self, before: int, limit: int) -> list[tuple[bytes, ...]]:
        border = counted(before, 0)
        due = self._still_due(border, limit)
        if len(due) < limit and time.monotonic() >= self._next_scan:
            started = time.monotonic()
            query = "SELECT id FROM torrent_popularity WHERE counted < ? ORDER BY counted, id LIMIT ?"
            self._due = [number for (number,) in self._query(query, [border, max(DUE_ROWS, limit)])]
            took_s = time.monotonic() - started
            self._next_scan = started + (took_s * SCAN_PAUSE if took_s > SLOW_SCAN_S else 0)
            due = self._still_due(border, limit)
        rows = self._select("SELECT id, v1, v2 FROM torrents WHERE", "id", due)
        keys = {number: [key_of(bytes(each)) for each in hashes if each is not None] for number, *hashes in rows}
        return [tuple(keys[number]) for number in due]

    def _still_due(self, border: int, limit: int) -> list[int]:
        """Return the first `limit` remembered ids that are still due. Forget the checked ids that are not."""
        due: list[int] = []
        at = 0
        while len(due) < limit and at < len(self._due):
            some = self._due[at : at + limit]
            at += len(some)
            columns = {number: counts for number, _, counts in self._popularity(some)}
            due += [number for number in some if columns.get(number, OFFSET) < border]
        self._due[:at] = due
        return due[:limit]

    def _popularity(self, ids: Iterable[int]) -> Iterable[Row]:
        return self._select("SELECT id, worth, counted FROM torrent_popularity WHERE", "id", ids)

    def _update(self, rows: Sequence[Row]) -> None:
        # In place: SQLite leaves gaps where rows are deleted and inserted again.
        statement = "UPDATE torrent_popularity SET worth = ?, counted = ? WHERE id = ?"
        self._execute_many(statement, [(column, counts, number) for number, column, counts in rows])
