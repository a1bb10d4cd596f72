"""Pipelines (C1, C6): their order and forms, and the outcomes of items; no item is lost silently."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, CloseSpider, DropItem, NotConfigured
from lycosa.crawl.items.pipeline import PipelineResults, Pipelines


class Spider:
    name = "s"


SPIDER = Spider()


def through(parts: Any, *items: Any, **options: Any) -> list[Any]:
    return list(asyncio.run(Pipelines(parts, SPIDER, **options).process_page(list(items))).items)


class Note:
    """Adds its mark to each item."""

    def __init__(self, mark: str = "n") -> None:
        self.mark = mark

    def process_item(self, item):
        item["seen"] = item.get("seen", "") + self.mark
        return item


class NoteSpider(Note):
    def process_item(self, item, spider):
        assert spider is SPIDER
        return super().process_item(item)


class NoteOptional(Note):
    def process_item(self, item, *, spider=None):
        assert spider is SPIDER
        return super().process_item(item)


class NoteOther(Note):
    def process_item(self, item, unit="cm"):
        assert unit == "cm"
        return super().process_item(item)


class NoteAsync(Note):
    async def process_item(self, item, spider):
        await asyncio.sleep(0)
        return super().process_item(item)


class NoteNew(Note):
    def process_item(self, item):
        return {**item, "seen": item.get("seen", "") + self.mark}


@pytest.mark.parametrize("kind", [Note, NoteSpider, NoteOptional, NoteOther, NoteAsync, NoteNew])
def test_process_item_may_have_several_forms(kind: Any) -> None:
    assert through([kind], {"a": 1}) == [{"a": 1, "seen": "n"}]
    assert through([kind("x"), NoteAsync("y"), kind("z")], {}, {}) == [{"seen": "xyz"}] * 2


def test_pipelines_run_in_the_order_of_their_numbers() -> None:
    a, b, c, d = (Note(mark) for mark in "abcd")
    assert through({a: 300, b: 100, c: None, d: 300}, {}) == [{"seen": "bad"}]
    with pytest.raises(BadSpider, match="the pipeline Note has the order 'first': write a number"):
        Pipelines({a: "first"}, SPIDER)  # type: ignore[dict-item]


def test_without_pipelines_items_stay_unchanged() -> None:
    assert not Pipelines([], SPIDER)
    assert through([], {"a": 1}) == [{"a": 1}]


# ------------------------------------------------------------------------------------------------ classes, open, close


class Created:
    def __init__(self, how: str = "plain") -> None:
        self.how = how
        self.calls: list[str] = []

    def open_spider(self) -> None:
        self.calls.append("open")

    async def close_spider(self, spider: Any) -> None:
        assert spider is SPIDER
        self.calls.append("close")

    def process_item(self, item):
        item["how"] = self.how
        return item


class FromCrawler(Created):
    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings["HOW"])


class FromSettings(Created):
    @classmethod
    def from_settings(cls, settings):
        return cls(settings["HOW"] + " too")


class Crawler:
    settings = {"HOW": "by settings"}


@pytest.mark.parametrize(
    ("kind", "how"), [(Created, "plain"), (FromCrawler, "by settings"), (FromSettings, "by settings too")]
)
def test_classes_are_created_from_the_crawler_from_its_settings_or_without_arguments(kind: Any, how: str) -> None:
    assert through([kind], {}, crawler=Crawler()) == [{"how": how}]


def test_a_pipeline_that_is_not_configured_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    class Unset(Note):
        @classmethod
        def from_crawler(cls, crawler):
            raise NotConfigured("no STORE")

    assert through([Unset, Note], {}, crawler=Crawler()) == [{"seen": "n"}]
    assert "the pipeline Unset is not used: no STORE" in caplog.text


def test_an_error_names_the_class_that_cannot_be_created() -> None:
    class Needs:
        def __init__(self, path):
            pass

    with pytest.raises(BadSpider, match=r"Needs.__init__ failed: TypeError: .* missing 1 required .* 'path'"):
        Pipelines([Needs], SPIDER)


def test_pipelines_are_opened_in_order_and_closed_in_reverse() -> None:
    calls: list[str] = []

    class Recorder(Note):
        def open_spider(self, spider):
            calls.append(f"open {self.mark}")
            if self.mark == "bad":
                raise ValueError("no server")

        def close_spider(self):
            calls.append(f"close {self.mark}")
            if self.mark == "b":
                raise ValueError("lost")

    async def run(*marks: str) -> None:
        pipelines = Pipelines([Recorder(mark) for mark in marks], SPIDER)
        await pipelines.open()
        await pipelines.close()

    with pytest.raises(BadSpider, match=r"Recorder.close_spider failed .*ValueError: lost"):
        asyncio.run(run("a", "b", "c"))
    assert calls == ["open a", "open b", "open c", "close c", "close b", "close a"]
    calls.clear()
    with pytest.raises(BadSpider, match=r"Recorder.open_spider failed .*ValueError: no server"):
        asyncio.run(run("a", "c", "bad", "d"))
    assert calls == ["open a", "open c", "open bad", "close c", "close a"]


# ------------------------------------------------------------------------------------------------------------ failures


def test_an_error_names_the_pipeline_that_returns_no_item() -> None:
    class Returns:
        def __init__(self, result: Any, later: bool) -> None:
            self.result = result
            self.later = later

        def process_item(self, item):
            return self.result if not self.later else self.coroutine()

        async def coroutine(self):
            return self.result

    for later in (False, True):
        with pytest.raises(BadSpider, match=r"Returns.process_item returned None: return the item, or raise DropItem"):
            through([Returns(None, later)], {})
        with pytest.raises(BadSpider, match=r"Returns.process_item returned a str \('text'\): return the item"):
            through([Note(), Returns("text", later)], {})


def test_an_object_that_is_no_pipeline_is_refused() -> None:
    class Wrong:
        def process_item(self):
            pass

    class More:
        def process_item(self, item, spider, more):
            pass

    with pytest.raises(BadSpider, match=r"the pipeline dict has no method process_item\(self, item\)"):
        Pipelines([{}], SPIDER)
    with pytest.raises(
        BadSpider, match=r"Wrong.process_item\(\) takes the wrong arguments: write def process_item\(se"
    ):
        Pipelines([Wrong()], SPIDER)
    with pytest.raises(BadSpider, match=r"More.process_item\(item, spider, more\) takes the wrong"):
        Pipelines([More], SPIDER)


class Odd(Note):
    """Drops odd numbers, and fails for negative numbers. If it is `slow`, it waits first."""

    def __init__(self, slow: bool = False) -> None:
        self.slow = slow

    def process_item(self, item):
        return self.slowly(item) if self.slow else self.decide(item)

    async def slowly(self, item):
        await asyncio.sleep(0.001 * (5 - item["n"] % 5))
        return self.decide(item)

    def decide(self, item):
        if item["n"] < 0:
            raise ValueError(f"number {item['n']}")
        if item["n"] % 2:
            raise DropItem(f"odd: {item['n']}")
        return {**item, "ok": True}


@pytest.mark.parametrize("slow", [False, True])
def test_items_are_dropped_and_the_others_keep_their_order(slow: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    dropped: list[Any] = []

    async def on_dropped(item: Any, response: Any, drop: Any) -> None:
        await asyncio.sleep(0)
        dropped.append((item, str(drop)))

    kept = through([Odd(slow)], *({"n": n} for n in range(9)), on_dropped=on_dropped)
    assert kept == [{"n": n, "ok": True} for n in range(0, 9, 2)]
    assert dropped == [({"n": n}, f"odd: {n}") for n in range(1, 9, 2)]
    assert "dropped: odd: 7" in caplog.text


@pytest.mark.parametrize("slow", [False, True])
def test_an_exception_fails_the_whole_page(slow: bool) -> None:
    failed: list[Any] = []

    def on_error(item: Any, response: Any, error: Any) -> None:
        failed.append((item, str(error)))

    with pytest.raises(ValueError, match="number -3"):
        through(
            [Odd(slow)],
            {"n": 0},
            {"n": -3},
            {"n": 2},
            on_error=on_error,
        )
    assert failed == [({"n": -3}, "number -3")]


def test_closing_the_spider_keeps_the_other_items() -> None:
    class Closes(Odd):
        def decide(self, item):
            if item["n"] == 2:
                raise CloseSpider("enough")
            return super().decide(item)

    for slow in (False, True):
        passed = asyncio.run(Pipelines([Closes(slow)], SPIDER).process_page([{"n": n} for n in range(5)]))
        assert passed == PipelineResults([{"n": 0, "ok": True}, {"n": 4, "ok": True}], 2, "enough")


def test_after_a_failure_no_item_is_started() -> None:
    started: list[int] = []

    class Records:
        def process_item(self, item):
            started.append(item["n"])
            return item

    with pytest.raises(ValueError, match="number -1"):
        through([Records(), Odd()], {"n": 0}, {"n": -1}, {"n": 2})
    assert started == [0, -1]


@pytest.mark.parametrize(("level", "name"), [("ERROR", "ERROR"), (logging.WARNING, "WARNING"), (None, "INFO")])
def test_drop_item_sets_its_log_level(level: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Drops:
        def process_item(self, item):
            raise DropItem("no price", log_level=level)

    assert through([Drops], {}) == []
    assert [(each.levelname, each.message) for each in caplog.records] == [(name, "dropped: no price")]


@pytest.mark.parametrize("later", [False, True])
def test_a_pipeline_that_exits_or_awaits_a_cancelled_task_ends_its_page(later: bool) -> None:
    class Exits:
        def process_item(self, item):
            if later:
                return self.cancelled()
            raise SystemExit("bye")

        async def cancelled(self):
            task = asyncio.create_task(asyncio.sleep(9))
            task.cancel()
            await task

    for items in ([{}], [{}, {}]):
        with pytest.raises(BadSpider, match=r"a pipeline ended with (SystemExit: bye|CancelledError)"):
            through([Exits], *items)


# ---------------------------------------------------------------------------------------------------------- concurrency


class Barrier:
    """Holds items until `count` items are inside; records the maximum number of items inside."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.inside = self.maximum = 0
        self.full = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def process_item(self, item):
        self.inside += 1
        self.entered.release()
        self.maximum = max(self.maximum, self.inside)
        if self.inside >= self.count:
            self.full.set()
        await self.full.wait()
        await asyncio.sleep(0)
        self.inside -= 1
        return item


def test_items_of_a_page_run_concurrently_within_the_limit() -> None:
    barrier = Barrier(7)
    items = [{"n": n} for n in range(50)]
    assert through([barrier], *items, concurrent_items=7) == items
    assert barrier.maximum == 7


def test_cancelling_a_page_leaves_no_tasks() -> None:
    async def run() -> int:
        barrier = Barrier(99)
        page = asyncio.create_task(Pipelines([barrier], SPIDER).process_page([{}, {}, {}]))
        for _ in range(3):
            await barrier.entered.acquire()
        page.cancel()
        with pytest.raises(asyncio.CancelledError):
            await page
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


def test_pipelines_can_use_the_item_adapter_of_itemadapter() -> None:
    from itemadapter import ItemAdapter

    from lycosa.crawl.items.items import Field, Item

    class Own(Item):
        price = Field()

    class Doubles:
        def process_item(self, item, spider):
            adapter = ItemAdapter(item)
            adapter["price"] *= 2
            return item

    assert through([Doubles], Own(price=2)) == [{"price": 4}]
