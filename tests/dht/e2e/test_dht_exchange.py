"""`lycosa dht import` and `export` as processes: there and back, killed and repeated, and what users do wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from lycosa.app.dht_state import QUEUE, TORRENTS, RecordsLocation, open_hash_frontier, open_records
from lycosa.dht.crawler.core.hash_records import infohash_of
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import SOCKET
from lycosa.storage.core.torrent_line import format_line
from lycosa.storage.core.torrent_record import StoredTorrent
from tests.cli.command import Running, assert_one_line, lycosa, start_command
from tests.dht.exchange.torrents import info_v1, torrent_file
from tests.storage.torrents import torrent

NOW = 1_790_000_000
TRIES_MAX = 10
LINES = 5000
"""Enough lines that a killed import still has many of them left, also on a busy machine."""


def write_lines(path: Path, count: int, files: int = 3) -> None:
    rows = (StoredTorrent(n + 1, torrent(n, files), NOW, n % 7, 1, NOW) for n in range(count))
    path.write_bytes(b"".join(format_line(row) + b"\n" for row in rows))


def stored(state: Path) -> list[StoredTorrent]:
    async def read() -> list[StoredTorrent]:
        async with open_records(RecordsLocation(str(state), None)) as store:
            return await store.torrents(0, 1_000_000)

    return asyncio.run(read())


def test_an_export_is_imported_elsewhere_and_exported_again(tmp_path: Path) -> None:
    write_lines(tmp_path / "all.jsonl", 30)
    done = lycosa("dht", "import", "all.jsonl", "--state", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "30 torrents imported, 0 known already\n"), done.stderr
    done = lycosa("dht", "export", "all.jsonl.zst", "--state", "a", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "30 torrents exported to all.jsonl.zst\n")
    done = lycosa("dht", "import", "all.jsonl.zst", "--state", "b", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"imported": 30, "known": 0, "queued": 0, "refused": {}, "bad": 0}
    first, second = ({(*row.record.keys, row.seeders): row.record for row in stored(tmp_path / each)} for each in "ab")
    assert first == second
    assert lycosa("dht", "export", "--state", "b", "--since", "1d", cwd=tmp_path).stdout == ""
    magnets = lycosa("dht", "export", "--state", "b", "--format", "magnets", cwd=tmp_path).stdout
    assert magnets.count("magnet:?xt=urn:btih:") == 30


def test_an_import_that_is_killed_leaves_no_worker_and_is_complete_when_repeated(tmp_path: Path) -> None:
    write_lines(tmp_path / "all.jsonl", LINES, 1)

    def rows() -> int:
        path = tmp_path / "killed" / TORRENTS
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                return database.execute("SELECT count(*) FROM torrent_popularity").fetchone()[0]
        except sqlite3.OperationalError:  # not there yet
            return 0

    def is_killed(target: int) -> bool:
        """Kill an import that has stored this number of rows. Return False if it has ended before."""
        words = ("dht", "import", "all.jsonl", "--state", "killed", "--processes", 2)
        with start_command(*words, cwd=tmp_path) as process:
            # In the second round, rows of the first import may reach the target before this import has workers.
            workers: list[int] = []
            while rows() < target or not workers:
                if process.process.poll() is not None:
                    assert process.end() == 0, process.stderr
                    return False
                workers = children(process)
                time.sleep(0.002)
            killed = process.kill()
            for worker in workers:
                wait_until_gone(worker)
            return killed

    for target in (1, 1500):
        for _ in range(TRIES_MAX):
            if is_killed(target):
                break
            shutil.rmtree(tmp_path / "killed")
        else:
            pytest.fail("every import ended before its kill")
    assert 0 < rows() <= LINES
    done = lycosa("dht", "import", "all.jsonl", "--state", "killed", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {row.record.keys: (row.record.files, row.seeders, row.counted) for row in stored(tmp_path / "killed")}
    assert found == {torrent(n, 1).keys: (torrent(n, 1).files, n % 7, NOW) for n in range(LINES)}
    assert rows() == LINES


def children(process: Running) -> list[int]:
    """Return the process ids of the children of a process; [] if the process has ended."""
    path = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")
    try:
        return [int(each) for each in path.read_text().split()]
    except OSError:
        return []


def wait_until_gone(pid: int) -> None:
    """Wait until a process that is no child of ours has ended."""
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_several_sources_are_imported_at_once_and_infohashes_are_queued_for_the_crawl(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.torrent").write_bytes(torrent_file(info_v1(b"from a file")))
    (tmp_path / "files" / "b.torrent").write_bytes(b"no torrent")
    (tmp_path / "magnets").write_text(f"magnet:?xt=urn:btih:{'ab' * 20}&tr=http://t\n{'cd' * 20}\nnonsense\x1b[31m\n")
    done = lycosa("dht", "import", "files", "magnets", "--state", "a", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "1 torrent imported, 0 known already, 2 queued for lycosa dht crawl, 2 could not be read\n"
    assert done.stderr.splitlines() == [
        "files: b.torrent: not a torrent file: not a dictionary",
        "magnets: line 3: nonsense?[31m: not an infohash; write 40 hexadecimal digits, or a magnet link",
    ]
    again = lycosa("dht", "import", "magnets", "--state", "a", cwd=tmp_path)
    assert again.stdout.startswith("0 torrents imported, 2 known already")

    async def queued() -> set[str]:
        async with open_hash_frontier(tmp_path / "a", float(NOW)) as frontier:
            return {infohash_of(lease.record).hex() for lease in await frontier.lease(10, float(NOW))}

    assert asyncio.run(queued()) == {"ab" * 20, "cd" * 20}


def test_records_and_infohashes_are_imported_beside_a_crawl(tmp_path: Path) -> None:
    write_lines(tmp_path / "all.jsonl", 1)
    hybrid = f"magnet:?xt=urn:btih:{'cd' * 20}&xt=urn:btmh:1220{'ef' * 32}"
    (tmp_path / "magnets").write_text(f"{'ab' * 20}\n{'ab' * 20}\n{hybrid}\n")
    words = ("dht", "import", "all.jsonl", "magnets", "--state", "a")

    async def crawl() -> set[str]:
        async with open_hash_frontier(tmp_path / "a", float(NOW)) as frontier:
            socket = tmp_path / "a" / QUEUE / SOCKET
            async with serve(socket, LocalOperations(frontier)):
                done = await asyncio.to_thread(lycosa, *words, cwd=tmp_path)
                assert done.returncode == 0, done.stderr
                assert done.stdout.startswith("1 torrent imported, 1 known already, 2 queued for")
        async with open_hash_frontier(tmp_path / "a", float(NOW)) as frontier:
            return {infohash_of(lease.record).hex() for lease in await frontier.lease(10, float(NOW))}

    assert asyncio.run(crawl()) == {"ab" * 20, "cd" * 20, "ef" * 20}
    assert len(stored(tmp_path / "a")) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("import", "a.jsonl"), 2, "--state DIR, or --store URL"),
        (("import", "none.jsonl", "--state", "a"), 2, "none.jsonl cannot be read: no such file"),
        (("import", "other.sqlite", "--state", "a"), 2, "not one of magnetico"),
        (("import", "a.jsonl", "--state", "none/a"), 2, "none does not exist"),
        (("import", "a.jsonl", "--store", "redis://h/0"), 2, "write postgresql://HOST/DATABASE"),
        (("import", "a.jsonl", "--state", "a.jsonl"), 3, "a.jsonl/torrents.sqlite"),
        (("export", "--state", "none"), 2, "none has no torrents"),
        (("export", "b.torrent", "--state", "none"), 2, "hashes of pieces"),
        (("export", "--state", "none", "--since", "x"), 2, "--since: 'x' is neither an age"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_reported_in_one_line_that_says_what_to_write(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    write_lines(tmp_path / "a.jsonl", 1)
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as database:
        database.execute("CREATE TABLE other (x)")
    done = lycosa("dht", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in assert_one_line(done.stderr)
