"""`lycosa.Crawl`: a crawl inside a program, with asyncio's loop or uvloop (C2)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from lycosa import CloseSpider, Crawl, DropItem, LycosaError, Request, Settings, Spider, run_crawl
from lycosa.core.errors import BadSetting, BadSpider, BadUrl, UsageError
from tests.cli.command import assert_exactly_once
from tests.servers.misbehaving import Server, running

PAGES = 40
FAST = {"robots": False, "retries": 0, "slow_callback_after": 0}
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared) -> Server:
    shared.hits.clear()
    return shared


@pytest.fixture(params=LOOPS)
def run(request) -> Iterator[Any]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


def root(server: Server, pages: int = PAGES) -> str:
    return server.url(f"/tree/{pages}/0")


def all_of(server: Server, pages: int = PAGES) -> set[str]:
    return {server.url(f"/tree/{pages}/{n}") for n in range(pages)}


class Pages(Spider):
    name = "pages"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.site)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


def crawl_of(server: Server, pages: int = PAGES, spider: Any = Pages, **settings: Any) -> Crawl:
    return Crawl(spider, spider_args={"site": root(server, pages)}, **{**FAST, **settings})


async def streamed(crawl: Crawl) -> list[str]:
    async with crawl:
        return [item["url"] async for item in crawl.stream()]


# ------------------------------------------------------------------------------------------- streams, results, routes


def test_a_stream_yields_every_item_once(run, server):
    assert_exactly_once(run(streamed(crawl_of(server))), all_of(server))


def test_a_crawl_of_urls_yields_pages(run, server):
    async def scenario() -> Any:
        async with Crawl(root(server), **FAST) as crawl:
            found = [item async for item in crawl.stream()]
        assert crawl.summary is not None
        return found, crawl.summary

    found, summary = run(scenario())
    assert {item.url for item in found} == all_of(server)
    assert (summary.finished, summary.snapshot.items, summary.stats["finish_reason"]) == (True, PAGES, "finished")


def test_run_returns_the_summary_and_collects_the_items(run, server):
    async def scenario() -> Crawl:
        async with crawl_of(server) as crawl:
            assert (await crawl.run()).finished
            return crawl

    crawl = run(scenario())
    assert_exactly_once([item["url"] for item in crawl.items], all_of(server))


def test_run_with_an_output_keeps_nothing_in_memory(run, server, tmp_path):
    async def scenario() -> Crawl:
        async with crawl_of(server, output=str(tmp_path / "items.jsonl")) as crawl:
            await crawl.run()
            return crawl

    assert run(scenario()).items == []
    assert (tmp_path / "items.jsonl").read_bytes().count(b"\n") == PAGES


def test_scrapys_names_are_settings_too(run, server):
    crawl = crawl_of(server, CLOSESPIDER_ITEMCOUNT=5, CONCURRENT_REQUESTS=1)
    found = run(streamed(crawl))
    assert crawl.summary is not None
    assert (crawl.summary.closing, 5 <= len(found) < PAGES) == ("closespider_itemcount", True)


def test_routes_apply_by_name_by_glob_and_by_default(run, server):
    async def scenario() -> list[Any]:
        async with Crawl(root(server, 5), **FAST) as crawl:

            @crawl.route()
            async def pages(response: Any) -> Any:
                yield {"by": "default", "n": response.url.rpartition("/")[2]}
                for link in response.follow_all(css="a"):
                    yield link
                yield response.follow("/good", "named", cb_kwargs={"number": 1}, dont_filter=True)
                yield response.follow("/echo?a=1")

            @crawl.route("named")
            def by_name(response: Any, number: int) -> Any:
                return {"by": "name", "number": number}

            @crawl.route(match="*/tree/5/[34]")
            def by_glob(response: Any) -> Any:
                return {"by": "glob", "n": response.url.rpartition("/")[2]}

            @crawl.route(match="*/echo?*")
            def echo(response: Any) -> Any:
                return {"by": "echo"}

            return [item async for item in crawl.stream()]

    found = run(scenario())
    by = {kind: sorted(item.get("n", "") for item in found if item["by"] == kind) for kind in ("default", "glob")}
    assert by == {"default": ["0", "1", "2"], "glob": ["3", "4"]}
    assert [item for item in found if item["by"] == "name"] == [{"by": "name", "number": 1}] * 3
    assert [item for item in found if item["by"] == "echo"] == [{"by": "echo"}]


def test_a_url_without_a_route_is_dead_with_the_reason(run, server):
    async def scenario() -> Any:
        crawl = Crawl(root(server, 1), **FAST)
        crawl.route(match="*/other")(lambda response: None)
        return await crawl.run()

    ((url, reason),) = run(scenario()).dead
    assert (url, reason) == (root(server, 1), f"no route for {url}: write one with @crawl.route()")


async def do_nothing(response: Any) -> None:
    """A route."""


async def parse(response: Any) -> None:
    """A route with another name."""


def add_two_default_routes(crawl: Crawl) -> None:
    crawl.route()(do_nothing)
    crawl.route()(parse)


def add_two_routes_of_a_name(crawl: Crawl) -> None:
    crawl.route("one")(do_nothing)
    crawl.route("one")(parse)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Crawl("a.example"), "a.example"),
        (Crawl, "nothing to crawl"),
        (lambda: Crawl(None), r"nothing to crawl in None: Crawl\(URL\)"),
        (lambda: Crawl("http://a.example/", detph=3), r"Crawl\(...\): unknown setting 'detph'"),
        (
            lambda: Crawl("http://a.example/").route(do_nothing),
            r"write @crawl.route\(\) with parentheses above do_nothing",
        ),
        (lambda: run_crawl(Settings(), ["http://a.example/"]), r"in a running event loop: await Crawl\(...\).run\(\)"),
        (lambda: Crawl("http://a.example/", delay=-1), "delay"),
        (lambda: add_two_default_routes(Crawl("http://a.example/")), "second default route"),
        (lambda: add_two_routes_of_a_name(Crawl("http://a.example/")), "two routes 'one'"),
        (lambda: Crawl("http://a.example/").route("start")(do_nothing), "cannot be called 'start'"),
        (lambda: Crawl([Pages, Pages]), "two spiders of this run are called 'pages'"),
        (lambda: Crawl(Pages, spider_args={"start_urls": "http://a.example/"}), "start_urls"),
    ],
)
def test_wrong_arguments_are_explained_in_one_line(call, message):
    async def scenario() -> None:
        await call().run()

    with pytest.raises((UsageError, BadUrl, BadSetting, BadSpider), match=message) as caught:
        asyncio.run(scenario())
    assert "\n" not in str(caught.value)


def test_settings_are_checked_at_once():
    with pytest.raises(BadSetting, match="did you mean depth"):
        Crawl("http://a.example/", detph=3)


def test_routes_need_a_crawl_of_urls(server):
    async def scenario() -> None:
        crawl = crawl_of(server)
        crawl.route()(do_nothing)
        await crawl.run()

    with pytest.raises(UsageError, match="routes are only for a crawl of URLs"):
        asyncio.run(scenario())


@pytest.mark.parametrize("first", ["run", "stream"])
@pytest.mark.parametrize("second", ["run", "stream"])
def test_a_crawl_can_be_used_once(server, first, second):
    async def use(crawl: Crawl, how: str) -> None:
        if how == "run":
            await crawl.run()
        else:
            async for _ in crawl.stream():
                pass

    async def scenario() -> None:
        async with crawl_of(server, 1) as crawl:
            await use(crawl, first)
            with pytest.raises(UsageError, match="used already"):
                await use(crawl, second)

    asyncio.run(scenario())


# ----------------------------------------------------------------------------------------- threads and event loops


def test_a_crawl_runs_in_a_thread_with_its_own_loop(server):
    found: list[str] = []

    def work() -> None:
        found.extend(asyncio.run(streamed(crawl_of(server))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert_exactly_once(found, all_of(server))


def test_repeated_crawls_run_on_one_loop_as_in_a_notebook(server):
    loop = asyncio.new_event_loop()
    try:
        for _ in range(3):
            found = loop.run_until_complete(streamed(crawl_of(server)))
            assert_exactly_once(found, all_of(server))
        assert asyncio.all_tasks(loop) == set()
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_two_crawls_run_concurrently_on_one_loop(run, server):
    async def scenario() -> Any:
        return await asyncio.gather(streamed(crawl_of(server)), streamed(crawl_of(server, 25)))

    one, two = run(scenario())
    assert_exactly_once(one, all_of(server))
    assert_exactly_once(two, all_of(server, 25))


def test_several_spiders_run_in_one_crawl(run, server):
    class OtherPages(Pages):
        name = "other-pages"

        def parse(self, response: Any) -> Any:
            yield {"url": f"other {response.url}"}
            yield from response.follow_all(css="a")

    found = run(streamed(crawl_of(server, spider=[Pages, OtherPages])))
    assert_exactly_once(found, [*all_of(server), *(f"other {url}" for url in all_of(server))])


def test_warnings_are_shown_without_a_configured_log(server, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    class Warns(Pages):
        def parse(self, response: Any) -> None:
            self.logger.warning("careful")
            self.logger.info("not shown")

    async def scenario() -> Any:
        crawl = crawl_of(server, 1, Warns)
        return await crawl.run()

    summary = asyncio.run(scenario())
    assert capsys.readouterr().err.count("careful") == 1
    assert summary.stats["log_count/WARNING"] == 1


# ------------------------------------------------------------------------------------------------- ends of a crawl


def test_stop_ends_the_crawl_and_snapshot_counts_its_items(run, server):
    async def scenario() -> tuple[int, Any, Any]:
        count = 0
        async with crawl_of(server, concurrency=1) as crawl:
            with pytest.raises(UsageError, match="has not started"):
                await crawl.snapshot()
            async for _ in crawl.stream():
                count += 1
                if count == 2:
                    early = await crawl.snapshot()
                    await crawl.stop()
        return count, early, await crawl.snapshot()

    count, early, last = run(scenario())
    assert 1 <= count < PAGES
    assert (early.pages, last.items) == (1, count), "items of visits under way are yielded, too"


def test_a_crawl_stopped_before_its_start_fetches_nothing(run, server):
    async def scenario() -> Any:
        async with crawl_of(server) as crawl:
            await crawl.stop()
            return await crawl.run()

    summary = run(scenario())
    assert (summary.interrupted, summary.snapshot.pages) == (True, 0)


def test_a_slow_consumer_slows_the_crawl(run, server):
    """The number of waiting items is limited by the number of visits under way."""
    scraped = [0]
    consumed, waiting_max = 0, 0

    class Count:
        def process_item(self, item: Any) -> Any:
            scraped[0] += 1
            return item

    async def scenario() -> None:
        nonlocal consumed, waiting_max
        async with crawl_of(server, 300, concurrency=4, pipelines={Count: 1}) as crawl:
            async for _ in crawl.stream():
                consumed += 1
                await asyncio.sleep(0.002)
                waiting_max = max(waiting_max, scraped[0] - consumed)

    run(scenario())
    assert (consumed, scraped[0]) == (300, 300)
    assert waiting_max <= 4 + 1, "the visits under way, and the item of the consumer"


EXITS = ["break", "exception", "cancel"]


@pytest.mark.parametrize("how", EXITS)
def test_leaving_a_stream_loses_nothing(run, server, tmp_path, how):
    """The next run yields the last item of the run before again, and no other item that was already yielded."""
    found: list[str] = []

    async def consume_some() -> None:
        async with crawl_of(server, state=str(tmp_path / "state"), concurrency=2) as crawl:
            async for item in crawl.stream():
                found.append(item["url"])
                if len(found) % 7 == 0 and how == "break":
                    break
                if len(found) % 7 == 0 and how == "exception":
                    raise ValueError("enough")
                if len(found) % 7 == 0:
                    asyncio.current_task().cancel()  # type: ignore[union-attr]
                    await asyncio.sleep(10)

    async def scenario() -> int:
        for number in range(100):
            before = len(found)
            with suppress(ValueError, asyncio.CancelledError):
                await asyncio.create_task(consume_some())
            if len(found) == before:
                return number
        raise AssertionError

    exits = run(asyncio.wait_for(scenario(), 60))
    assert set(found) == all_of(server)
    assert exits >= 6
    assert len(found) <= PAGES + exits


def test_leaving_a_stream_is_immediate(run, server, monkeypatch):
    monkeypatch.setattr("lycosa.crawl.engine.engine.STOP_GRACE_S", 60.0)

    async def scenario() -> float:
        async with crawl_of(server, spider=Hangs) as crawl:
            async for _ in crawl.stream():
                break
            left_at = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - left_at

    assert run(scenario()) < 30.0


class Hangs(Pages):
    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield response.follow("/hang")


def test_a_stream_can_be_left_before_the_first_item(run, server):
    async def scenario() -> None:
        async with crawl_of(server) as crawl:
            items = crawl.stream()
            task = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(asyncio.wait_for(scenario(), 60))


def test_a_stream_can_be_left_while_start_waits(run, server):
    class Waits(Pages):
        async def start(self) -> AsyncIterator[Request]:
            yield Request(server.url("/good"))
            await asyncio.Event().wait()

    async def scenario() -> None:
        async with crawl_of(server, spider=Waits) as crawl:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(crawl.stream())

    run(asyncio.wait_for(scenario(), 60))


def test_a_callback_that_cancels_its_own_task_makes_only_its_page_dead(run, server):
    class Cancels(Pages):
        async def parse(self, response: Any) -> Any:
            for each in super().parse(response):
                yield each
            if response.url.endswith("/3"):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    crawl = crawl_of(server, 10, Cancels)
    found = run(asyncio.wait_for(streamed(crawl), 60))
    lost = {server.url("/tree/10/3")}
    assert_exactly_once(found, all_of(server, 10) - lost)
    assert crawl.summary is not None
    reason = "the callback, or code that it called, cancelled its own task"
    assert crawl.summary.dead == [(*lost, reason)]


def test_an_exception_in_a_callback_makes_only_its_page_dead(run, server):
    class Fails(Pages):
        def parse(self, response: Any) -> Any:
            yield from super().parse(response)
            if response.url.endswith("/3"):
                raise ValueError("three")

    crawl = crawl_of(server, 10, Fails)
    found = run(streamed(crawl))
    lost = {server.url("/tree/10/3")}
    assert_exactly_once(found, all_of(server, 10) - lost)
    assert crawl.summary is not None
    assert [url for url, _ in crawl.summary.dead] == [*lost]


def test_cancelling_run_leaves_a_state_to_resume(run, server, tmp_path):
    state = str(tmp_path / "state")
    output = str(tmp_path / "items.jsonl")

    async def run_briefly() -> None:
        async with crawl_of(server, state=state, output=output, concurrency=1, delay=0.02) as crawl:
            async with asyncio.timeout(0.5):
                await crawl.run()

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await run_briefly()
        async with crawl_of(server, state=state, output=output) as crawl:
            assert (await crawl.run()).finished

    run(scenario())
    lines = (tmp_path / "items.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) == PAGES


def test_pipelines_may_close_the_crawl_and_drop_items(run, server):
    class DropsAndCloses:
        def process_item(self, item: Any) -> Any:
            if item["url"].endswith("/2"):
                raise DropItem("two")
            if item["url"].endswith("/5"):
                raise CloseSpider("five is enough")
            return item

    crawl = crawl_of(server, concurrency=1, pipelines={DropsAndCloses: 1})
    found = run(streamed(crawl))
    assert crawl.summary is not None
    assert (crawl.summary.closing, server.url(f"/tree/{PAGES}/2") in found) == ("five is enough", False)


def test_the_state_of_another_crawl_is_refused(run, server, tmp_path):
    async def scenario(target: Any) -> Any:
        async with Crawl(target, state=str(tmp_path / "state"), **FAST) as crawl:
            return await crawl.run()

    assert run(scenario(server.url("/good"))).finished
    assert run(scenario(server.url("/good"))).nothing_to_do

    class Other(Spider):
        name = "other"
        start_urls = ("http://a.example/",)

    with pytest.raises(LycosaError, match="is the state of a crawl without a spider"):
        run(scenario(Other))
