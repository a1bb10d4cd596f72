"""The watchdog names the call that blocks the event loop (C1): real loops, blocked until the warning is logged."""

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
AFTER_S = 0.3
"""Longer than a thread usually waits for the processor on a busy machine."""

SOON_S = 0.05


class WarningRecorder(logging.Handler):
    """Records the warnings of the watchdog, and lets a blocked test continue after one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.is_warned = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")
        self.is_warned.set()


@pytest.fixture
def warnings() -> Any:
    handler, log = WarningRecorder(), logging.getLogger("lycosa.crawl.diagnostics.watchdog")
    before = log.level
    log.setLevel(logging.WARNING)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def watch(
    block: Callable[[], Any],
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    after_s: float = AFTER_S,
) -> Watchdog:
    dog = Watchdog(after_s)

    async def crawl() -> None:
        async with dog:
            block()
            await asyncio.sleep(0)

    run(crawl())
    return dog


class Quotes:
    """A spider whose callbacks block until there is a warning."""

    def __init__(self, warnings: WarningRecorder) -> None:
        self.is_warned = warnings.is_warned

    def parse(self) -> None:
        assert self.is_warned.wait(DEADLINE_S)

    def parse_outer(self) -> None:
        [self.parse() for _ in range(1)]

    def parse_asleep(self) -> None:
        until = time.monotonic() + DEADLINE_S
        while not self.is_warned.is_set() and time.monotonic() < until:
            time.sleep(AFTER_S * 4)

    def parse_busy(self) -> None:
        until = time.monotonic() + DEADLINE_S
        while not self.is_warned.is_set() and time.monotonic() < until:
            pass

    def parse_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=self.accept_late, args=(server.dup(),)).start()
            connection = socket.create_connection(server.getsockname())
            connection.makefile("rb").read(1)
            connection.close()

    def accept_late(self, server: socket.socket) -> None:
        with server, server.accept()[0]:
            self.is_warned.wait(DEADLINE_S)


def line_of(function: Callable[..., Any], text: str) -> int:
    source = Path(__file__).read_text(encoding="utf-8").split("\n")
    start = function.__code__.co_firstlineno
    return next(number for number, line in enumerate(source[start:], start + 1) if text in line)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_innermost_call_of_user_code_is_named_and_its_end_logged(warnings: WarningRecorder, run: Any) -> None:
    dog = watch(Quotes(warnings).parse_outer, run)
    warning, end = warnings.lines
    line = line_of(Quotes.parse, "self.is_warned.wait")
    place = rf"test_watchdog.py:{line} \(self.is_warned.wait\)"
    assert re.fullmatch(
        rf"WARNING Quotes.parse has blocked the crawl for \d+\.\d s at {place}: "
        "run it in a thread, with callback_mode = 'thread'",
        warning,
    )
    assert re.fullmatch(rf"WARNING the crawl continues: Quotes.parse blocked it for \d+\.\d s at {place}", end)
    assert AFTER_S <= dog.blocked_s < DEADLINE_S


def test_sleep_and_network_calls_have_their_own_advice(warnings: WarningRecorder) -> None:
    quotes = Quotes(warnings)
    watch(quotes.parse_asleep)
    assert "(time.sleep): use await asyncio.sleep(...)" in warnings.lines[0]
    warnings.lines.clear()
    warnings.is_warned.clear()
    watch(quotes.parse_network)
    assert (
        "(connection.makefile('rb').read): use await self.fetch(...), or callback_mode = 'thread'" in warnings.lines[0]
    )


def test_a_computation_is_reported_without_a_call(warnings: WarningRecorder) -> None:
    watch(Quotes(warnings).parse_busy)
    assert re.search(
        r"Quotes.parse_busy .* at test_watchdog.py:\d+(?: \(\S+\))?: run it in a thread", warnings.lines[0]
    )


def test_a_call_that_holds_the_interpreter_is_noticed_when_it_ends(warnings: WarningRecorder) -> None:
    def parse() -> None:
        re.match(r"(a+)+$", "a" * 24 + "b")

    started_at = time.monotonic()
    watch(parse, after_s=SOON_S)
    assert time.monotonic() - started_at > SOON_S * 2, "the machine is too fast for this pattern: make the text longer"
    assert "parse has blocked the crawl" in warnings.lines[0]
    assert f"test_watchdog.py:{line_of(parse, 're.match')}" in warnings.lines[0]


def test_there_is_one_warning_per_line_and_a_limit_for_their_number(
    warnings: WarningRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "WARNINGS_MAX", 2)
    dog = Watchdog(AFTER_S)
    blocked = threading.Event()

    def warned(thread_id: int, blocked_s: float, warn: Any = dog._warn) -> Any:
        try:
            return warn(thread_id, blocked_s)
        finally:
            blocked.set()

    monkeypatch.setattr(dog, "_warn", warned)

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
    names = [re.search(r"<locals>\.(\w+) has blocked", line) for line in warnings.lines]
    assert [name[1] for name in names if name] == ["first", "second"]


def test_a_loop_that_is_not_blocked_causes_no_warning(warnings: WarningRecorder) -> None:
    async def crawl() -> None:
        async with Watchdog(AFTER_S):
            for _ in range(20):
                await asyncio.sleep(AFTER_S / 4)

    threads = set(threading.enumerate())
    asyncio.run(crawl())
    assert set(threading.enumerate()) <= threads
    assert [line for line in warnings.lines if "test_watchdog" in line] == []


def test_the_code_that_runs_the_loop_is_not_reported(warnings: WarningRecorder) -> None:
    """The stack below the loop is the user's program, which has to wait for the crawl."""
    dog = Watchdog(AFTER_S)

    async def crawl() -> list[Any]:
        async with dog:
            assert len(dog._loop_frames) > 3
            return dog._stack(threading.get_ident())

    def program() -> list[Any]:
        return asyncio.run(crawl())

    names = [frame.f_code.co_name for frame in program()]
    assert "crawl" in names
    assert "program" not in names


def test_blocking_without_user_code_is_no_warning(warnings: WarningRecorder) -> None:
    """If the stack has only code of the standard library and of Lycosa, and no user code, a line at INFO reports it."""
    logging.getLogger("lycosa.crawl.diagnostics.watchdog").setLevel(logging.INFO)
    namespace: dict[str, Any] = {"warnings": warnings.is_warned}
    source = f"def commit():\n    assert warnings.wait({DEADLINE_S})\n"
    exec(compile(source, str(Path(watchdog.__file__).parent / "committer.py"), "exec"), namespace)
    dog = Watchdog(AFTER_S)

    async def crawl() -> None:
        async with dog:
            asyncio.get_running_loop().call_soon(namespace["commit"])
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(crawl())
    assert re.match(r"INFO the event loop has been blocked for \d\.\d s in threading.py:\d+", warnings.lines[0])
    assert len(warnings.lines) == 1


def test_a_debugger_causes_no_warning(warnings: WarningRecorder) -> None:
    frame = sys._getframe()
    assert watchdog.blocking_location([frame]) is not None
    source = "def interact(look):\n    return look()\n"
    namespace: dict[str, Any] = {"__name__": "pdb"}
    exec(source, namespace)
    assert namespace["interact"](lambda: watchdog.blocking_location(list(watchdog._outwards(sys._getframe())))) is None


def test_zero_disables_the_watchdog() -> None:
    threads = set(threading.enumerate())

    async def crawl() -> set[threading.Thread]:
        async with Watchdog(0):
            return set(threading.enumerate())

    assert asyncio.run(crawl()) <= threads
