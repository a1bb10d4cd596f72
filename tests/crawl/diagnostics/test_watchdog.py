"""What blocks the loop is found and named (C1): real loops, really blocked until the warning is there."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lycosa.crawl.diagnostics import watchdog
from lycosa.crawl.diagnostics.watchdog import Watchdog

DEADLINE_S = 20.0
AFTER_S = 0.05


class Told(logging.Handler):
    """Keeps what the watchdog says, and lets a blocked test go on when it did."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")
        self.told.set()


@pytest.fixture
def told() -> Any:
    handler, log = Told(), logging.getLogger("lycosa.crawl.diagnostics.watchdog")
    before = log.level
    log.setLevel(logging.WARNING)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def watched(blocks: Callable[[], Any], run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run) -> Watchdog:
    dog = Watchdog(AFTER_S)

    async def crawl() -> None:
        async with dog:
            blocks()
            await asyncio.sleep(0)

    run(crawl())
    return dog


class Quotes:
    """A spider whose callbacks block until they are told of."""

    def __init__(self, told: Told) -> None:
        self.told = told.told

    def parse(self) -> None:
        assert self.told.wait(DEADLINE_S)

    def parse_outer(self) -> None:
        [self.parse() for _ in range(1)]

    def parse_asleep(self) -> None:
        until = time.monotonic() + DEADLINE_S
        while not self.told.is_set() and time.monotonic() < until:
            time.sleep(AFTER_S * 4)

    def parse_busy(self) -> None:
        until = time.monotonic() + DEADLINE_S
        while not self.told.is_set() and time.monotonic() < until:
            pass

    def parse_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=self.accept_late, args=(server.dup(),)).start()
            connection = socket.create_connection(server.getsockname())
            connection.makefile("rb").read(1)
            connection.close()

    def accept_late(self, server: socket.socket) -> None:
        with server, server.accept()[0]:
            self.told.wait(DEADLINE_S)


def line_of(function: Callable[..., Any], text: str) -> int:
    source = Path(__file__).read_text(encoding="utf-8").split("\n")
    start = function.__code__.co_firstlineno
    return next(number for number, line in enumerate(source[start:], start + 1) if text in line)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_innermost_call_of_the_user_is_named_and_its_end_told(told: Told, run: Any) -> None:
    dog = watched(Quotes(told).parse_outer, run)
    warning, over = told.lines
    line = line_of(Quotes.parse, "self.told.wait")
    place = rf"test_watchdog.py:{line} \(self.told.wait\)"
    assert re.fullmatch(
        rf"WARNING Quotes.parse has blocked the crawl for \d+\.\d s at {place}: run it elsewhere, with callback_mode = "
        "'thread'",
        warning,
    )
    assert re.fullmatch(rf"WARNING the crawl goes on: Quotes.parse blocked it for \d+\.\d s at {place}", over)
    assert AFTER_S <= dog.blocked_s < DEADLINE_S


def test_sleep_and_network_get_advice_of_their_own(told: Told) -> None:
    quotes = Quotes(told)
    watched(quotes.parse_asleep)
    assert "(time.sleep): use await asyncio.sleep(...)" in told.lines[0]
    told.lines.clear()
    told.told.clear()
    watched(quotes.parse_network)
    assert "(connection.makefile('rb').read): use await self.fetch(...), or callback_mode = 'thread'" in told.lines[0]


def test_a_loop_that_computes_is_a_place_without_a_call(told: Told) -> None:
    watched(Quotes(told).parse_busy)
    assert re.search(r"Quotes.parse_busy .* at test_watchdog.py:\d+(?: \(\S+\))?: run it elsewhere", told.lines[0])


def test_what_holds_the_interpreter_is_seen_when_it_ends(told: Told) -> None:
    def parse() -> None:
        re.match(r"(a+)+$", "a" * 24 + "b")

    began = time.monotonic()
    watched(parse)
    assert time.monotonic() - began > AFTER_S * 2, "too fast a machine: match longer"
    assert "parse has blocked the crawl" in told.lines[0]
    assert f"test_watchdog.py:{line_of(parse, 're.match')}" in told.lines[0]


def test_one_warning_a_place_and_a_bound_on_all(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "WARNINGS_MAX", 2)
    dog = Watchdog(AFTER_S)
    blocked = threading.Event()

    def seen(thread_id: int, still_s: float, tell: Any = dog._tell) -> Any:
        try:
            return tell(thread_id, still_s)
        finally:
            blocked.set()

    monkeypatch.setattr(dog, "_tell", seen)

    def first() -> None:
        assert blocked.wait(DEADLINE_S)

    def second() -> None:
        assert blocked.wait(DEADLINE_S)

    def third() -> None:
        assert blocked.wait(DEADLINE_S)

    async def crawl() -> None:
        async with dog:
            for each in (first, first, second, third):
                blocked.clear()
                each()
                await asyncio.sleep(AFTER_S)

    asyncio.run(crawl())
    names = [re.search(r"<locals>\.(\w+) has blocked", line) for line in told.lines]
    assert [name[1] for name in names if name] == ["first", "second"]


def test_a_loop_that_runs_is_left_alone(told: Told) -> None:
    async def crawl() -> None:
        async with Watchdog(AFTER_S):
            for _ in range(20):
                await asyncio.sleep(AFTER_S / 4)

    threads = set(threading.enumerate())
    asyncio.run(crawl())
    assert set(threading.enumerate()) <= threads
    assert [line for line in told.lines if "test_watchdog" in line] == []


def test_what_runs_the_loop_is_not_blamed(told: Told) -> None:
    """The stack below the loop is the user's program, which waits for the crawl rightly."""
    dog = Watchdog(AFTER_S)

    async def crawl() -> list[Any]:
        async with dog:
            assert len(dog._below) > 3
            return dog._stack(threading.get_ident())

    def program() -> list[Any]:
        return asyncio.run(crawl())

    names = [frame.f_code.co_name for frame in program()]
    assert "crawl" in names
    assert "program" not in names


def test_our_own_blocking_is_no_warning(told: Told) -> None:
    """Code of the standard library and of Lycosa, without a frame of the user's: told at INFO."""
    logging.getLogger("lycosa.crawl.diagnostics.watchdog").setLevel(logging.INFO)
    namespace: dict[str, Any] = {"told": told.told}
    source = f"def commit():\n    assert told.wait({DEADLINE_S})\n"
    exec(compile(source, str(Path(watchdog.__file__).parent / "committer.py"), "exec"), namespace)
    dog = Watchdog(AFTER_S)

    async def crawl() -> None:
        async with dog:
            asyncio.get_running_loop().call_soon(namespace["commit"])
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(crawl())
    assert re.match(r"INFO the event loop has not run for \d\.\d s: it is in threading.py:\d+", told.lines[0])
    assert len(told.lines) == 1


def test_a_debugger_is_no_offence(told: Told) -> None:
    frame = sys._getframe()
    assert watchdog.blamed([frame]) is not None
    source = "def interact(look):\n    return look()\n"
    namespace: dict[str, Any] = {"__name__": "pdb"}
    exec(source, namespace)
    assert namespace["interact"](lambda: watchdog.blamed(list(watchdog._outwards(sys._getframe())))) is None


def test_zero_switches_it_off() -> None:
    threads = set(threading.enumerate())

    async def crawl() -> set[threading.Thread]:
        async with Watchdog(0):
            return set(threading.enumerate())

    assert asyncio.run(crawl()) <= threads
