"""`lycosa dht explain` and `stats` on the state of a crawl that does not run."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from lycosa.app.dht_state import RecordsLocation, open_hash_frontier, open_records
from lycosa.core.errors import StorageError
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import SAMPLED
from lycosa.dht.crawler.queue import HashQueue
from tests.cli.command import assert_one_line, lycosa
from tests.storage.torrents import torrent

NOW = float(int(time.time())) + 3600.0
"""Later than any time at which a test may run: the next try is not due."""
STORED, FAILED, QUEUED, UNSEEN = (torrent(n).infohash_v1 for n in range(4))
HYBRID = torrent(9, v2=True)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of a crawl that stored two torrents, failed on one, and has one to try."""
    folder = tmp_path_factory.mktemp("crawl") / "torrents"
    folder.mkdir()

    async def crawl() -> None:
        location = RecordsLocation(str(folder), None)
        async with open_hash_frontier(folder, NOW) as frontier, open_records(location, create=True) as store:
            queue = HashQueue(frontier, lambda: NOW, lambda: 0.0)
            await queue.push([STORED, FAILED], SAMPLED)
            stored, failed = await queue.lease(2)
            await store.put([torrent(0), HYBRID], NOW)
            await queue.done([stored], "fetched")
            await queue.failed(failed, CrawlOutcome.NO_METADATA)
            await queue.push([QUEUED], SAMPLED)
            await queue.commit(0)

    asyncio.run(crawl())
    return folder


@pytest.mark.parametrize(
    ("infohash", "code", "said"),
    [
        (STORED, 0, "stored at "),
        (FAILED, 1, "1 failed try, most recently because no peer delivered the metadata"),
        (QUEUED, 1, "found in a sample, or imported, waiting for a try"),
        (UNSEEN, 1, "never queued"),
    ],
)
def test_an_infohash_is_explained_and_the_exit_code_says_whether_it_is_stored(
    state: Path, infohash: bytes, code: int, said: str
) -> None:
    done = lycosa("dht", "explain", infohash.hex(), "--state", state, cwd=state)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[0] == infohash.hex()
    assert said in done.stdout


def test_a_magnet_link_of_a_hybrid_torrent_is_explained_for_both_of_its_infohashes(state: Path) -> None:
    link = f"magnet:?xt=urn:btih:{HYBRID.infohash_v1.hex()}&xt=urn:btmh:1220{HYBRID.infohash_v2.hex()}"
    done = lycosa("dht", "explain", link, "--state", state, "--json", cwd=state)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["infohash"] for each in found] == [HYBRID.infohash_v1.hex(), HYBRID.infohash_v2[:20].hex()]
    assert {each["answer"] for each in found} == {"stored"}


def test_json_has_what_the_sentences_say(state: Path) -> None:
    done = lycosa("dht", "explain", FAILED.hex(), "--state", state, "--json", cwd=state)
    found = json.loads(done.stdout)
    assert (found["answer"], found["stored"], found["refusal"]) == ("retry", None, None)
    assert (found["queue"]["failed_tries"], found["queue"]["last_failure"]) == (1, "no_metadata")
    assert found["queue"]["next_try"] >= NOW + 60
    assert found["queue"]["first_queued_after"] <= NOW < found["queue"]["first_queued_before"]
    assert len(found["why"]) == 2


def test_stats_show_the_store_and_the_queue(state: Path) -> None:
    done = lycosa("dht", "stats", "--state", state, "--json", cwd=state)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = {"torrents": 2, "queued": 1, "delayed": 1, "done": 1, "running": None, "reasons": {"fetched": 1}}
    assert {name: found[name] for name in expected} == expected
    text = lycosa("dht", "stats", "--state", state, cwd=state).stdout
    assert f"{state}: stopped" in text
    assert "torrents    2, " in text


def test_a_damaged_queue_is_reported_with_advice_that_helps(tmp_path: Path) -> None:
    async def store() -> None:
        location = RecordsLocation(str(tmp_path), None)
        async with open_hash_frontier(tmp_path, NOW), open_records(location, create=True):
            pass

    asyncio.run(store())
    (tmp_path / "queue" / "frontier" / "data.mdb").write_bytes(b"garbage" * 1000)
    done = lycosa("dht", "stats", "--state", tmp_path, cwd=tmp_path)
    line = assert_one_line(done.stderr)
    assert done.returncode == 3
    assert "-O" not in line
    assert f"restore {tmp_path / 'queue'} from a backup, or delete this folder" in line
    with pytest.raises(StorageError, match="delete this folder: the torrents stay"):
        asyncio.run(store())
    (tmp_path / "queue" / "frontier" / "data.mdb").unlink()
    with pytest.raises(StorageError, match=r"is missing or empty; restore \S+ from a backup, or delete this folder"):
        asyncio.run(store())


def test_a_folder_that_only_has_imported_torrents_is_shown(tmp_path: Path) -> None:
    async def store() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as records:
            await records.put([torrent(0)], NOW)

    asyncio.run(store())
    text = lycosa("dht", "stats", "--state", tmp_path, cwd=tmp_path).stdout
    assert "torrents    1, " in text
    assert "queued      0\n" in text
    assert lycosa("dht", "explain", STORED.hex(), "--state", tmp_path, cwd=tmp_path).returncode == 0
    done = lycosa("dht", "explain", UNSEEN.hex(), "--state", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["00"], "00: not an infohash; write 40 hexadecimal digits, or a magnet link"),
        ([STORED.hex()], "which crawl? Write --state DIR"),
        ([STORED.hex(), "--state", "."], ". is not the --state of a dht crawl: it has neither torrents nor a queue"),
    ],
)
def test_a_mistake_gets_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = lycosa("dht", "explain", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert assert_one_line(done.stderr) == said
    assert list(tmp_path.iterdir()) == []
