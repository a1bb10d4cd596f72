"""Changes that are not indexed yet: torrents after the last indexed id, and rows of `torrent_changes`.

A torrent counts as listed once `changes`, `scan` or `mark_listed` has included it. `torrent_changes` has no rows above
the largest listed id, so without an index it is empty.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lycosa.storage import ports
from lycosa.storage.core.torrent_record import Change, RemovedRows
from lycosa.storage.records.database import DatabaseThread
from lycosa.storage.records.rows import SEARCHED, Row, searched_torrents

UNCHANGED, NEW = 0, 1
"""The tokens of an indexed torrent, and of a torrent that is not indexed and has not changed since it was listed."""
TOKEN_BITS = 31


class ChangedRow(NamedTuple):
    """A change whose row is decoded after the transaction, because decoding is slow. `row` is None after a removal."""

    id: int
    token: int
    row: Row | None


def decoded(changed: Sequence[ChangedRow]) -> list[Change]:
    """Decode the rows of these changes. Raises `StorageError`."""
    torrents = {each.id: each for each in searched_torrents([each.row for each in changed if each.row is not None])}
    return [Change(each.id, each.token, torrents.get(each.id)) for each in changed]


class ChangesTable(DatabaseThread):
    """The methods must be called in a transaction."""

    def _changes(self, limit: int) -> list[ChangedRow]:
        indexed, _ = self._progress()
        fresh = self._query("SELECT id FROM torrents WHERE id > ? ORDER BY id LIMIT ?", [indexed, limit])
        noted = self._query("SELECT id, token FROM torrent_changes ORDER BY id LIMIT ?", [limit])
        tokens = dict.fromkeys((number for (number,) in fresh), NEW) | dict(noted)
        listed = sorted(tokens.items())[:limit]
        self._note_listed([number for number, _ in listed])
        stored = {row[0]: row for row in self._select(SEARCHED, "t.id", [number for number, _ in listed])}
        return [ChangedRow(number, token, stored.get(number)) for number, token in listed]

    def _removed(self, limit: int) -> RemovedRows:
        after = self._query("SELECT id FROM torrent_changes ORDER BY id LIMIT 1 OFFSET ?", [ports.CHANGES_READ_MAX])
        removed = "SELECT c.id FROM torrent_changes c LEFT JOIN torrents t ON t.id = c.id WHERE t.id IS NULL"
        if after:
            removed += f" AND c.id < {int(after[0][0])}"
        found = self._query(f"{removed} ORDER BY c.id LIMIT ?", [limit + 1])
        return RemovedRows(tuple(number for (number,) in found[:limit]), not after and len(found) <= limit)

    def _scan(self, after_id: int, limit: int) -> list[ChangedRow]:
        indexed, _ = self._progress()
        query = "SELECT id, token FROM torrent_changes WHERE id > ? ORDER BY id LIMIT ?"
        tokens: dict[int, int] = dict(self._query(query, [after_id, limit]))
        rows = self._query(SEARCHED + "t.id > ? ORDER BY t.id LIMIT ?", [after_id, limit])
        self._note_listed([row[0] for row in rows])
        return [ChangedRow(row[0], tokens.get(row[0], NEW if row[0] > indexed else UNCHANGED), row) for row in rows]

    def _mark_listed(self) -> int:
        [(next_id,)] = self._query("SELECT next_id FROM torrent_store")
        self._note_listed([next_id - 1])
        return int(next_id - 1)

    def _searched(self, after_id: int, last_id: int, limit: int) -> list[Row]:
        query = SEARCHED + "t.id > ? AND t.id <= ? ORDER BY t.id LIMIT ?"
        return self._query(query, [after_id, last_id, limit])

    def _acknowledge_until(self, last_id: int) -> None:
        self._execute("UPDATE torrent_store SET indexed_id = ? WHERE indexed_id < ?", [last_id, last_id])
        self._execute("DELETE FROM torrent_changes WHERE id <= ? AND token = ?", [last_id, NEW])

    def _acknowledge(self, changes: Sequence[Change]) -> None:
        tokens = {each.id: each.token for each in changes}
        noted: dict[int, int] = dict(self._select("SELECT id, token FROM torrent_changes WHERE", "id", tokens))
        self._delete("torrent_changes", "id", [number for number, token in noted.items() if tokens[number] == token])
        indexed, _ = self._progress()
        last = max((number for number, token in tokens.items() if token == NEW), default=0)
        if last > indexed:
            self._execute("UPDATE torrent_store SET indexed_id = ?", [last])
            skipped = self._query("SELECT id FROM torrents WHERE id > ? AND id <= ?", [indexed, last])
            others = [number for (number,) in skipped if number not in tokens]
            kept = {row[0] for row in self._select("SELECT id FROM torrent_changes WHERE", "id", others)}
            self._insert("torrent_changes", [(number, NEW) for number in others if number not in kept])

    def _note_changes(self, ids: Iterable[int]) -> None:
        _, listed = self._progress()
        numbers = sorted(number for number in ids if number <= listed)
        token = NEW + 1 + secrets.randbits(TOKEN_BITS)  # always a new one: late acknowledgements do not match it
        self._delete("torrent_changes", "id", numbers)
        self._insert("torrent_changes", [(number, token) for number in numbers])

    def _note_listed(self, ids: Sequence[int]) -> None:
        _, listed = self._progress()
        if ids and ids[-1] > listed:
            self._execute("UPDATE torrent_store SET listed_id = ?", [ids[-1]])

    def _progress(self) -> Row:
        return self._query("SELECT indexed_id, listed_id FROM torrent_store")[0]
