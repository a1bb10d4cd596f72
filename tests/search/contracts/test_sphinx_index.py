"""An index on a real Sphinx: hostile words, a server that is killed, two writers, what is too large."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.search import erase_index, open_index
from lycosa.app.torrent_search import index_follower
from lycosa.core.errors import IndexFailure, IndexTaken, IndexUnavailable, UsageError
from lycosa.search import torrent_indexer
from lycosa.search.core.query import LooseQuery, SearchQuery, Term
from lycosa.search.core.request import SearchRequest, ValueFilter
from lycosa.search.core.results import Document
from lycosa.search.core.schema import PAGES, TORRENTS, IndexEntry
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.pages import PageIndex
from lycosa.search.sphinx.index import SphinxIndex, erase_sphinx
from lycosa.search.torrent_indexer import IndexFollower
from lycosa.storage.ports import RecordStore
from tests.conftest import need
from tests.servers.children import suspend
from tests.servers.sphinx import SPHINX, SphinxProcess, find_sphinx, sphinx_process
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
SIGNS = [
    *"\"'\\()|@-!*~/^$<=>&:;,\0\n_",
    "--",
    "@name",
    "MAYBE",
    "NEAR/3",
    "ZONE:x",
    "\ud800",
    "爬",
    "a",
    " OR 1=1",
    "/*",
]


@pytest.fixture(scope="module")
def server() -> Iterator[SphinxProcess]:
    need(SPHINX, find_sphinx() is not None)
    with sphinx_process({"torrents": TORRENTS, "pages": PAGES}) as server:
        yield server


@pytest.fixture
def torrents(server) -> Iterator[SphinxIndex]:
    erase_sphinx(server.address("torrents"))
    with closing(SphinxIndex(server.address("torrents"), TORRENTS, write=True)) as index:
        yield index


def entry(key: int, name: str) -> IndexEntry:
    return IndexEntry(key, {"name": name}, {"size": key}, {"type": ["video"]})


def keys(index: SphinxIndex, query: SearchQuery | LooseQuery | None = None) -> set[int]:
    return {match.key for match in index.find(SearchRequest(query, limit=1000)).page}


def test_no_word_or_value_is_read_as_a_statement(torrents) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    torrents.add([entry(1, "show one"), entry(2, "show two")])
    torrents.commit({"a": 1})
    for _ in range(25):
        word, other = ("".join(rng.choices(SIGNS, k=rng.randint(1, 8))) for _ in range(2))
        where = rng.choice(["any", "title", "site"])
        query = SearchQuery(
            ((Term(("show",)),), (Term((word, other), where), Term(("show",)))), (Term((f"zz{word}",)),)
        )
        assert keys(torrents, query) == {1, 2}, (word, other)
        loose = LooseQuery((), (), (Term(("show",)), Term((f"zz{word}",)), Term((other,))), 1)
        assert keys(torrents, loose) <= {1, 2}
        assert not torrents.find(SearchRequest(filters=(ValueFilter("type", values=(word,)),))).total
        torrents.add([IndexEntry(3, {"name": word, "files": other}, {}, {"type": [word], "category": [other]})])
        source = word.replace("\ud800", "")
        torrents.commit({source: 1})
        assert torrents.count() == 3
        assert torrents.positions()[source] == 1
        torrents.remove([3])
        torrents.commit({})
    assert keys(torrents) == {1, 2}


def test_a_query_that_needs_32_of_64_words_finds_exactly_the_entries_with_at_least_32(torrents) -> None:
    torrents.add([entry(number, " ".join(f"w{n}" for n in range(number))) for number in range(1, 65)])
    torrents.commit({})
    optional = tuple(Term((f"w{n}",)) for n in range(64))
    assert keys(torrents, LooseQuery((), (), optional, 32)) == set(range(32, 65))


def test_an_index_survives_kill_9_of_its_server(server, torrents) -> None:
    torrents.add([entry(1, "one")])
    torrents.commit({"a": 1})
    server.kill()
    with pytest.raises(IndexUnavailable, match=r"does not answer .*: start searchd"):
        torrents.count()
    torrents.add([entry(2, "two")])
    with pytest.raises(IndexUnavailable):
        torrents.commit({"a": 2})
    server.start()
    assert (keys(torrents), torrents.positions()) == ({1}, {"a": 1})
    torrents.commit({"a": 2})
    assert (keys(torrents), torrents.positions()) == ({1, 2}, {"a": 2})


def test_a_search_waits_only_a_while_for_a_server_that_hangs(server, torrents) -> None:
    with closing(SphinxIndex(server.address("torrents"), TORRENTS)) as reader:
        reader.count()
        [connection] = reader._server._idle
        reader._server._answer_s = connection._read_timeout = 1
        suspend(server.pid)
        try:
            for _ in range(2):  # on an open connection, then on a new one
                with pytest.raises(IndexUnavailable, match=r"does not answer .*: start searchd"):
                    reader.count()
        finally:
            os.kill(server.pid, signal.SIGCONT)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.01)


def test_an_index_follows_when_the_server_is_back_and_reports_each_outage_once(
    server, torrents, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(torrent_indexer, "RETRY_MIN_S", 0.01)
    location, place = RecordsLocation(str(tmp_path), None), server.address("torrents")
    said: list[str] = []

    async def outage(store: RecordStore, follower: IndexFollower, number: int) -> None:
        await store.put([torrent(number, files=1)], NOW)
        catching_up = asyncio.ensure_future(follower.catch_up())
        await until(lambda: len(said) == 2 * number - 1)
        server.start()
        assert await catching_up == 1
        server.kill()

    async def scenario() -> None:
        server.kill()
        async with (
            open_records(location, create=True) as store,
            index_follower(store, location, place, said.append) as follower,
        ):
            await outage(store, follower, 1)
            await outage(store, follower, 2)

    asyncio.run(scenario())
    server.start()
    assert [line.endswith("start searchd; trying again, at least every 15 s") for line in said] == [True, False] * 2
    assert {line for line in said if "searchd" not in line} == {"the index works again, and has all torrents"}
    assert keys(torrents) == {1, 2}


@pytest.mark.parametrize("fails", [False, True])
def test_a_follower_does_not_take_the_index_back_from_a_later_writer(
    server, torrents, tmp_path, monkeypatch, fails
) -> None:
    """Not even if the server fails before the follower notices the other writer."""
    monkeypatch.setattr(torrent_indexer, "RETRY_MIN_S", 0.01)
    location, place = RecordsLocation(str(tmp_path), None), server.address("torrents")
    said: list[str] = []

    async def scenario() -> None:
        async with (
            open_records(location, create=True) as store,
            index_follower(store, location, place, said.append) as follower,
        ):
            await follower.catch_up()
            with closing(SphinxIndex(place, TORRENTS, write=True)) as later:
                await store.put([torrent(1, files=1)], NOW)
                if fails:
                    server.kill()
                following = asyncio.ensure_future(follower.run())
                if fails:
                    await until(lambda: said)
                    server.start()
                with pytest.raises(IndexTaken, match="only one may write it"):
                    await following
                later.commit({})

    asyncio.run(scenario())


def test_a_writer_is_refused_after_a_later_one_has_opened_the_index(server, torrents) -> None:
    torrents.add([entry(1, "one")])
    with closing(SphinxIndex(server.address("torrents"), TORRENTS, write=True)) as later:
        with pytest.raises(IndexFailure, match="was opened or emptied by another process: only one may write it"):
            torrents.commit({})
        later.add([entry(2, "two")])
        later.commit({})
        assert keys(later) == {2}


def test_a_reader_cannot_write_and_needs_an_index(server, torrents) -> None:
    with closing(SphinxIndex(server.address("torrents"), TORRENTS)) as reader:
        reader.add([entry(1, "one")])
        with pytest.raises(IndexFailure, match="is not open for writing"):
            reader.commit({})
        erase_sphinx(server.address("torrents"))
        with pytest.raises(IndexFailure, match="was emptied: fill it with `lycosa index`"):
            reader.count()
    with pytest.raises(IndexFailure, match="is still empty: fill it with `lycosa index`"):
        SphinxIndex(server.address("torrents"), TORRENTS)
    erase_sphinx(server.address("pages"))
    with pytest.raises(IndexFailure, match="is still empty: fill it with `lycosa index build`"):
        SphinxIndex(server.address("pages"), PAGES)


def test_an_index_that_the_server_does_not_have_is_named(server) -> None:
    with pytest.raises(IndexFailure, match=r"returned an error: .*other_state.*; add the output of"):
        SphinxIndex(server.address("other"), TORRENTS, write=True)


def test_a_page_that_is_too_large_is_left_out(server, caplog, monkeypatch) -> None:
    monkeypatch.setattr("lycosa.search.sphinx.index.STORED_MAX", 1000)
    noise = random.Random(1).randbytes(1000).hex()
    erase_sphinx(server.address("pages"))
    with closing(PageIndex(SphinxIndex(server.address("pages"), PAGES, write=True))) as pages:
        pages.add([Document("big", "http://h/big", "big", noise), Document("small", "http://h/small", "small", "x")])
        pages.commit({})
        assert pages.count() == 1
    assert "big is too large for the search server: it is not indexed" in caplog.text


def test_another_spelling_is_suggested_for_pages(server, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = server.address("pages")
    for title, suggestion in ("garden lamps", "garden"), ("other", ""):
        erase_index(place)
        with closing(open_index(place, write=True)) as pages:
            pages.add([Document("a", "http://h/a", title, "")])
            pages.commit({})
        with closing(open_index(place)) as pages:
            assert pages.search("gardne").suggestion == suggestion


def test_a_missing_driver_is_reported_with_the_command_that_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(UsageError, match=r"needs pymysql: pip install 'lycosa\[mysql\]'"):
        SphinxIndex(SphinxAddress("torrents", "127.0.0.1", 9306), TORRENTS)
