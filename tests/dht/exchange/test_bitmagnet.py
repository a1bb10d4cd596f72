"""A database of bitmagnet on a real PostgreSQL server, with the tables and columns of its migrations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.dht.exchange import bitmagnet
from lycosa.dht.exchange.bitmagnet import BitmagnetSource
from lycosa.dht.exchange.importing import NO_QUEUE
from lycosa.storage.core.torrent_record import StoredFile
from tests.cli.command import assert_one_line, lycosa
from tests.conftest import need
from tests.dht.exchange.torrents import Imported
from tests.servers.postgresql import POSTGRESQL, find_postgresql, postgresql_server

TABLES = """
    CREATE TYPE "FilesStatus" AS ENUM ('no_info', 'single', 'multi', 'over_threshold');
    CREATE TABLE torrents (
        info_hash bytea PRIMARY KEY, name text NOT NULL, size bigint NOT NULL, private boolean NOT NULL,
        created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
        files_status "FilesStatus" NOT NULL DEFAULT 'no_info', files_count integer,
        extension text GENERATED ALWAYS AS (
            CASE WHEN files_status = 'single' THEN substring(lower(name) from '.\\.([a-z0-9]+)$') END
        ) STORED
    );
    CREATE TABLE torrent_files (
        info_hash bytea NOT NULL REFERENCES torrents ON DELETE CASCADE, index integer NOT NULL, path text NOT NULL,
        size bigint NOT NULL, created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(),
        PRIMARY KEY (info_hash, path), UNIQUE (info_hash, index)
    );
    CREATE TABLE torrent_sources (key text PRIMARY KEY, name text NOT NULL);
    INSERT INTO torrent_sources VALUES ('dht', 'DHT'), ('rarbg', 'RARBG');
    CREATE TABLE torrents_torrent_sources (
        source text NOT NULL REFERENCES torrent_sources, info_hash bytea NOT NULL REFERENCES torrents ON DELETE CASCADE,
        import_id text, bfsd bytea, bfpe bytea, seeders integer, leechers integer, published_at timestamptz,
        created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL, PRIMARY KEY (source, info_hash)
    );
    CREATE TABLE torrent_pieces (
        info_hash bytea PRIMARY KEY REFERENCES torrents ON DELETE CASCADE, piece_length bigint NOT NULL,
        pieces bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now()
    );
