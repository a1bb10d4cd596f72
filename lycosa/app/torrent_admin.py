"""Long tasks that administrators start on the torrent site: try or apply a rule about names, and rebuild the index."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path

from lycosa.app.dht_rules import RuleScan, scan_installed
from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.index_places import IndexPlace, local_folder
from lycosa.app.torrent_search import torrent_indexer
from lycosa.core.errors import IndexLocked, LycosaError, UsageError
from lycosa.infra.child_process import end_with_parent
from lycosa.search.rebuilds import RebuildRequests, TaskProgress
from lycosa.search.site.torrents.admin.parts import EXAMPLES_MAX, InstalledRule, RuleDraft, RuleTrial
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.core.torrents.rules import DenySection, RuleFile
from lycosa.storage.ports import RecordStore
from lycosa.storage.rules.installed import install_text, mark_applied, remove_rules, rule_files, unapplied_rules
from lycosa.storage.rules.rule_files import compile_pattern

WRITER_WAIT_S = 60
"""Maximum seconds that a rebuild waits for the process that has locked the index. That process takes over the rebuild,
or releases the lock."""
STALLED_S = 600.0
"""Seconds without progress after which a rebuild by another process counts as failed."""

log = logging.getLogger(__name__)


class StoredNameRules:
    """Implements `NameRules` for a store. If the folder `state` is given, rules are installed in it, and its crawls
    apply them.

    `update` is called after a rule has been applied, to update the index.
    """

    def __init__(self, store: RecordStore, state: Path | None, update: Callable[[], Awaitable[None]]) -> None:
        self._store, self._state, self._update = store, state, update
        self._task: asyncio.Task[None] | None = None
        self.trial: RuleTrial | None = None

    async def installed(self) -> Sequence[InstalledRule]:
        if self._state is None:
            return []
        files = await asyncio.to_thread(rule_files, self._state)
        return [_installed(name, rules) for name, rules in files.items()]

    async def start(self, draft: RuleDraft) -> None:
        self._check_free()
        await self._begin(draft, _inspector(draft), applied=False)

    async def apply(self) -> None:
        self._check_free()
        if self.trial is None or self.trial.applied or self.trial.progress.error:
            raise UsageError("There is no rule to apply: try it first.")
        draft = self.trial.draft
        if self._state is not None:
            await asyncio.to_thread(install_text, draft.name, _rule_text(draft), self._state)
        await self._begin(draft, _inspector(draft), applied=True)

    async def resume(self) -> None:
        """Continue to apply rules that the site was applying when it was stopped."""
        if (draft := await self._unapplied("")) is not None:
            await self._begin(draft, _inspector(draft), applied=True)

    async def _unapplied(self, after: str) -> RuleDraft | None:
        """Return the first unapplied rule with a later name; None if there is none."""
        if self._state is None:
            return None
        files = await asyncio.to_thread(rule_files, self._state)
        for name in await asyncio.to_thread(unapplied_rules, self._state):
            rules = files.get(name)
            if name > after and rules is not None and len(rules.deny) == 1:
                [section] = rules.deny
                return RuleDraft(name, section.reason, tuple(section.words))
        return None

    def discard(self) -> None:
        if self._state is not None and self.trial and self.trial.applied and self._is_busy:
            raise UsageError("To stop the removal of torrents, remove the rule.")
        self._forget()

    async def remove(self, name: str) -> None:
        if self._state is None:
            raise UsageError("There is no such rule.")
        was_busy = self._is_busy
        if self.trial is not None and self.trial.applied and self.trial.draft.name == name:
            self._forget()
        await asyncio.to_thread(remove_rules, name, self._state)
        if was_busy and not self._is_busy:
            await self.resume()

    def _forget(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self.trial = None

    async def close(self) -> None:
        """Stop the running task. If it applies an installed rule, a later `resume` continues it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def _is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def _check_free(self) -> None:
        if self._is_busy:
            raise UsageError("Another rule is being tried or applied: wait until it is finished.")

    async def _begin(self, draft: RuleDraft, inspector: Inspector, *, applied: bool) -> None:
        trial = await self._trial(draft, applied=applied)
        self._check_free()
        self.trial = trial
        self._task = asyncio.create_task(self._run_all(trial, inspector))

    async def _trial(self, draft: RuleDraft, *, applied: bool) -> RuleTrial:
        return RuleTrial(draft, TaskProgress(await self._store.count(), started=time.time()), applied=applied)

    async def _run_all(self, trial: RuleTrial, inspector: Inspector) -> None:
        """Try or apply a rule. After applying it, also apply the rules with later names that are not applied yet."""
        await self._run(trial, inspector)
        while trial.applied and (draft := await self._unapplied(trial.draft.name)) is not None:
            self.trial = trial = await self._trial(draft, applied=True)
            await self._run(trial, _inspector(draft))

    async def _run(self, trial: RuleTrial, inspector: Inspector) -> None:
        def report(record: TorrentRecord, _reason: str) -> None:
            if len(trial.examples) < EXAMPLES_MAX:
                trial.examples.append(((record.infohash_v1 or record.infohash_v2 or b"").hex(), record.name))

        def show(refused: int, read: int) -> None:
            trial.refused, trial.progress.done = refused, read

        scan = RuleScan(self._store, inspector.refusal, report, show, dry_run=not trial.applied)
        try:
            if trial.applied and self._state is not None:
                await scan_installed(scan, self._state)
                await asyncio.to_thread(mark_applied, trial.draft.name, self._state)
            else:
                await scan.run()
            if trial.applied:
                await self._update()
        except LycosaError as error:
            trial.progress.error = str(error)
            log.warning("the rule %s was not applied to all torrents: %s", trial.draft.name, error)
        finally:
            trial.progress.ended = time.time()


