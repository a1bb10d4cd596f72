"""The infohashes that may not be stored: denied for ever, or evicted for a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lycosa.storage.core.torrent_record import Refusal, Standing, hashed_key
from lycosa.storage.records.database import DatabaseThread

FOREVER = 2**62
SCAN_ROWS = 20_000
"""Infohashes read at a time, to find those whose hash is on a hashed deny-list."""


class DeniedTable(DatabaseThread):
    """Call the methods in a transaction. A key is the first 20 bytes of an infohash.

    `_ban` also takes hashed keys of 32 bytes (`hashed_key`), and `_denied_after` also returns them.
    """

    def _denied(self, keys: Iterable[bytes], now: float) -> dict[bytes, Standing]:
        names = {form: key for key in keys for form in (key, hashed_key(key))}
        rows = self._select("SELECT hash, standing, until FROM torrent_denied WHERE", "hash", names)
        found: dict[bytes, Standing] = {}
        for form, standing, until in rows:
            if until > now and found.get(key := names[bytes(form)]) is not Standing.DENIED:
                found[key] = Standing(standing)
        return found

    def _refusal(self, key: bytes, now: float) -> Refusal | None:
        query = "SELECT standing, until, reason FROM torrent_denied WHERE until > ? AND hash IN (?, ?)"
        found = self._query(f"{query} ORDER BY until DESC", [int(now), key, hashed_key(key)])
        if not found:
            return None
        standing, until, reason = found[0]
        return Refusal(Standing(standing), None if until == FOREVER else float(until), reason)

    def _denied_after(self, key: bytes) -> list[bytes]:
        query = "SELECT hash FROM torrent_denied WHERE hash > ? ORDER BY hash LIMIT ?"
        return [bytes(each) for (each,) in self._query(query, [key, SCAN_ROWS])]

    def _evicted_after(self, key: bytes) -> list[bytes]:
        query = "SELECT hash FROM torrent_denied WHERE standing = ? AND hash > ? ORDER BY hash LIMIT ?"
        return [bytes(each) for (each,) in self._query(query, [Standing.EVICTED.value, key, SCAN_ROWS])]

    def _first_evicted(self, kept: int) -> list[bytes]:
        """Return all evicted infohashes, oldest first, except the `kept` most recent ones."""
        [(count,)] = self._query("SELECT count(*) FROM torrent_denied WHERE until < ?", [FOREVER])
        query = "SELECT hash FROM torrent_denied WHERE until < ? ORDER BY until LIMIT ?"
        return [bytes(key) for (key,) in self._query(query, [FOREVER, max(0, count - kept)])]

    def _entries(self, plain: set[bytes], names: set[bytes], standings: Collection[Standing]) -> set[bytes]:
        """Return the keys in `plain` and the hashed keys in `names` that have an entry with one of these standings."""
        forms = {*plain, *names, *map(hashed_key, plain)}
        rows = self._select("SELECT hash, standing FROM torrent_denied WHERE", "hash", forms)
        found = {bytes(form) for form, standing in rows if Standing(standing) in standings}
        return {key for key in plain if key in found or hashed_key(key) in found} | (names & found)

    def _allow(self, plain: set[bytes], names: set[bytes]) -> set[bytes]:
        """Return those keys and hashed keys that had an entry."""
        allowed = self._entries(plain, names, set(Standing))
        keys = plain.union(self._others(plain).values())
        self._delete("torrent_denied", "hash", {*keys, *names, *map(hashed_key, keys)})
        return allowed

    def _forget_lapsed(self, keys: Sequence[bytes], now: int) -> None:
        rows = self._select("SELECT hash, until FROM torrent_denied WHERE", "hash", keys)
        self._delete("torrent_denied", "hash", [bytes(key) for key, until in rows if until <= now])

    def _ban(self, keys: set[bytes], others: dict[bytes, bytes], standing: Standing, until: int, reason: str) -> None:
        known = self._others(keys) | others
        reasons = {} if reason or standing is not Standing.DENIED else self._reasons(keys)
        self._delete("torrent_denied", "hash", sorted(keys))
        rows = [(key, standing.value, until, reasons.get(key, reason), known.get(key)) for key in sorted(keys)]
        self._insert("torrent_denied", rows)

    def _reasons(self, keys: Iterable[bytes]) -> dict[bytes, str]:
        """Return the reasons for those keys that are already denied."""
        query = f"SELECT hash, reason FROM torrent_denied WHERE standing = {Standing.DENIED.value} AND"
        return {bytes(key): reason for key, reason in self._select(query, "hash", keys)}

    def _others(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Map each denied or evicted key of a hybrid torrent to its other key."""
        rows = self._select("SELECT hash, other FROM torrent_denied WHERE other IS NOT NULL AND", "hash", keys)
        return {bytes(key): bytes(other) for key, other in rows}
