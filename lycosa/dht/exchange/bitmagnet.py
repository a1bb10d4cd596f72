"""Reads a database of bitmagnet, such as a restored dump, from a PostgreSQL server. Writes nothing to it.

    torrents                   info_hash, name, size, private, files_status, created_at
    torrent_files              info_hash, index, path, size: only of torrents with several files; by default at most
                               100 rows per torrent
    torrents_torrent_sources   info_hash, source, seeders, leechers, updated_at
    torrent_pieces             info_hash, piece_length: only if bitmagnet saves pieces

files_status is `single` (no row in torrent_files; the name is the file), `multi`, `over_threshold` (files are missing)
or `no_info`. The last two have no complete list of files, so their metadata must be fetched again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from lycosa.core.errors import StorageError, UsageError
from lycosa.dht.exchange.entries import Entry, EntryKind
from lycosa.dht.exchange.file_rows import FileRows, OwnedFile
from lycosa.storage.core.torrent_line import LINE_MAX

SCHEMES = ("postgresql", "postgres")
CONNECT_S = 10
PAGE_ROWS = 500
"""Number of torrents read at a time, with their files."""
FETCHED_ROWS = 1000
NEEDED = {
    "torrents": {"info_hash", "name", "size", "private", "files_status", "created_at"},
    "torrent_files": {"info_hash", "index", "path", "size"},
    "torrents_torrent_sources": {"info_hash", "seeders", "leechers", "updated_at"},
}
COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = ANY(current_schemas(false))"
)
ESTIMATE = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'torrents'::regclass"
TORRENTS = """
    SELECT info_hash, left(name, %(text)s), size, private, files_status::text, extract(epoch FROM created_at)::bigint
    FROM torrents WHERE info_hash > %(after)s ORDER BY info_hash LIMIT %(rows)s
"""
FILES = "SELECT info_hash, path, size FROM torrent_files WHERE info_hash = ANY(%(hashes)s) ORDER BY info_hash, index"
COUNTS = """
    SELECT DISTINCT ON (info_hash) info_hash, seeders, leechers, extract(epoch FROM updated_at)::bigint
    FROM torrents_torrent_sources WHERE info_hash = ANY(%(hashes)s) AND seeders IS NOT NULL AND leechers IS NOT NULL
    ORDER BY info_hash, updated_at DESC
"""
PIECES = "SELECT info_hash, piece_length FROM torrent_pieces WHERE info_hash = ANY(%(hashes)s)"


class BitmagnetSource:
    """A bitmagnet database as a source."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self.name = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        self.total = 0  # set when the source is open
        self._url = url
        try:
            self._psycopg: Any = import_module("psycopg")
        except ImportError:
            raise UsageError(f"{self.name} needs psycopg: pip install 'lycosa[postgresql]'") from None

    def entries(self) -> Iterator[Entry]:
        try:
            options = {"connect_timeout": CONNECT_S, "options": "-c default_transaction_read_only=on"}
            with self._psycopg.connect(self._url, autocommit=True, **options) as connection:
                yield from self._read(connection)
        except self._psycopg.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise StorageError(f"cannot be read: {reason}") from error

    def _read(self, connection: Any) -> Iterator[Entry]:
        has_pieces = self._check(connection)
        self.total = connection.execute(ESTIMATE).fetchone()[0]
        page: list[Any] = [(b"",)]
        done = 0
        while page := connection.execute(
            TORRENTS, {"after": page[-1][0], "rows": PAGE_ROWS, "text": LINE_MAX}
        ).fetchall():
            hashes = {"hashes": [row[0] for row in page]}
            counts = {row[0]: row[1:] for row in connection.execute(COUNTS, hashes)}
            pieces = dict(connection.execute(PIECES, hashes)) if has_pieces else {}
            with connection.transaction(), connection.cursor("files") as cursor:
                cursor.itersize = FETCHED_ROWS
                files = FileRows(iter(cursor.execute(FILES, hashes)))
                for row in page:
                    done += 1
                    yield _entry(row, files.of(row[0]), counts.get(row[0]), pieces.get(row[0], 0), done)

    def _check(self, connection: Any) -> bool:
        """Return whether the database has piece lengths. Raises `UsageError` if this is not a bitmagnet database."""
        found: dict[str, set[str]] = defaultdict(set)
        for table, column in connection.execute(COLUMNS):
            found[table].add(column)
        for table, columns in NEEDED.items():
            if missing := columns - found[table]:
                raise UsageError(
                    f"{self.name} is not a database of a recent bitmagnet: {table} has no {', '.join(sorted(missing))}"
                )
        return "torrent_pieces" in found


def _entry(row: tuple[Any, ...], files: list[OwnedFile] | None, counts: Any, piece_bytes: int, done: int) -> Entry:
    """Return the row as a line of JSON, which is checked later like any other line."""
    infohash, name, size, private, status, created = row
    where = f"torrent {infohash.hex()}"
    if files is None:
        return Entry(where, EntryKind.BAD, f"its list of files takes more than {LINE_MAX:,} bytes".encode(), done)
    if status == "single":
        files = [(name, size)]
    if status not in {"single", "multi"} or not files:
        return Entry(where, EntryKind.INFOHASH, infohash.hex().encode(), done)
    fields = {
        "infohash_v1": infohash.hex(),
        "name": name,
        "files": [{"path": path, "size_bytes": size} for path, size in files],
        "private": private,
        "discovered": created,
        "piece_bytes": piece_bytes,
    }
    if counts is not None:
        fields |= dict(zip(("seeders", "leechers", "counted"), counts, strict=True))
    return Entry(where, EntryKind.LINE, msgspec.json.encode(fields), done)
