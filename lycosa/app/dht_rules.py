"""Apply rules about names to the stored torrents, and deny or allow lists of infohashes."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from lycosa.app.dht_state import TORRENTS, RecordsLocation, open_records
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count
from lycosa.dht.core.magnet import parse_magnet
from lycosa.infra.clock import Clock
from lycosa.infra.file_locks import has_shared_lock
from lycosa.infra.line_files import READ_ERRORS, numbered_lines
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import HASHED_BYTES, TorrentRecord, key_of
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.core.torrents.rule_tests import failures
from lycosa.storage.core.torrents.rules import RuleFile
from lycosa.storage.core.torrents.words import hashed_word
from lycosa.storage.ports import RecordStore
from lycosa.storage.rules.installed import LOOK_EVERY_S, InstalledRules, install_rules
from lycosa.storage.rules.rule_files import inspector_of, load_rules, make_inspector

__all__ = ["Applied", "apply_rules", "change_denied", "check_name", "hashed_word", "read_infohashes", "test_rules"]

PAGE_ROWS = 500
"""Number of torrents that a scan reads from the store at a time."""
DENIED_AT_ONCE = 10_000
LINE_MAX = 64 * 1024
MARGIN_S = 5.0
"""Seconds added to LOOK_EVERY_S, because a network file system may show a changed file late."""


class Applied(NamedTuple):
    """Three counts of torrents: checked, refused by the rules, and given new content facts.

    `installed` is the folder in which the rules were installed.
    """

    read: int
    refused: int
    described: int
    installed: Path | None = None


class Denied(NamedTuple):
    """Counts: infohashes denied (or allowed) now, infohashes that already were, and removed torrents."""

    changed: int
    unchanged: int
    removed: int


def test_rules(path: Path) -> tuple[RuleFile, list[str]]:
    """Read a rule file and run its tests. Return the rules and the failures. Raises `UsageError`."""
    rules = load_rules(path)
    return rules, list(failures(make_inspector([path]), rules.test))


def check_name(path: Path, name: str) -> Inspection:
    """Inspect a torrent of this name with the rules of a file. Raises `UsageError`."""
    return make_inspector([path]).inspect(TorrentRecord(bytes(20), None, name, (), 0, 0))


async def apply_rules(
    location: RecordsLocation,
    path: Path | None,
    report: Callable[[TorrentRecord, str], None],
    show: Callable[[int, int], None],
    *,
    dry_run: bool,
) -> Applied:
    """Remove and deny the stored torrents that the rules in the file `path` refuse.

    The file is also installed in the state folder, if there is one. Without `path`, apply the installed rules. Outdated
    content facts are replaced. `report` gets each refused torrent and the reason, `show` the numbers of torrents
    refused and read so far. With `dry_run` nothing changes. Raises `UsageError`, `StateError`.
    """
    state = Path(location.state) if location.state else None
    if path is not None and (mistakes := test_rules(path)[1]):
        raise UsageError(f"{path}: {format_count(len(mistakes), 'test')} failed, the first: {mistakes[0]}")
    refusal = inspector_of(path).refusal if path else InstalledRules(state, (), Clock().now).refusal
    async with open_records(location) as store:
        installed_in = None if dry_run or path is None else state
        folder = install_rules(path, installed_in) if path is not None and installed_in is not None else None
        facts = InstalledRules(state, (path,) if path and state is None else (), Clock().now).facts
        scan = RuleScan(store, refusal, report, show, facts=facts, dry_run=dry_run)
        if installed_in is not None:
            await scan_installed(scan, installed_in)
        else:
            await scan.run()
    return Applied(scan.read, scan.refused, scan.described, folder)


async def scan_installed(scan: RuleScan, state: Path) -> None:
    """Scan with rules that were just installed, then scan the torrents stored in the meantime.

    A running crawl or import reloads the rules before the second scan. Torrents that it stores later were inspected
    under the new rules, or are inspected again (`inspect_stored`).
    """
    await scan.run()
    if has_shared_lock(state):
        await asyncio.sleep(LOOK_EVERY_S + MARGIN_S)
    await scan.run()


class RuleScan:
    """Applies rules to all stored torrents. A second run continues with the torrents stored since the first."""

    def __init__(
        self,
        store: RecordStore,
        refusal: Callable[[TorrentRecord], str],
        report: Callable[[TorrentRecord, str], None],
        show: Callable[[int, int], None],
        *,
        dry_run: bool,
        facts: Callable[[TorrentRecord], ContentFacts] | None = None,
    ) -> None:
        self._store, self._refusal, self._dry_run = store, refusal, dry_run
        self._facts = None if dry_run else facts
        self._report, self._show = report, show
        self.read = self.refused = self.described = self._after = 0

    async def run(self) -> None:
        while page := await self._store.torrents(self._after, PAGE_ROWS):
            denied: dict[str, list[bytes]] = defaultdict(list)
            changed: dict[int, ContentFacts] = {}
            inspected = await asyncio.to_thread(lambda page: [self._inspect(each.record) for each in page], page)
            for torrent, (reason, facts) in zip(page, inspected, strict=True):
                if reason:
                    self._report(torrent.record, reason)
                    self.refused += 1
                    denied[reason] += torrent.record.keys
                elif facts is not None and facts != torrent.record.content:
                    changed[torrent.id] = facts
            for reason, infohashes in denied.items():
                if not self._dry_run:
                    await self._store.deny(infohashes, reason=reason)
            self.described += await self._store.set_content(changed)
            self.read, self._after = self.read + len(page), page[-1].id
            self._show(self.refused, self.read)

    def _inspect(self, record: TorrentRecord) -> tuple[str, ContentFacts | None]:
        """Return why a record is refused, or "", and its new content facts (None if not needed)."""
        reason = self._refusal(record)
        return reason, None if reason or self._facts is None else self._facts(record)


async def change_denied(
    location: RecordsLocation, torrents: Iterable[tuple[bytes, ...]], *, hashed: bool, allow: bool, reason: str = ""
) -> Denied:
    """Deny torrents, each given by its infohashes. With `allow`, allow them again instead.

    With `hashed`, SHA-256 hashes of the infohashes are given.
    """
    changed = unchanged = removed = 0
    remaining = iter(torrents)
    _check_state(location)
    async with open_records(location, create=True) as store:
        while named := list(islice(remaining, DENIED_AT_ONCE)):
            some = {infohash if hashed else key_of(infohash) for infohash in chain.from_iterable(named)}
            plain, hidden = ((), some) if hashed else (some, ())
            if allow:
                new = await store.allow(plain, hashed=hidden)
            else:
                new = len(some) - await store.denied(plain, hashed=hidden)
                removed += await store.deny(plain, hashed=hidden, reason=reason, hybrids=named)
            changed, unchanged = changed + new, unchanged + len(some) - new
    return Denied(changed, unchanged, removed)


def _check_state(location: RecordsLocation) -> None:
    """Raise `UsageError` for a mistyped folder: one that does not exist, or has other files but no torrents."""
    if location.state is None or location.store is not None:
        return
    folder = Path(location.state)
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / TORRENTS).exists()):
        raise UsageError(
            f"{folder} is not the --state of a dht crawl: if no crawl has run yet, give an empty folder that exists"
        )


def read_infohashes(written: Iterable[str], *, hashed: bool) -> Iterator[tuple[bytes, ...]]:
    """Yield the infohashes of each torrent that the arguments name.

    An argument is an infohash, a magnet link, or a file with one of these per line. With `hashed`, arguments and files
    contain hashed infohashes. Raises `UsageError`.
    """
    for text in written:
        path = Path(text)
        if len(text) < 1000 and path.is_file():
            yield from _of_file(path, hashed=hashed)
        else:
            yield _of_text(text, hashed=hashed)


def _of_file(path: Path, *, hashed: bool) -> Iterator[tuple[bytes, ...]]:
    try:
        with path.open("rb") as stream:
            for number, line in numbered_lines(stream, LINE_MAX):
                text = re.split("[#\t]", line.decode(errors="replace"))[0].strip()
                if text:
                    try:
                        yield _of_text(text, hashed=hashed)
                    except UsageError as error:
                        raise UsageError(f"{path}, line {number:,}: {error}") from None
    except READ_ERRORS as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _of_text(text: str, *, hashed: bool) -> tuple[bytes, ...]:
    if not hashed:
        return parse_magnet(text).infohashes
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != HASHED_BYTES:
        raise UsageError(
            f"{text[:80]!r} is not a hashed infohash: write the SHA-256 of its 20 bytes in 64 hexadecimal digits"
        )
    return (digest,)
