"""Importer, indexer, site and search server are killed in any order: 30 s after all run again, every stored torrent is
found, and no removed one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from lycosa.app.dht_state import RecordsLocation
from lycosa.app.index_places import IndexPlace, index_place
from lycosa.app.torrent_search import open_torrent_index, torrent_indexer
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.schema import TORRENTS
from lycosa.storage.core.torrent_line import format_line
from lycosa.storage.core.torrent_record import StoredTorrent, TorrentRecord
from lycosa.storage.ports import RecordStore
from tests.conftest import PROVE, need
from tests.search.e2e.torrent_processes import address_of, change, running, status, with_store
from tests.search.site.torrents.sample_torrents import NOW, SAMPLES
from tests.servers.sphinx import SPHINX, SphinxProcess, find_sphinx, sphinx_process
from tests.storage.torrents import torrent

AGREE_MAX_S = 30.0
IMPORT_MAX_S = 60.0
ROUNDS = 12 if PROVE else 2
IMPORTED, DENIED = 800, 40
"""Torrents of a round."""
PAUSE_MAX_S = 0.4
POLL_S = 0.05
LIMIT = 100


class Part:
    """A command that is killed and started again."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._folder, self._arguments, self._stack = folder, arguments, ExitStack()

    def start(self) -> None:
        self.command = self._stack.enter_context(running(self._folder, *self._arguments))

    def kill(self) -> None:
        """Kill the command. It must still run, or have done its work."""
        assert self.command.process.poll() in {None, 0}, self.command.stderr
        self.close()

    def close(self) -> None:
        self._stack.close()


@contextmanager
def search_server(engine: str, folder: Path) -> Iterator[tuple[list[SphinxProcess], str]]:
    """Run the search server of this engine, if it has one. Yield it, and where the index is."""
    if engine == "tantivy":
        yield [], str(folder / "state" / "index")
        return
    need(SPHINX, find_sphinx() is not None)
    with sphinx_process({"torrents": TORRENTS}) as server:
        yield [server], str(server.address("torrents"))


def create_index(folder: Path, place: IndexPlace) -> None:
    """Index the stored torrents: a site needs an index."""

    async def fill(store: RecordStore) -> None:
        async with torrent_indexer(store, RecordsLocation(str(folder / "state"), None), place) as indexer:
            await indexer.catch_up()

    with_store(folder, fill)


def records_of(number: int) -> list[TorrentRecord]:
    """Return the torrents of a round."""
    return [torrent(number * IMPORTED + n, files=3) for n in range(IMPORTED)]


def write_lines(path: Path, *rounds: int) -> None:
    """Write the torrents of these rounds for the import."""
    torrents = [StoredTorrent(1, record, int(NOW)) for number in rounds for record in records_of(number)]
    path.write_bytes(b"".join(format_line(each) + b"\n" for each in torrents))


def count(folder: Path) -> int:
    return with_store(folder, lambda store: store.count())


def stored(folder: Path) -> dict[int, str]:
    """Return the id and the infohash of each stored torrent."""
    rows = with_store(folder, lambda store: store.torrents(0, (ROUNDS + 1) * IMPORTED))
    return {row.id: (row.record.infohash_v1 or b"").hex() for row in rows}


def indexed(place: IndexPlace) -> set[int]:
    with closing(open_torrent_index(place)) as index:
        return {match.key for match in index.find(SearchRequest(limit=(ROUNDS + 1) * IMPORTED)).page}


def found(site: str) -> list[str]:
    """Return the infohashes of all results of the site."""
    hashes: list[str] = []
    while True:
        page = json.loads(status(f"{site}api/search?limit={LIMIT}&offset={len(hashes)}&sort=files")[1])["torrents"]
        hashes += [each["infohash"] for each in page]
        if not page:
            return hashes


def wait(condition: Callable[[], bool], within_s: float, what: str) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"{what} within {within_s:.0f} s"
        time.sleep(POLL_S)


@pytest.mark.parametrize("engine", ["tantivy", "sphinx"])
def test_index_and_store_agree_after_all_processes_were_killed_in_any_order(tmp_path, engine, rng: random.Random):
    change(tmp_path, *SAMPLES[:2])
    expected, lines = {record.infohash_v1 for record in SAMPLES[:2]}, tmp_path / "torrents.jsonl"
    with ExitStack() as stack:
        servers, index = stack.enter_context(search_server(engine, tmp_path))
        create_index(tmp_path, index_place(index))
        for server in servers:
            server.kill()
        importer = Part(tmp_path, "dht", "import", lines, "--processes", "1")
        indexer = Part(tmp_path, "index", "--follow", "--index", index)
        site = Part(tmp_path, "site", "--port", "0", "--index", index)
        parts = [importer, indexer, site, *servers]
        for part in (importer, indexer, site):
            stack.callback(part.close)

        for number in range(ROUNDS):
            write_lines(lines, number)
            stored_before = count(tmp_path)
            for part in rng.sample(parts, len(parts)):
                part.start()
            wait(lambda: count(tmp_path) > stored_before, IMPORT_MAX_S, "the importer stores torrents")  # noqa: B023
            infohashes = [record.infohash_v1 for record in records_of(number)]
            denied = rng.sample(infohashes, DENIED)
            change(tmp_path, denied=tuple(denied))
            expected.update(set(infohashes) - set(denied))
            for part in rng.sample(parts, len(parts)):
                time.sleep(rng.uniform(0, PAUSE_MAX_S))  # any moment
                part.kill()

        write_lines(lines, *range(ROUNDS))
        for part in rng.sample(parts, len(parts)):
            part.start()
        assert importer.command.end() == 0, importer.command.stderr
        assert set(stored(tmp_path).values()) == {infohash.hex() for infohash in expected}
        address = address_of(site.command)
        agreed_by = time.monotonic() + AGREE_MAX_S
        wait(lambda: indexed(index_place(index)) == set(stored(tmp_path)), AGREE_MAX_S, "index and store agree")
        hashes = sorted(infohash.hex() for infohash in expected)
        wait(lambda: sorted(found(address)) == hashes, agreed_by - time.monotonic(), "the site finds them")
