"""One run of the tests by several processes at once: each file is run by whoever comes to it first (scripts/test).

One begins with whole crawls, the longest first, the others from the other end. So all are done at the same time,
without a list of who runs what, however long each file takes.
"""

from __future__ import annotations

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
        self._ours: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort files, and leave the tests of each in their order, which may be a random one."""
        items.sort(key=lambda item: self._place(item.path), reverse=self._from_the_end)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Pass over what another one runs."""
        file = item.nodeid.partition("::")[0]
        if file not in self._ours:
            self._ours[file] = self._take(file)
        return None if self._ours[file] else True

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