"""
DAY = "2024-03-01 12:00:00+00"
DAY_S = 1_709_294_400


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    need(POSTGRESQL, find_postgresql() is not None)
    with postgresql_server() as database:
        yield database


@pytest.fixture
def database(server: str) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(TABLES)
        yield connection


def url(server: str) -> str:
    return f"postgresql://postgres@/postgres?host={server.partition(' ')[0].removeprefix('host=')}"


def add(database: Any, number: int, status: str, files: list[str], *, private: bool = False) -> bytes:
    infohash = number.to_bytes(20)
    database.execute(
        "INSERT INTO torrents VALUES (%s, %s, %s, %s, %s, now(), %s)",
        (infohash, f"torrent {number}", 100, private, DAY, status),
    )
    for index, path in enumerate(files):
        row = (infohash, len(files) - index, path, index)
        database.execute("INSERT INTO torrent_files (info_hash, index, path, size) VALUES (%s, %s, %s, %s)", row)
    return infohash


def test_torrents_are_imported_with_files_counts_and_dates(server: str, database: Any) -> None:
    single, multi = add(database, 1, "single", []), add(database, 2, "multi", ["z/1", "a/2"])
    insert = "INSERT INTO torrents_torrent_sources (source, info_hash, seeders, leechers, updated_at)"
    database.execute(insert + " VALUES ('rarbg', %s, 9, 9, '2023-01-01'), ('dht', %s, 3, 2, %s)", (multi, multi, DAY))
    database.execute(insert + " VALUES ('dht', %s, NULL, NULL, now())", (single,))
    database.execute("INSERT INTO torrent_pieces VALUES (%s, 16384, '')", (multi,))
    imported = Imported().run(BitmagnetSource(url(server)))
    one, two = asyncio.run(imported.store.torrents(0, 10))
    assert (one.record.infohash_v1, one.record.name, one.record.files) == (
        single,
        "torrent 1",
        (StoredFile("torrent 1", 100),),
    )
    assert (one.counted, one.record.piece_bytes, one.record.discovered) == (None, 0, DAY_S)
    assert two.record.files == (StoredFile("a/2", 1), StoredFile("z/1", 0))
    assert (two.seeders, two.leechers, two.counted, two.record.piece_bytes) == (3, 2, DAY_S, 16_384)


def test_a_torrent_with_an_incomplete_list_of_files_is_queued_for_a_fetch(server: str, database: Any) -> None:
    incomplete = [
        add(database, 1, "over_threshold", ["some", "of", "them"]),
        add(database, 2, "no_info", []),
        add(database, 3, "multi", []),
    ]
    add(database, 4, "multi", ["a"])
    imported = Imported().run(BitmagnetSource(url(server)))
    assert imported.names() == ["torrent 4"]
    assert imported.queued == [infohash.hex().encode() for infohash in incomplete]


def test_many_torrents_are_read_in_pages_and_private_ones_are_refused(
    server: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitmagnet, "PAGE_ROWS", 7)
    monkeypatch.setattr(bitmagnet, "FETCHED_ROWS", 2)
    for number in range(20):
        add(database, number, "multi", ["a", "b", "c"], private=number == 5)
    database.execute("ANALYZE torrents")
    source = BitmagnetSource(url(server))
    imported = Imported().run(source)
    assert (imported.counts.new, dict(imported.counts.refused), source.total) == (19, {"private": 1}, 20)
    assert all(len(row.record.files) == 3 for row in asyncio.run(imported.store.torrents(0, 50)))


def test_the_command_imports_from_one_database_into_another(server: str, database: Any, tmp_path: Path) -> None:
    add(database, 1, "multi", ["a"])
    add(database, 2, "no_info", [])
    database.execute("DROP DATABASE IF EXISTS lycosa")
    database.execute("CREATE DATABASE lycosa")
    source, target = url(server), url(server).replace("/postgres?", "/lycosa?")
    done = lycosa("dht", "import", source, "--store", target, cwd=tmp_path)
    expected = f"1 torrent imported, 0 known already, 1 not stored (1 {NO_QUEUE})\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    assert lycosa("dht", "export", "--store", target, "--format", "csv", cwd=tmp_path).stdout.count("torrent 1") == 1
    wrong = lycosa("dht", "import", source, "--store", source, cwd=tmp_path)
    assert wrong.returncode == 3
    assert "has other tables named torrents" in assert_one_line(wrong.stderr)


def test_the_connection_is_read_only(server: str, database: Any) -> None:
    add(database, 1, "single", [])
    database.execute("ALTER TABLE torrents RENAME TO real_torrents")
    database.execute("CREATE SEQUENCE used")
    columns = "info_hash, name || nextval('used') AS name, size, private, files_status, created_at"
    database.execute(f"CREATE VIEW torrents AS SELECT {columns} FROM real_torrents")
    imported = Imported().run(BitmagnetSource(url(server)))
    assert "read-only transaction" in imported.problems[0].reason


def test_a_database_without_the_columns_of_bitmagnet_is_refused(server: str, database: Any) -> None:
    database.execute("ALTER TABLE torrents DROP COLUMN extension, DROP COLUMN files_status")
    with pytest.raises(UsageError, match="torrents has no files_status"):
        Imported().run(BitmagnetSource(url(server)))


def test_an_unreachable_server_is_reported_as_one_problem() -> None:
    imported = Imported().run(BitmagnetSource("postgresql://postgres@127.0.0.1:1/x"))
    assert "cannot be read" in imported.problems[0].reason
    assert imported.counts.bad == 1
