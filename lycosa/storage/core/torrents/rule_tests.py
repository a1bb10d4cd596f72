"""Runs the tests in rule files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.core.torrents.rules import TestSection

_COMPARED = ("category", "resolution", "year", "season", "episode")


def failures(inspector: Inspector, tests: Iterable[TestSection]) -> Iterator[str]:
    """Yield a message for each result that a test did not expect."""
    for test in tests:
        files = tuple(StoredFile(path, 1) for path in test.files or [test.name])
        record, refused = inspector.inspect(TorrentRecord(bytes(20), None, test.name, files, 0, 0))
        if bool(refused) is not bool(test.refused):
            yield f"{test.name!r}: {f'refused: {refused}' if refused else 'not refused'}"
        facts = record.content
        if facts is None:
            continue
        found = {name: getattr(facts, name) for name in _COMPARED}
        found |= {"type": facts.type.name.lower(), "languages": list(facts.languages)}
        for name, value in found.items():
            expected = getattr(test, name)
            if expected is not None and expected != value:
                yield f"{test.name!r}: {name} is {value!r}, not {expected!r}"
