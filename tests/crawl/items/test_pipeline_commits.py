"""Pipelines that commit a database of their own with each commit of the crawl."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, StorageError
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.items.pipeline_commits import PipelineCommits
from lycosa.storage.core.item_key import ItemKey

KEY = ItemKey("http://a/", 1, 0, "", False)


class Rows:
    """Keeps what a database would keep, in the order of the calls."""

    def __init__(self) -> None:
        self.resumed: list[Any] = []
        self.commits: list[Any] = []
        self.has: int | None = None

    def resume_from(self, position: Any) -> int | None:
        self.resumed.append(position)
        return self.has

    def process_item(self, item: Any) -> Any:
        return item

    def before_commit(self, position: Any, items: Any) -> None:
        self.commits.append((position.number, items))


def commits_of(*parts: Any, at: int | None = None) -> tuple[PipelineCommits, int]:
    """Return the sink of a crawl with these pipelines, opened and resumed, and its position."""

    async def opened() -> tuple[PipelineCommits, int]:
        commits = PipelineCommits()
        commits.add("shop", Pipelines(list(parts), object()))
        position = await commits.open(at)
        await commits.resume()
        return commits, position

    return asyncio.run(opened())


def test_before_commit_gets_the_items_of_the_pages_that_are_settled_in_the_commit():
    rows = Rows()
    commits, start = commits_of(rows)
    commits.prepare_item("shop", {"n": 0})  # its page is not settled in this commit
    commits.write(commits.prepare_item("shop", {"n": 1}), KEY)
    first = asyncio.run(commits.flush())
    commits.write(commits.prepare_item("shop", {"n": 2}), KEY)
    second = asyncio.run(commits.flush())
    assert rows.commits == [(1, [{"n": 1}]), (2, [{"n": 2}])]
    assert (first - start, second - start) == (1, 2)


def test_an_item_changed_after_its_page_was_scraped_is_committed_as_it_was():
    rows, item = Rows(), {"n": 1}
    commits, _ = commits_of(rows)
    commits.write(commits.prepare_item("shop", item), KEY)
    item["n"] = 2
    asyncio.run(commits.flush())
    assert rows.commits == [(1, [{"n": 1}])]


def test_a_pipeline_learns_the_position_of_the_last_commit():
    rows, again = Rows(), Rows()
    commits, _ = commits_of(rows)
    position = asyncio.run(commits.flush())
    _, same = commits_of(again, at=position)
    assert same == position
    (writer, number), (writer_again, number_again) = rows.resumed[0], again.resumed[0]
    assert (writer_again, number, number_again) == (writer, 0, 1)


def test_two_crawls_have_different_writers():
    rows = [Rows(), Rows()]
    for each in rows:
        commits_of(each)
    assert rows[0].resumed[0].writer != rows[1].resumed[0].writer


def test_a_database_that_lacks_commits_of_the_crawl_is_refused():
    rows = Rows()
    commits, _ = commits_of(rows)
    asyncio.run(commits.flush())
    position = asyncio.run(commits.flush())
    rows.has = 1
    with pytest.raises(StorageError, match="Rows has the rows up to commit 1, but the pages of"):
        commits_of(rows, at=position)


def test_a_database_that_is_ahead_of_the_crawl_is_left_to_the_pipeline():
    rows = Rows()
    rows.has = 5
    commits_of(rows)


def test_before_commit_may_take_only_the_position_and_may_be_async():
    class Upserts:
        seen: list[int] = []

        def process_item(self, item: Any) -> Any:
            return item

        async def before_commit(self, position: Any) -> None:
            self.seen.append(position.number)

    commits, _ = commits_of(Upserts())
    asyncio.run(commits.flush())
    assert Upserts.seen == [1]


def test_an_error_in_a_pipeline_names_it():
    class Fails(Rows):
        def before_commit(self, position: Any, items: Any) -> None:
            raise OSError("the database is away")

    commits, _ = commits_of(Fails())
    with pytest.raises(BadSpider, match=r"Fails\.before_commit failed .*OSError: the database is away"):
        asyncio.run(commits.flush())


def test_wrong_arguments_are_refused_before_the_crawl_starts():
    class Wrong(Rows):
        def before_commit(self) -> None:  # type: ignore[override]
            pass

    with pytest.raises(BadSpider, match=r"Wrong\.before_commit\(.*: write def before_commit\(self, position\)"):
        commits_of(Wrong())
