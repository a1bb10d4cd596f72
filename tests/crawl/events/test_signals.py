"""Signals (C1): which receivers are called with which arguments, their answers, and their errors."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import subprocess
import sys
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, CloseSpider, DontCloseSpider, StopDownload
from lycosa.crawl.events import signals as all_signals
from lycosa.crawl.events.signals import (
    SIGNALS,
    TASKS_MAX,
    Signal,
    Signals,
    bytes_received,
    engine_started,
    item_scraped,
    memusage_warning_reached,
    request_scheduled,
    spider_closed,
    spider_idle,
)

# Scrapy's documentation, topics/signals: the names and the arguments of each.
OF_SCRAPY = {
    "engine_started": "",
    "engine_stopped": "",
    "scheduler_empty": "",
    "item_scraped": "item response spider",
    "item_dropped": "item response exception spider",
    "item_error": "item response spider failure",
    "spider_closed": "spider reason",
    "spider_opened": "spider",
    "spider_idle": "spider",
    "spider_error": "failure response spider",
    "feed_slot_closed": "slot",
    "feed_exporter_closed": "",
    "memusage_warning_reached": "",
    "request_scheduled": "request spider",
    "request_dropped": "request spider",
    "request_reached_downloader": "request spider",
    "request_left_downloader": "request spider",
    "bytes_received": "data request spider",
    "headers_received": "headers body_length request spider",
    "robots_parsed": "robotparser request",
    "response_received": "response request spider",
    "response_downloaded": "response request spider",
}
ITEM = {"item": {"n": 1}, "response": "r", "spider": "s"}


def sent(signals: Signals, signal: Signal, **values: Any) -> None:
    asyncio.run(signals.send(signal, **values))


def test_the_signals_are_those_of_scrapy_with_their_arguments() -> None:
    assert {name: " ".join(signal.arguments) for name, signal in SIGNALS.items()} == OF_SCRAPY
    signals = Signals()
    assert [name for name in SIGNALS if getattr(signals, f"on_{name}") != []] == []
    assert all(getattr(all_signals, name) is signal for name, signal in SIGNALS.items())


def test_receivers_get_the_arguments_they_take() -> None:
    got: list[Any] = []
    signals = Signals(sender="crawler")
    signals.connect(lambda: got.append("none"), item_scraped)
    signals.connect(lambda spider, item: got.append((item, spider)), item_scraped)
    signals.connect(lambda response, **rest: got.append((response, sorted(rest))), item_scraped)
    signals.connect(lambda signal, sender, more=3: got.append((signal, sender, more)), "item_scraped")
    signals.connect(lambda *args: got.append(args), item_scraped)
    signals.connect(functools.partial(lambda word, item: got.append((word, item)), "bound"), item_scraped)
    sent(signals, item_scraped, **ITEM)
    assert got == [
        "none",
        ({"n": 1}, "s"),
        ("r", ["item", "sender", "signal", "spider"]),
        (item_scraped, "crawler", 3),
        (),
        ("bound", {"n": 1}),
    ]


@pytest.mark.parametrize(
    ("receiver", "message"),
    [
        (lambda itm: 1, "takes 'itm', but item_scraped has item, response, spider"),
        (lambda item, /: 1, "takes 'item', but item_scraped has"),
        (7, "7 cannot receive item_scraped: give a function"),
    ],
)
def test_a_receiver_that_cannot_be_called_is_refused_at_once(receiver: Any, message: str) -> None:
    with pytest.raises(BadSpider, match=message):
        Signals().connect(receiver, item_scraped)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ("item_scrapped", "there is no signal 'item_scrapped': did you mean item_scraped?"),
        ("spider_close", "did you mean spider_closed?"),
        (object(), "write one of lycosa.signals"),
        ("x", "write one of lycosa.signals"),
    ],
)
def test_unknown_signals_are_refused_with_the_nearest_name(signal: Any, message: str) -> None:
    for use in (lambda s: s.connect(print, signal), lambda s: s.disconnect_all(signal)):
        with pytest.raises(BadSpider) as caught:
            use(Signals())
        assert message in str(caught.value)


def test_connecting_twice_calls_once_and_disconnecting_stops_calls() -> None:
    class Part:
        count = 0

        def on_item(self) -> None:
            self.count += 1

    part, signals = Part(), Signals()
    hooks = signals.on_item_scraped
    signals.connect(part.on_item, item_scraped)
    signals.connect(part.on_item, item_scraped, weak=False)
    sent(signals, item_scraped, **ITEM)
    assert part.count == 1
    signals.disconnect(part.on_item, item_scraped)
    sent(signals, item_scraped, **ITEM)
    assert part.count == 1
    with pytest.raises(BadSpider, match=r"Part.on_item is not connected to item_scraped"):
        signals.disconnect(part.on_item, "item_scraped")
    signals.connect(part.on_item, item_scraped)
    assert signals.on_item_scraped is hooks
    signals.disconnect_all(item_scraped)
    assert hooks == []


def test_receivers_are_kept_alive() -> None:
    got: list[str] = []

    class Part:
        def on_start(self) -> None:
            got.append("method")

    signals = Signals()
    signals.connect(Part().on_start, engine_started)
    signals.connect(lambda: got.append("lambda"), engine_started)
    gc.collect()
    sent(signals, engine_started)
    assert got == ["method", "lambda"]


def test_a_receiver_that_fails_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []

    def broken() -> None:
        raise ZeroDivisionError("by zero")

    async def broken_later() -> None:
        await asyncio.sleep(0)
        raise KeyError("k")

    signals = Signals()
    for receiver in (broken, broken_later, lambda: got.append("called")):
        signals.connect(receiver, engine_started)
    sent(signals, engine_started)
    assert got == ["called"]
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(".")[-1] for text in texts] == [
        "broken, a receiver of engine_started, failed: ZeroDivisionError('by zero')",
        "broken_later, a receiver of engine_started, failed: KeyError('k')",
    ]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


def test_send_waits_for_async_receivers_which_run_concurrently() -> None:
    async def crawl() -> list[str]:
        got: list[str] = []
        both = asyncio.Barrier(2)

        async def receiver(word: str) -> None:
            await both.wait()  # would never end one after the other
            got.append(word)

        signals = Signals()
        signals.connect(lambda: receiver("a"), engine_started)
        signals.connect(lambda: receiver("b"), engine_started)
        async with asyncio.timeout(60):
            await signals.send(engine_started)
        return sorted(got)

    assert asyncio.run(crawl()) == ["a", "b"]


def test_a_receiver_may_disconnect_itself_while_it_is_called() -> None:
    got: list[str] = []
    signals = Signals()

    def once() -> None:
        got.append("once")
        signals.disconnect(once, engine_started)

    signals.connect(once, engine_started)
    signals.connect(lambda: got.append("always"), engine_started)
    sent(signals, engine_started)
    sent(signals, engine_started)
    assert got == ["once", "always", "always"]


@pytest.mark.parametrize("is_async", [False, True])
def test_close_spider_closes_with_its_reason_after_all_were_called(is_async: bool) -> None:
    got: list[str] = []
    signals = Signals(close=got.append)

    def close() -> None:
        raise CloseSpider("enough")

    async def close_later() -> None:
        close()

    signals.connect(close_later if is_async else close, item_scraped)
    signals.connect(lambda: got.append("called"), item_scraped)
    sent(signals, item_scraped, **ITEM)
    assert got == ["called", "enough"]


def raising(error: Exception) -> Any:
    def receiver() -> None:
        raise error

    return receiver


def test_dont_close_spider_answers_spider_idle_and_overrides_close_spider() -> None:
    closed: list[str] = []
    signals = Signals(close=closed.append)
    signals.connect(raising(CloseSpider("done")), spider_idle)
    sent(signals, spider_idle, spider="s")
    assert closed == ["done"]
    signals.connect(raising(DontCloseSpider()), spider_idle)
    with pytest.raises(DontCloseSpider):
        sent(signals, spider_idle, spider="s")
    assert closed == ["done"]


def test_stop_download_answers_bytes_received() -> None:
    signals = Signals()
    signals.connect(raising(StopDownload(fail=False)), bytes_received)
    with pytest.raises(StopDownload) as caught:
        signals.post(bytes_received, data=b"x", request=None, spider=None)
    assert caught.value.fail is False


def test_answers_of_other_signals_are_errors(caplog: pytest.LogCaptureFixture) -> None:
    signals = Signals()
    signals.connect(raising(DontCloseSpider()), spider_closed)
    signals.connect(raising(StopDownload()), spider_closed)
    sent(signals, spider_closed, spider="s", reason="finished")
    assert len(caplog.records) == 2


def test_post_does_not_wait_and_settle_does() -> None:
    async def crawl() -> list[str]:
        got: list[str] = []
        closed: list[str] = []

        async def slow(request: Any) -> None:
            await asyncio.sleep(0)
            got.append(request)
            raise CloseSpider("by a task")

        signals = Signals(close=closed.append)
        signals.connect(slow, request_scheduled)
        signals.post(request_scheduled, request="a", spider=None)
        assert got == []
        await signals.settle()
        await signals.settle()
        return got + closed

    assert asyncio.run(crawl()) == ["a", "by a task"]


def test_posted_tasks_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def crawl() -> int:
        count = 0
        free = asyncio.Event()

        async def slow() -> None:
            nonlocal count
            await free.wait()
            count += 1

        signals = Signals()
        signals.connect(slow, memusage_warning_reached)
        for _ in range(TASKS_MAX + 10):
            signals.post(memusage_warning_reached)
        free.set()
        await signals.settle()
        return count

    assert asyncio.run(crawl()) == TASKS_MAX
    assert [f"{TASKS_MAX} calls" in record.getMessage() for record in caplog.records] == [True]


def test_settle_cancels_slow_receivers(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(all_signals, "SETTLE_GRACE_S", 0.01)

    async def crawl() -> bool:
        cancelled = False

        async def forever() -> None:
            nonlocal cancelled
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True
                raise

        signals = Signals()
        signals.connect(forever, engine_started)
        signals.post(engine_started)
        await signals.settle()
        return cancelled

    assert asyncio.run(crawl())
    assert "cancelled 1 signal receivers" in caplog.text


def test_projects_may_define_signals() -> None:
    got: list[Any] = []
    login = Signal("login", ("user",))
    signals = Signals()
    signals.connect(lambda user, signal: got.append((user, signal)), login)
    sent(signals, login, user="u")
    signals.disconnect_all(login)
    sent(signals, login, user="v")
    assert got == [("u", login)]


def test_a_signal_without_all_its_arguments_fails() -> None:
    signals = Signals()
    signals.connect(lambda item: None, item_scraped)
    with pytest.raises(KeyError):
        sent(signals, item_scraped, spider="s")


COST = """
import timeit
from lycosa.crawl.events.signals import Signals
signals = Signals()
def nobody(): pass
def listens():
    if signals.on_item_scraped: pass
n = 200_000
print((min(timeit.repeat(listens, number=n, repeat=9)) - min(timeit.repeat(nobody, number=n, repeat=9))) / n * 1e9)
"""


def test_a_signal_without_receivers_costs_next_to_nothing() -> None:
    """Below 60 ns by design; the test allows a slow machine five times that."""
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300
