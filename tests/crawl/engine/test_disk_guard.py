"""The free-space floor: a crawl pauses when a device is nearly full, and resumes by itself."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from lycosa.crawl.engine.disk_guard import FLOOR_BYTES, DiskSpace, FreeSpace, disk_space
from lycosa.crawl.engine.engine import EngineLimits
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.states import Policy
from tests.crawl.engine_setup import build_engine
from tests.servers.tree import grow

MB, GB = 10**6, 10**9


class Device:
    """A device whose free space the test sets."""

    def __init__(self, free_bytes: int, total_bytes: int = 100 * GB) -> None:
        self.space = DiskSpace(free_bytes, total_bytes)

    def free(self, free_bytes: int) -> None:
        self.space = self.space._replace(free_bytes=free_bytes)

    def guard(self, floor_bytes: int | None = None) -> FreeSpace:
        return FreeSpace([Path("/somewhere")], floor_bytes, lambda path: self.space)


@pytest.mark.parametrize(
    ("total", "floor"),
    [(1000 * GB, FLOOR_BYTES), (10 * GB, GB // 10), (200 * 10**6, 2 * 10**6), (64 << 20, 0), (64 << 10, 0), (0, 0)],
)
def test_the_default_floor_depends_on_the_device(total, floor):
    for free, is_short in ((floor - 1, True), (floor, False)):
        space = Device(max(0, free), total).guard()
        space.check()
        assert bool(space.shortage) == (is_short and floor > 0)


def test_the_start_and_end_of_a_shortage_are_logged_once(caplog):
    device = Device(2000 * MB)
    space = device.guard(1000 * MB)
    short = []
    with caplog.at_level(logging.WARNING):
        for free in (2000, 1000, 999, 500, 1000, 1099, 1100, 1000, 999):
            device.free(free * MB)
            space.check()
            short.append(bool(space.shortage))
    assert short == [False, False, True, True, True, True, False, False, True], (
        "more space is needed to resume than to continue"
    )
    assert [record.message for record in caplog.records] == [
        "paused: 999 MB free at /somewhere, 1.1 GB needed; the crawl resumes automatically when there is space",
        "enough space again: the crawl resumes",
        "paused: 999 MB free at /somewhere, 1.1 GB needed; the crawl resumes automatically when there is space",
    ]


def test_neither_a_floor_of_zero_nor_an_unreadable_device_is_a_shortage():
    for floor, space_at in ((0, lambda path: DiskSpace(0, GB)), (GB, lambda path: (_ for _ in ()).throw(OSError()))):
        space = FreeSpace([Path("/")], floor, space_at)
        space.check()
        assert space.shortage is None


def test_the_space_of_a_missing_path_is_that_of_its_parent(tmp_path):
    assert disk_space(tmp_path / "not" / "yet").total_bytes == disk_space(tmp_path).total_bytes > 0


class FillsDevice(Spider):
    name = "fills-device"

    def __init__(self, url: str, device: Device) -> None:
        super().__init__()
        self.start_urls = [url]
        self.device = device
        self.seen: list[str] = []

    def parse(self, response: Any) -> Any:
        self.seen.append(response.url)
        if len(self.seen) == 10:
            self.device.free(5 * MB)
        yield {"url": response.url}
        yield from response.follow_all(css="li a")


def test_during_a_shortage_running_visits_finish_and_nothing_is_leased(monkeypatch):
    monkeypatch.setattr("lycosa.crawl.engine.engine.SHORTAGE_CHECK_S", 0.05)

    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            device = Device(100 * MB)
            spider = FillsDevice(url, device)
            space = device.guard(10 * MB)
            crawl = await build_engine(stack, spider, Policy(robots=False), EngineLimits(concurrency=4), space)
            running = asyncio.create_task(crawl.engine.run(crawl.operations))
            while not (snapshot := await crawl.engine.snapshot()).paused:  # noqa: ASYNC110  as an observer does
                await asyncio.sleep(0.01)
            assert snapshot.paused == "5.0 MB free at /somewhere, 11 MB needed"
            while (await crawl.frontier.stats()).leased:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            before = len(spider.seen)
            await asyncio.sleep(0.2)
            stats = await crawl.frontier.stats()
            assert (stats.leased, stats.done) == (0, before), "visits under way finished, and nothing was leased"
            assert len(crawl.sink.items) == len(spider.seen) == before < 60, "the items of these visits are committed"
            device.free(100 * MB)
            await asyncio.wait_for(running, 60)
            assert sorted(item["url"] for item in crawl.sink.items) == sorted(set(spider.seen))
            assert len(spider.seen) == 60

    with grow(60, delay_s=0.02) as tree:
        asyncio.run(scenario(tree.url))
