"""One run of the tests by several processes at once: each file is run by whoever comes to it first (scripts/test).

One begins with whole crawls, the longest first, the others from the other end. So all are done at the same time,
without a list of who runs what, however long each file takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

LONGEST = (
    "test_soak", "test_processes", "test_shared_crawl", "test_engine_killed", "test_kill", "test_shared_frontier",
    "test_shared_failover", "test_queue", "test_queue_redis", "test_media", "test_misbehaving", "test_top_and_seed",
)  # fmt: skip


class Share:
    """A plugin. Who runs which file is written into the folder `taken`."""

    def __init__(self, taken: Path, *, from_the_end: bool) -> None:
        self._taken = taken
        self._from_the_end = from_the_end

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort files, and leave the tests of each in their order, which may be a random one."""
        items.sort(key=lambda item: self._place(item.path), reverse=self._from_the_end)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what no other has taken, as pytest does all; a fixture ends with the last test of ours that needs it."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        items = self._ours(session.items) if not session.config.option.collectonly else iter(())
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _ours(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        """Take a file when the first of its tests is asked for."""
        for file, tests in groupby(items, key=lambda item: item.nodeid.partition("::")[0]):
            if self._take(file):
                yield from tests

    def _place(self, path: Path) -> tuple[int, str]:
        """Return the place of a file among all."""
        if path.parent.name != "e2e":
            return len(LONGEST) + 1, str(path)
        return LONGEST.index(path.stem) if path.stem in LONGEST else len(LONGEST), str(path)

    def _take(self, file: str) -> bool:
        try:
            (self._taken / file.replace("/", "-")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
