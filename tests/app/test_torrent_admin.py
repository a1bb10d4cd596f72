"""The long tasks of administrators, with the real store, rules and processes."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_admin import IndexProcess, StoredNameRules
from lycosa.app.torrent_search import index_follower, open_torrent_index, torrent_indexer
from lycosa.core.errors import UsageError
from lycosa.search.rebuilds import RebuildRequests, TaskProgress
from lycosa.search.site.torrents.admin.parts import InstalledRule, RuleDraft
from lycosa.storage.core.torrent_record import Standing
from lycosa.storage.rules.installed import InstalledRules, install_text, unapplied_rules
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
DRAFT = RuleDraft("spam", 'spam "quoted" and \\', ("buy now", "坏词"))
RECORDS = [
    replace(torrent(1), name="Good.Show"),
    replace(torrent(2), name="Buy.Now.Show"),
    replace(torrent(3), name="这是坏词吗"),
]
DEADLINE_S = 120


async def end_of(task: Callable[[], Awaitable[TaskProgress]]) -> TaskProgress:
    async with asyncio.timeout(DEADLINE_S):
        while (progress := await task()).is_running:  # noqa: ASYNC110 (it may run in another process)
            await asyncio.sleep(0.05)
    return progress


async def no_update() -> None: ...


async def ended(rules: StoredNameRules) -> None:
    async def progress() -> TaskProgress:
        return rules.trial.progress

    await end_of(progress)


def test_a_rule_is_tried_applied_and_removed(tmp_path) -> None:
    async def run() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            await store.put(RECORDS, NOW)
            rules = StoredNameRules(store, tmp_path, no_update)
            with pytest.raises(UsageError, match="try it first"):
                await rules.apply()
            await rules.start(DRAFT)
            with pytest.raises(UsageError, match="wait until it is finished"):
                await rules.start(DRAFT)
            await ended(rules)
            trial = rules.trial
            assert (trial.refused, trial.progress.done, trial.progress.total) == (2, 3, 3)
            assert trial.examples == [(each.infohash_v1.hex(), each.name) for each in RECORDS[1:]]
            assert (await store.count(), await rules.installed()) == (3, [])
            await rules.apply()
            await ended(rules)
            assert (rules.trial.applied, rules.trial.refused, await store.count()) == (True, 2, 1)
            assert set((await store.standing([RECORDS[1].keys[0]], NOW)).values()) == {Standing.DENIED}
            assert await rules.installed() == [InstalledRule("spam", (DRAFT.reason,), 2)]
            holding = InstalledRules(tmp_path, (), lambda: NOW)
            assert holding.current().inspect(RECORDS[1]).refused == DRAFT.reason
            await rules.remove("spam")
            assert await rules.installed() == []
            for name in ("spam", "", ".", "..", "../rules", "a/b"):
                with pytest.raises(UsageError, match="no such rule"):
                    await rules.remove(name)
            assert await store.count() == 1
            await rules.close()

    asyncio.run(run())


def test_the_application_of_a_rule_is_continued_when_the_site_starts_again(tmp_path) -> None:
    location, updates = RecordsLocation(str(tmp_path), None), []

    async def update() -> None:
        updates.append(await store.count())

    async def run() -> None:
        nonlocal store
        async with open_records(location, create=True) as store:
            await store.put(RECORDS, NOW)
            rules = StoredNameRules(store, tmp_path, update)
            await rules.start(DRAFT)
            await ended(rules)
            await rules.apply()
            with pytest.raises(UsageError, match="remove the rule"):
                rules.discard()
            await rules.close()
            assert (await store.count(), updates) == (3, [])
            for expected in (DRAFT, None):
                rules = StoredNameRules(store, tmp_path, update)
                await rules.resume()
                assert (rules.trial and rules.trial.draft) == expected
                if expected:
                    await ended(rules)
                    assert rules.trial.refused == 2
                await rules.close()
            assert (await store.count(), updates) == (1, [1])

    store = None
    asyncio.run(run())


@pytest.mark.parametrize("removed", [None, "a"])
def test_all_unapplied_rules_are_applied_when_the_site_starts_again(tmp_path, removed) -> None:
    async def run() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            await store.put(RECORDS, NOW)
            for name, word in (("a", "buy now"), ("b", "坏词")):
                install_text(name, f'[[deny]]\nreason = "{name}"\nwords = ["{word}"]\n', tmp_path)
            rules = StoredNameRules(store, tmp_path, no_update)
            await rules.resume()
            assert rules.trial.draft == RuleDraft("a", "a", ("buy now",))
            if removed:
                await rules.remove(removed)
            async with asyncio.timeout(DEADLINE_S):
                while unapplied_rules(tmp_path):  # noqa: ASYNC110 (a task of the rules changes the folder)
                    await asyncio.sleep(0.05)
            await ended(rules)
            assert rules.trial.draft.name == "b"
            assert [row.record for row in await store.torrents(0, 9)] == RECORDS[: 2 if removed else 1]
            await rules.close()

    asyncio.run(run())


def test_the_removal_of_torrents_stops_when_their_rule_is_removed(tmp_path) -> None:
    async def run() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            await store.put(RECORDS, NOW)
            rules = StoredNameRules(store, tmp_path, no_update)
            await rules.start(DRAFT)
            await ended(rules)
            await rules.apply()
            await rules.remove("spam")
            assert (rules.trial, await rules.installed()) == (None, [])
            await rules.resume()
            assert (rules.trial, await store.count()) == (None, 3)
            await rules.close()

    asyncio.run(run())


def test_a_rule_with_a_text_that_is_no_word_is_refused_before_the_trial(tmp_path) -> None:
    async def run() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            with pytest.raises(UsageError, match="does not have 1 to 4 parts"):
                await StoredNameRules(store, tmp_path, no_update).start(RuleDraft("x", "y", ("!!!",)))

    asyncio.run(run())


@pytest.mark.parametrize("is_followed", [False, True])
def test_the_index_is_rebuilt_by_a_process_of_its_own_or_by_the_one_that_writes_it(tmp_path, is_followed) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await store.put(RECORDS, NOW)
            async with index_follower(store, location, folder, pytest.fail) as follower:
                await follower.catch_up()
                rebuild = IndexProcess(location, folder)
                assert await rebuild.progress() is None
                if is_followed:
                    following = asyncio.ensure_future(follower.run())
                    await watch(rebuild)
                    following.cancel()
            if not is_followed:
                await watch(rebuild)
            await rebuild.close()
        assert (folder / "tantivy.1").is_dir(), "the second generation"
        with closing(open_torrent_index(folder)) as index:
            assert index.count() == 3

    async def watch(rebuild: IndexProcess) -> None:
        await rebuild.start()
        progress = await end_of(rebuild.progress)
        assert (progress.error, progress.done, progress.total) == ("", 3, 3)

    asyncio.run(run())


def test_a_second_click_starts_no_second_process_that_rebuilds_the_index(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await store.put(RECORDS, NOW)
            async with torrent_indexer(store, location, folder) as indexer:
                await indexer.catch_up()
            rebuild = IndexProcess(location, folder)
            await asyncio.gather(rebuild.start(), rebuild.start())
            assert len(multiprocessing.active_children()) <= 1
            assert (await end_of(rebuild.progress)).error == ""
            await rebuild.close()

    asyncio.run(run())


def test_a_rebuild_that_was_killed_is_started_again_with_the_site(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await store.put(RECORDS, NOW)
            async with torrent_indexer(store, location, folder) as indexer:
                await indexer.catch_up()
            with pytest.raises(asyncio.CancelledError):
                async with RebuildRequests(folder).noted(3, lambda: 1):
                    raise asyncio.CancelledError
            rebuild = IndexProcess(location, folder)
            assert (await rebuild.progress()).is_running
            await rebuild.resume()
            progress = await end_of(rebuild.progress)
            assert (progress.error, progress.done) == ("", 3)
            await rebuild.resume()
            assert await rebuild.progress() == progress
            await rebuild.close()

    asyncio.run(run())


def test_the_index_is_updated_if_no_process_writes_it(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await store.put(RECORDS, NOW)
            async with torrent_indexer(store, location, folder) as indexer:
                await indexer.catch_up()
            await store.deny(RECORDS[0].keys)
            rebuild = IndexProcess(location, folder)
            await rebuild.update()
            with closing(open_torrent_index(folder)) as index:
                async with asyncio.timeout(DEADLINE_S):
                    while index.count() == 3:  # noqa: ASYNC110 (another process changes it)
                        await asyncio.sleep(0.05)
                assert index.count() == 2
            await rebuild.close()

    asyncio.run(run())


def test_a_rebuilding_that_failed_says_why(tmp_path) -> None:
    async def run() -> None:
        location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"
        folder.mkdir()
        (folder / "foreign").touch()
        async with open_records(location, create=True):
            rebuild = IndexProcess(location, folder)
            await rebuild.start()
            assert "is not a search index" in (await end_of(rebuild.progress)).error
            await rebuild.close()

    asyncio.run(run())
