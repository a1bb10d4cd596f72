"""Pipelines that write to their own database and commit it with the crawl, so that each row is stored exactly once.

    before_commit(position, items)   write the rows of these items and the position in one transaction
    before_commit(position)          the same for a pipeline that collects its rows itself, and upserts them by key
    resume_from(position)            delete the rows of later positions; called once before the first page

All these pipelines together are one sink. The database commits before the frontier. After a crash in between, the pages
of the database's last commit are fetched again, so `resume_from` deletes the rows of that commit.

The stored position is one number: the writer in the upper bits, the number of the commit in the lower ones.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lycosa.core.errors import StorageError
from lycosa.crawl.items.pipeline import CommitStep, Pipelines, commits
from lycosa.crawl.spiders.spider import wrap_user_errors
from lycosa.storage.core.item_key import ItemKey

NUMBER_BITS = 36
WRITER_BITS = 26
"""Number and writer together must fit into the 63 bits in which a frontier stores a position."""


class CommitPosition(NamedTuple):
    """A commit: its number (from 1; 0: none yet) and its writer.

    The writer is one crawl or one worker of a shared crawl. It stays the same after a resume.
    """

    writer: str
    number: int


class PipelineCommits:
    """Implements `Sink`. Add the pipelines of all spiders, then call `resume` once before the first page."""

    name = "pipelines"

    def __init__(self) -> None:
        self._steps: list[tuple[str, CommitStep]] = []
        self._taking_items: set[str] = set()
        self._pending: dict[str, list[Any]] = {}
        self._position = 0

    def add(self, spider: str, pipelines: Pipelines) -> None:
        """Add those pipelines that have `before_commit`. Raises `BadSpider` for wrong arguments."""
        steps = pipelines.commit_steps()
        self._steps += [(spider, step) for step in steps]
        if any(step.takes_items for step in steps):
            self._taking_items.add(spider)

    async def resume(self) -> None:
        """Tell each pipeline the last commit's position. Raises `BadSpider`, or `StorageError` if rows are lost."""
        position = _decoded(self._position)
        for _, step in self._steps:
            has = await _call(f"{step.name}.resume_from", step.resume, position) if step.resume is not None else None
            if isinstance(has, int) and has < position.number:
                raise StorageError(
                    f"{step.name} has the rows up to commit {has}, but the pages of the crawl are done up to commit"
                    f" {position.number}: restore its database, or start the crawl afresh"
                )

    async def check(self) -> None:
        """Do nothing: `open_spider` has opened the database."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        new = secrets.randbelow((1 << WRITER_BITS) - 1) + 1
        self._position = position or new << NUMBER_BITS
        return self._position

    def prepare(self, item: Any) -> Any:
        """Not used: the pipelines of an item depend on its spider, so `prepare_item` is called instead."""
        raise NotImplementedError

    def prepare_item(self, spider: str, item: Any) -> Any:
        return spider, copy.copy(item) if spider in self._taking_items else None

    def write(self, prepared: Any, key: ItemKey) -> None:
        spider, item = prepared
        if spider in self._taking_items:
            self._pending.setdefault(spider, []).append(item)

    async def flush(self) -> int:
        if not self._position:
            raise StorageError("the pipelines are not open: their rows have no position")
        position = _decoded(self._position + 1)
        pending, self._pending = self._pending, {}
        for spider, step in self._steps:
            items = pending.get(spider, [])
            await _call(f"{step.name}.before_commit", step.commit, position, *([items] if step.takes_items else []))
        self._position += 1
        return self._position

    async def close(self) -> None:
        self._pending.clear()


def _decoded(position: int) -> CommitPosition:
    return CommitPosition(f"{position >> NUMBER_BITS:07x}", position & ((1 << NUMBER_BITS) - 1))


async def _call(name: str, method: Callable[..., Any], *arguments: Any) -> Any:
    with wrap_user_errors(name):
        result = method(*arguments)
        return await result if hasattr(result, "__await__") else result


def commit_pipelines(parts: Sequence[Any]) -> bool:
    """Whether any of these pipelines (classes or objects) commits its own database with the crawl."""
    return any(commits(part) for part in parts)