class IndexProcess:
    """Implements `IndexRebuild`. A process that already writes the index does the work; otherwise a new process
    does."""

    def __init__(self, location: RecordsLocation, place: IndexPlace) -> None:
        self._location, self._place = location, place
        self._requests = RebuildRequests(local_folder(place, location.state))
        self._process: SpawnProcess | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        async with self._turn:
            progress = await self.progress()
            if progress is not None and progress.is_running:
                return
            await self._rebuild()

    async def resume(self) -> None:
        """Restart an unfinished rebuild, unless another process is doing it."""
        async with self._turn:
            if await asyncio.to_thread(self._requests.is_wanted):
                await self._rebuild()

    async def update(self) -> None:
        """Start indexing the changes in the store, unless another process writes the index."""
        async with self._turn:
            if self._process is None or not self._process.is_alive():
                await self._begin(_update_in_process)

    async def _rebuild(self) -> None:
        await asyncio.to_thread(self._requests.ask)
        await self._begin(_rebuild_in_process)

    async def _begin(self, target: Callable[[RecordsLocation, IndexPlace], None]) -> None:
        self._process = multiprocessing.get_context("spawn").Process(
            target=target, args=(self._location, self._place), name="index"
        )
        await asyncio.to_thread(self._process.start)

    async def progress(self) -> TaskProgress | None:
        progress = await asyncio.to_thread(self._requests.progress)
        if progress is None or not progress.is_running or (self._process and self._process.is_alive()):
            return progress
        if (self._process and self._process.exitcode) or progress.noted < time.time() - STALLED_S:
            progress.ended, progress.error = progress.noted, "the rebuilding process failed or no longer responds"
        return progress

    async def close(self) -> None:
        """Stop. The next process that writes the index restarts an unfinished rebuild."""
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            await asyncio.to_thread(self._process.join)


def _rebuild_in_process(location: RecordsLocation, place: IndexPlace) -> None:
    end_with_parent()
    requests = RebuildRequests(local_folder(place, location.state))
    try:
        asyncio.run(_rebuild(location, place, requests))
    except LycosaError as error:
        requests.fail(str(error))


def _update_in_process(location: RecordsLocation, place: IndexPlace) -> None:
    end_with_parent()
    try:
        asyncio.run(_update(location, place))
    except IndexLocked:
        pass  # the process that writes the index updates it
    except LycosaError as error:
        log.warning("the index was not updated: %s", error)


async def _update(location: RecordsLocation, place: IndexPlace) -> None:
    async with open_records(location) as store, torrent_indexer(store, location, place) as indexer:
        await indexer.catch_up()


async def _rebuild(location: RecordsLocation, place: IndexPlace, requests: RebuildRequests) -> None:
    async with open_records(location) as store:
        for _ in range(WRITER_WAIT_S):
            progress = requests.progress()
            if progress is None or progress.started:
                return  # the process that writes the index has taken the request
            try:
                async with torrent_indexer(store, location, place) as indexer:
                    await indexer.catch_up()
                return
            except IndexLocked:
                await asyncio.sleep(1)
    raise UsageError("another process has opened the index for writing, and does not rebuild it")


def _inspector(draft: RuleDraft) -> Inspector:
    return Inspector([(RuleFile(deny=[DenySection(list(draft.words), reason=draft.reason)]), compile_pattern)])


def _rule_text(draft: RuleDraft) -> str:
    """Return a rule file. Its strings are printable, and so have the same form in JSON and TOML."""
    words = json.dumps(draft.words, ensure_ascii=False)
    return f"[[deny]]\nreason = {json.dumps(draft.reason, ensure_ascii=False)}\nwords = {words}\n"


def _installed(name: str, rules: RuleFile | None) -> InstalledRule:
    if rules is None:
        return InstalledRule(name, ("?",), 0)
    sections = [*rules.deny, *rules.words.values()]
    words = sum(len(each.words) + len(each.hashed) + len(each.patterns) for each in sections)
    return InstalledRule(name, tuple(each.reason for each in rules.deny), words)
