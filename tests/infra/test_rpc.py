"""Calls and messages between two processes: delivery, bounds, misbehaving and lost peers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import uvloop

from lycosa.core.errors import LycosaError, NewerState, NoProxy, StateError, StateLocked, StorageError, UsageError
from lycosa.infra.rpc import connection as rpc
from lycosa.infra.rpc.client import RpcClient
from lycosa.infra.rpc.connection import (
    Connection,
    Hello,
    Message,
    PeerLost,
    RpcCall,
    RpcCancel,
    RpcError,
    RpcLimits,
    RpcResult,
    encode,
    encode_frame,
    error_of,
)
from lycosa.infra.rpc.methods import Method, Service, methods_of, remote
from lycosa.infra.rpc.server import Address, RpcServer
from tests.servers.ports import ReservedPort

PROMPT_S = 10.0
VERSION = 7
LIMITS = RpcLimits(frame_max=100_000, clients_max=3, calls_max=5)

RunScenario = Callable[[Awaitable[None]], None]


class Counter(Protocol):
    """The port of the tests."""

    async def add(self, numbers: Iterable[int], *, twice: bool = False) -> int: ...

    async def text(self, part: str, times: int = 2) -> str: ...

    async def numbers(self, count: int) -> list[int]: ...

    async def wait(self) -> str: ...

    async def fail(self, kind: str) -> None: ...

    def local(self) -> int: ...


METHODS = methods_of(Counter)


class LocalCounter:
    """An implementation of the port. `wait` returns once `proceed` is set."""

    def __init__(self) -> None:
        self.proceed = asyncio.Event()
        self.waiting = self.ended = 0

    async def add(self, numbers: Iterable[int], *, twice: bool = False) -> int:
        return sum(numbers) * (2 if twice else 1)

    async def text(self, part: str, times: int = 2) -> str:
        return part * times

    async def numbers(self, count: int) -> list[int]:
        return list(range(count))

    async def wait(self) -> str:
        self.waiting += 1
        try:
            await self.proceed.wait()
            self.ended += 1
            return "waited"
        finally:
            self.waiting -= 1

    async def fail(self, kind: str) -> None:
        raise error_of(kind, "the message") if kind else ZeroDivisionError


class RemoteCounter(RpcClient):
    """A client of the port."""

    def __init__(self, address: Address, limits: RpcLimits = LIMITS, timeout_s: float = PROMPT_S) -> None:
        super().__init__(address, VERSION, METHODS, limits, lambda: "4712")
        self.timeout_s = timeout_s
        self.abandoned: list[tuple[str, Any]] = []

    add = remote(Counter.add)
    text = remote(Counter.text)
    numbers = remote(Counter.numbers)
    wait = remote(Counter.wait)
    fail = remote(Counter.fail)

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.call_within(self.timeout_s, name, args, kwargs)

    def on_abandoned(self, name: str, result: Any) -> None:
        self.abandoned.append((name, result))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run_scenario(request: pytest.FixtureRequest) -> RunScenario:
    """Return a function that runs a scenario and checks that no error was missed."""

    def run_(scenario: Awaitable[None]) -> None:
        errors: list[dict[str, Any]] = []

        async def bounded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            async with asyncio.timeout(30):
                await scenario

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())
        assert errors == []

    return run_


class CounterServer:
    """A server of one counter."""

    def __init__(self, address: Address, make_service: Callable[[Any], Service] | None = None, **options: Any) -> None:
        self.counter = LocalCounter()
        make = make_service or (lambda counter: Service(METHODS, counter))
        limits = options.pop("limits", LIMITS)
        options = {"purpose": "tests", "refusal": "too many", **options}
        self.server = RpcServer(address, VERSION, lambda: make(self.counter), limits, **options)


@asynccontextmanager
async def counter_server(address: Address, *args: Any, **options: Any) -> AsyncIterator[CounterServer]:
    started = CounterServer(address, *args, **options)
    await started.server.start()
    try:
        yield started
    finally:
        await started.server.close()


@asynccontextmanager
async def client(address: Address, **options: Any) -> AsyncIterator[RemoteCounter]:
    connected = RemoteCounter(address, **options)
    await connected.connect(PROMPT_S)
    try:
        yield connected
    finally:
        connected.connection.abort()


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PROMPT_S):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.002)


async def connect_raw(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect without a client, and read the greeting."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    hello = msgspec.msgpack.decode(await read_frame(reader), type=Hello)
    assert hello == Hello(VERSION, os.getpid())
    return reader, writer


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PROMPT_S):
        (size,) = rpc.LENGTH.unpack(await reader.readexactly(rpc.LENGTH.size))
        return await reader.readexactly(size)


async def read_response(reader: asyncio.StreamReader) -> RpcResult | RpcError:
    found: RpcResult | RpcError = msgspec.msgpack.decode(await read_frame(reader), type=RpcResult | RpcError)
    return found


def call(number: int, method: str, *arguments: object) -> bytes:
    return encode_frame(RpcCall(number, method, msgspec.Raw(encode(arguments))))


# --------------------------------------------------------------------------------------------------------------- calls


def test_calls_return_the_result_of_the_method(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            assert await remote_counter.add({1, 2}) == 3
            assert await remote_counter.add([1, 2], twice=True) == 6
            assert (
                await remote_counter.text("a"),
                await remote_counter.text("a", 3),
                await remote_counter.text(times=1, part="b"),
            ) == (
                "aa",
                "aaa",
                "b",
            )
            assert remote_counter.pid == os.getpid()

    run_scenario(scenario())


def test_calls_over_tcp(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        with ReservedPort() as port:
            address = ("127.0.0.1", port.number)
            async with counter_server(address), client(address) as remote_counter:
                assert await remote_counter.text("a") == "aa"

    run_scenario(scenario())


def test_responses_arrive_in_any_order(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server, client(tmp_path / "s") as remote_counter:
            waiting = [asyncio.create_task(remote_counter.wait()) for _ in range(3)]
            assert await remote_counter.text("a") == "aa"
            server.counter.proceed.set()
            assert await asyncio.gather(*waiting) == ["waited"] * 3

    run_scenario(scenario())


def test_a_long_list_is_returned_in_parts(
    tmp_path: Path, run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "LIST_PART", 7)

    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            for count in (0, 1, 7, 8, 50):
                assert await remote_counter.numbers(count) == list(range(count))
            reader, writer = await connect_raw(tmp_path / "s")
            writer.write(call(1, "numbers", 20))
            parts = [await read_response(reader) for _ in range(3)]
            assert [part.more for part in parts if isinstance(part, RpcResult)] == [True, True, False]
            writer.close()

    run_scenario(scenario())


def test_a_remote_method_has_the_signature_of_its_port() -> None:
    for name in METHODS:
        assert inspect.signature(getattr(RemoteCounter, name)) == inspect.signature(getattr(Counter, name))
    assert "local" not in METHODS


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", [UsageError, StorageError, NoProxy, LycosaError])
def test_an_error_of_the_method_is_raised_by_the_call(
    tmp_path: Path, run_scenario: RunScenario, kind: type[LycosaError]
) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            with pytest.raises(LycosaError, match="the message") as raised:
                await remote_counter.fail(kind.__name__)
            assert type(raised.value) is kind
            assert await remote_counter.text("a") == "aa"

    run_scenario(scenario())


def test_an_error_of_an_unknown_class_becomes_a_state_error() -> None:
    for kind in ("SystemExit", "__doc__", "annotations", "Nonsense", "os", "", "HttpError"):
        assert type(error_of(kind, "what")) is StateError


def test_a_bug_in_a_method_is_logged_and_the_connection_stays_open(
    tmp_path: Path, run_scenario: RunScenario, caplog
) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            with pytest.raises(StateError, match="see the log of the process that served it"):
                await remote_counter.fail("")
            assert await remote_counter.text("a") == "aa"

    run_scenario(scenario())
    assert "a call of another process failed (fail); this process continues" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_an_invalid_call_is_refused_in_one_line_and_the_connection_stays_open(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    calls = [
        ("close", ()), ("__init__", ()), ("local", ()), ("", ()), ("text", ()), ("text", (1, 2)),
        ("text", ("a", "many")),
        ("add", ([1.5], False)), ("numbers", (1, 2)),
    ]  # fmt: skip

    async def scenario() -> None:
        async with counter_server(tmp_path / "s"):
            reader, writer = await connect_raw(tmp_path / "s")
            for number, (method, arguments) in enumerate(calls):
                writer.write(call(number, method, *arguments))
                refused = await read_response(reader)
                assert isinstance(refused, RpcError)
                assert (refused.number, refused.kind) == (number, "UsageError")
                assert "\n" not in refused.text
            writer.write(call(99, "text", "a", 2))
            assert isinstance(await read_response(reader), RpcResult)
            writer.close()

    run_scenario(scenario())


# -------------------------------------------------------------------------------------------------------- cancellation


def test_a_cancelled_call_ends_on_the_server(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server, client(tmp_path / "s") as remote_counter:
            waiting = asyncio.create_task(remote_counter.wait())
            await wait_until(lambda: server.counter.waiting)
            waiting.cancel()
            await wait_until(lambda: not server.counter.waiting and not remote_counter.connection.pending)
            assert waiting.cancelled()
            assert (server.counter.ended, remote_counter.abandoned) == (0, [])

    run_scenario(scenario())


def test_a_call_that_is_cancelled_before_it_starts_gets_a_response(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server:
            reader, writer = await connect_raw(tmp_path / "s")
            writer.write(call(1, "wait") + encode_frame(RpcCancel(1)))
            assert await read_response(reader) == RpcError(1, "LycosaError", "the call was cancelled")
            assert server.counter.waiting == 0
            writer.close()

    run_scenario(scenario())


def test_the_result_of_a_call_that_cannot_be_cancelled_is_passed_to_on_abandoned(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    class Uncancellable(Service):
        cancels = False

    async def scenario() -> None:
        async with (
            counter_server(tmp_path / "s", lambda counter: Uncancellable(METHODS, counter)) as server,
            client(tmp_path / "s") as remote_counter,
        ):
            waiting = asyncio.create_task(remote_counter.wait())
            await wait_until(lambda: server.counter.waiting)
            waiting.cancel()
            await asyncio.wait([waiting])
            server.counter.proceed.set()
            await wait_until(lambda: remote_counter.abandoned == [("wait", "waited")])
            assert remote_counter.connection.pending == {}

    run_scenario(scenario())


def test_a_result_that_arrives_just_before_the_cancellation_is_passed_to_on_abandoned(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            task = asyncio.create_task(remote_counter.text("a"))
            await asyncio.sleep(0)
            handlers: Any = remote_counter.connection._handlers
            take = handlers[RpcResult]
            handlers[RpcResult] = lambda result: (take(result), task.cancel())
            await asyncio.wait([task])
            assert (task.cancelled(), remote_counter.abandoned) == (True, [("text", "aa")])

    run_scenario(scenario())


def test_a_timeout_names_the_process(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server, client(tmp_path / "s", timeout_s=0.05) as remote_counter:
            silent = rf"process {os.getpid()} has not answered for 0\.05 s: it hangs or was stopped; kill -CONT"
            with pytest.raises(StateLocked, match=silent):
                await remote_counter.wait()
            await wait_until(lambda: not server.counter.waiting)

    run_scenario(scenario())


# ------------------------------------------------------------------------------------------------------- hostile bytes

GARBAGE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "too long": struct.pack(">I", LIMITS.frame_max + 1) + b"x",
    "4 GiB": b"\xff\xff\xff\xff",
    "half a length": b"\x00\x00",
    "half a frame": struct.pack(">I", 100) + b"abc",
    "empty frame": struct.pack(">I", 0),
    "not msgpack": struct.pack(">I", 3) + b"\xc1\xc1\xc1",
    "no message": struct.pack(">I", 4) + encode([1, 2, 3]),
    "a greeting": encode_frame(Hello(1, 2)),
    "an answer to no call": encode_frame(RpcResult(1, msgspec.Raw(b"\x01"))),
    "an error of no call": encode_frame(RpcError(1, "UsageError", "x")),
    "two calls of one number": call(1, "wait") + call(1, "wait"),
    "deep": struct.pack(">I", 50_000) + b"\x91" * 50_000,
    "deep arguments": struct.pack(">I", 50_013) + b"\x94\xa7RpcCall\x01\xa1m" + b"\x91" * 50_001,
    "a list of 4 G": struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_only_its_own_connection(tmp_path: Path, run_scenario: RunScenario, data: bytes, caplog) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server, client(tmp_path / "s") as good:
            reader, writer = await connect_raw(tmp_path / "s")
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(PROMPT_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
            assert await good.text("a") == "aa"
            await wait_until(lambda: len(server.server.clients) == 1)

    run_scenario(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -------------------------------------------------------------------------------------------------------------- bounds


def test_concurrent_calls_of_a_client_are_bounded(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s") as server, client(tmp_path / "s") as remote_counter:
            waiting = [asyncio.create_task(remote_counter.wait()) for _ in range(LIMITS.calls_max)]
            await wait_until(lambda: server.counter.waiting == LIMITS.calls_max)
            with pytest.raises(UsageError, match="can make 5 concurrent calls: wait until some have ended"):
                await remote_counter.text("a")
            server.counter.proceed.set()
            await asyncio.gather(*waiting)
            assert await remote_counter.text("a") == "aa"

    run_scenario(scenario())


def test_the_number_of_clients_is_bounded(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(tmp_path / "s")) for _ in range(LIMITS.clients_max)]
            with pytest.raises(StateLocked, match="too many"):
                await stack.enter_async_context(client(tmp_path / "s"))
            clients[0].connection.abort()
            remote_counter = RemoteCounter(tmp_path / "s")
            while True:  # until the server has noticed the lost connection
                with suppress(StateLocked):
                    await remote_counter.connect(PROMPT_S)
                    break
                remote_counter = RemoteCounter(tmp_path / "s")
            assert await remote_counter.text("a") == "aa"
            remote_counter.connection.abort()

    run_scenario(scenario())


def test_the_client_that_is_idle_longest_is_disconnected_for_a_new_one(
    tmp_path: Path, run_scenario: RunScenario
) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s", evict_idle=True) as server, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(tmp_path / "s")) for _ in range(LIMITS.clients_max)]
            waiting = asyncio.create_task(clients[0].wait())
            await wait_until(lambda: server.counter.waiting)
            await clients[1].text("a")
            more = await stack.enter_async_context(client(tmp_path / "s"))  # replaces the third one
            assert [await each.text("a") for each in (clients[1], more)] == ["aa"] * 2
            with pytest.raises(StateError, match="has ended"):
                await clients[2].text("a")
            others_waiting = [asyncio.create_task(each.wait()) for each in (clients[1], more)]
            await wait_until(lambda: server.counter.waiting == 3)
            with pytest.raises(StateLocked, match="too many"):
                await stack.enter_async_context(client(tmp_path / "s"))
            server.counter.proceed.set()
            await asyncio.gather(waiting, *others_waiting)

    run_scenario(scenario())


SLOW = {
    "bytes": LIMITS._replace(unread_max=300_000),
    "time": LIMITS._replace(write_timeout_s=0.1),
}


@pytest.mark.parametrize("limits", SLOW.values(), ids=SLOW.keys())
def test_a_client_that_does_not_read_is_disconnected(
    tmp_path: Path, run_scenario: RunScenario, limits: RpcLimits
) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s", limits=limits) as server, client(tmp_path / "s") as good:
            reader, writer = await connect_raw(tmp_path / "s")
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            number = 0
            async with asyncio.timeout(PROMPT_S):
                while len(server.server.clients) > 1:
                    number += 1
                    if not writer.is_closing():
                        writer.write(call(number, "text", "x" * 1000, 90))
                    assert await good.text("a") == "aa"
            writer.transport.abort()

    run_scenario(scenario())


def test_a_message_that_is_too_large_is_an_error_of_its_call(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with counter_server(tmp_path / "s"), client(tmp_path / "s") as remote_counter:
            with pytest.raises(StorageError, match=r"one answer has 100,0\d\d bytes, more than fit into a frame"):
                await remote_counter.text("x" * 1000, 100)
            with pytest.raises(UsageError, match=r"one call has 100,0\d\d bytes, more than fit into a frame"):
                await remote_counter.text("x" * 100_000)
            assert await remote_counter.text("a") == "aa"

    run_scenario(scenario())


# -------------------------------------------------------------------------------------------------- misbehaving servers

GREETING = encode_frame(Hello(VERSION, 4711))
OLDER = encode({"type": "hello", "version": 2, "pid": 5})
MISBEHAVING = {
    "silent": (b"", False, StateLocked, "process 4712 has not answered for 0.1 s: it hangs or was stopped"),
    "silent later": (GREETING, False, StateLocked, "process 4711 has not answered for 0.1 s"),
    "gone": (b"", True, StateError, "process 4712 has ended"),
    "gone later": (GREETING, True, StateError, "process 4711 has ended"),
    "gone in a frame": (GREETING + b"\0\0\0\x09abc", True, StateError, "process 4711 has ended"),
    "newer": (encode_frame(Hello(99, 4711)), False, NewerState, "process 4711 runs another version of Lycosa"),
    "older": (struct.pack(">I", len(OLDER)) + OLDER, False, NewerState, "process 5 runs another version of Lycosa"),
    "refusal": (encode_frame(Hello(VERSION, 1, "StateLocked", "full")), False, StateLocked, "full"),
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, StateLocked, "does not speak the protocol of Lycosa"),
    "not msgpack": (b"\0\0\0\x01\xc1", False, StateLocked, "does not speak the protocol of Lycosa"),
    "no greeting": (encode_frame(RpcResult(1, msgspec.Raw(b"\1"))), False, StateLocked, "does not speak the protocol"),
    "two greetings": (GREETING * 2, False, StateLocked, "does not speak the protocol of Lycosa"),
    "another type": (GREETING + encode_frame(RpcResult(1, msgspec.Raw(b"\1"))), False, StateLocked, "does not speak"),
}


@pytest.mark.parametrize(("data", "end", "kind", "line"), MISBEHAVING.values(), ids=MISBEHAVING.keys())
def test_a_misbehaving_server_is_described_in_one_line(
    tmp_path: Path, run_scenario: RunScenario, data: bytes, end: bool, kind: type, line: str
) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if not end:
            with suppress(OSError):
                await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    async def scenario() -> None:
        is_silent = "has not answered" in line
        remote_counter = RemoteCounter(tmp_path / "s", timeout_s=0.1 if is_silent else PROMPT_S)
        async with await asyncio.start_unix_server(misbehave, str(tmp_path / "s")):
            try:
                await remote_counter.connect(0.1 if is_silent and not data else PROMPT_S)
                await remote_counter.text("a")
            finally:
                remote_counter.connection.abort()
                await ended.wait()

    with pytest.raises(StateError) as raised:
        run_scenario(scenario())
    assert type(raised.value) is kind
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_connecting_where_no_server_listens_is_an_os_error(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            await RemoteCounter(tmp_path / "s").connect(PROMPT_S)

    run_scenario(scenario())


# ---------------------------------------------------------------------------------------------------------- lost peers


def test_calls_fail_when_their_server_ends(tmp_path: Path, run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        async with client_of_closed_server(tmp_path / "s") as remote_counter:
            with pytest.raises(StateError, match=f"process {os.getpid()} has ended"):
                await remote_counter.text("a")

    @asynccontextmanager
    async def client_of_closed_server(path: Path) -> AsyncIterator[RemoteCounter]:
        async with AsyncExitStack() as stack:
            async with counter_server(path) as server:
                remote_counter = await stack.enter_async_context(client(path))
                waiting = asyncio.create_task(remote_counter.wait())
                await wait_until(lambda: server.counter.waiting)
            with pytest.raises(StateError, match="has ended"):
                await waiting
            assert server.counter.waiting == 0, "closing the server cancels its calls"
            yield remote_counter

    run_scenario(scenario())


def test_closing_waits_for_calls_that_cannot_be_cancelled(tmp_path: Path, run_scenario: RunScenario) -> None:
    class Uncancellable(Service):
        cancels = False

    async def scenario() -> None:
        async with (
            counter_server(tmp_path / "s", lambda counter: Uncancellable(METHODS, counter)) as server,
            client(tmp_path / "s") as remote_counter,
        ):
            waiting = asyncio.create_task(remote_counter.wait())
            await wait_until(lambda: server.counter.waiting)
            remote_counter.connection.abort()
            await wait_until(lambda: not server.server.clients)
            closing = asyncio.create_task(server.server.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
            server.counter.proceed.set()
            await closing
            assert server.counter.ended == 1
            await asyncio.gather(waiting, return_exceptions=True)

    run_scenario(scenario())


def test_the_result_for_a_lost_client_is_reported_to_the_service(tmp_path: Path, run_scenario: RunScenario) -> None:
    undelivered_results: list[tuple[str, Any]] = []

    class RecordingService(Service):
        cancels = False

        async def undelivered(self, method: Method, result: Any) -> None:
            undelivered_results.append((method.name, result))

    async def scenario() -> None:
        async with (
            counter_server(tmp_path / "s", lambda counter: RecordingService(METHODS, counter)) as server,
            client(tmp_path / "s") as remote_counter,
        ):
            waiting = asyncio.create_task(remote_counter.wait())
            await wait_until(lambda: server.counter.waiting)
            remote_counter.connection.abort()
            await asyncio.gather(waiting, return_exceptions=True)
            await wait_until(lambda: not server.server.clients)
            server.counter.proceed.set()
            await wait_until(lambda: undelivered_results == [("wait", "waited")])

    run_scenario(scenario())


@pytest.mark.parametrize("iterations", range(8))
def test_a_client_that_connects_while_the_server_closes_is_disconnected(tmp_path: Path, iterations: int) -> None:
    """A call of this client might reach the next owner of the path.

    This runs on uvloop only: asyncio forgets a connection that it accepts while the server is closed.
    """

    async def scenario() -> None:
        server = CounterServer(tmp_path / "s")
        await server.server.start()
        client_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        client_socket.connect(str(tmp_path / "s"))
        for _ in range(iterations):
            await asyncio.sleep(0)
        await server.server.close()
        reader, writer = await asyncio.open_unix_connection(sock=client_socket)
        async with asyncio.timeout(PROMPT_S):
            with suppress(OSError):
                await reader.read()  # at most a greeting
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_a_server_does_not_listen_after_a_cancelled_start_and_close(tmp_path: Path, run_scenario: RunScenario) -> None:
    def listeners() -> list[str]:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [line for line in lines if line.endswith(f" {tmp_path / 's'}") and line.split()[5] == "01"]

    async def scenario() -> None:
        for iterations in range(4):
            server = CounterServer(tmp_path / "s")
            starting = asyncio.create_task(server.server.start())
            for _ in range(iterations):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await server.server.close()
            assert not listeners()

    run_scenario(scenario())


def test_a_path_that_cannot_be_a_socket_is_a_warning(tmp_path: Path, run_scenario: RunScenario, caplog) -> None:
    (tmp_path / "s").mkdir()

    async def scenario() -> None:
        async with counter_server(tmp_path / "s"):
            await asyncio.sleep(0)

    run_scenario(scenario())
    assert f"{tmp_path / 's'}: no socket for tests: " in caplog.text
    assert (tmp_path / "s").is_dir()


# ------------------------------------------------------------------------------------------------------------ messages


class Note(Message):
    """A message that the peer handles."""

    text: str


class Other(Message):
    """A message that the peer does not handle."""

    number: int


class Peer:
    """One end of a connection, and the notes it received."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.lost: list[Exception | None] = []
        self.connection = Connection(LIMITS, on_disconnect=self.lost.append)
        self.connection.handle({Note: self.notes.append})


async def connect_peer() -> tuple[Peer, socket.socket]:
    our_socket, their_socket = socket.socketpair()
    peer = Peer()
    await asyncio.get_running_loop().create_connection(lambda: peer.connection, sock=our_socket)
    their_socket.setblocking(False)
    return peer, their_socket


def test_messages_arrive_complete_from_pieces_of_any_size(run_scenario: RunScenario) -> None:
    notes = [Note("a"), Note(""), Note("x" * 5000), Note("é")]

    async def scenario() -> None:
        peer, other = await connect_peer()
        data = b"".join(map(encode_frame, notes))
        for start in range(0, len(data), 7):
            other.send(data[start : start + 7])
            await asyncio.sleep(0)
        await wait_until(lambda: len(peer.notes) == len(notes))
        assert peer.notes == notes
        other.close()
        await wait_until(lambda: peer.lost == [None])

    run_scenario(scenario())


def test_messages_of_one_loop_iteration_are_sent_in_one_write(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        writes: list[bytes] = []
        peer, other = await connect_peer()
        transport: Any = peer.connection._transport
        peer.connection._transport = Recorder(transport, writes)  # type: ignore[assignment]
        for text in "abc":
            peer.connection.send(Note(text))
        assert writes == []
        await asyncio.sleep(0)
        peer.connection.send(Note("d"))
        peer.connection.flush()
        assert writes == [b"".join(encode_frame(Note(text)) for text in "abc"), encode_frame(Note("d"))]
        transport.abort()
        other.close()

    run_scenario(scenario())


class Recorder:
    """A transport that records what is written to it."""

    def __init__(self, transport: Any, writes: list[bytes]) -> None:
        self._transport = transport
        self.write = writes.append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_messages_sent_before_the_connection_is_made_are_kept(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        sender_socket, receiver_socket = socket.socketpair()
        sender, receiver = Peer(), Peer()
        sender.connection.send(Note("early"))
        await asyncio.sleep(0)
        for peer, sock in ((sender, sender_socket), (receiver, receiver_socket)):
            await asyncio.get_running_loop().create_connection(partial(getattr, peer, "connection"), sock=sock)
        await wait_until(lambda: receiver.notes == [Note("early")])
        sender.connection.close()
        await wait_until(lambda: receiver.lost == sender.lost == [None])
        sender.connection.send(Note("late"))  # has no effect
        with pytest.raises(PeerLost):
            sender.connection.request("text", ())

    run_scenario(scenario())


@pytest.mark.parametrize("message", [Other(1), RpcCall(1, "text", msgspec.Raw(b"\x90"))], ids=["message", "call"])
def test_a_message_without_a_handler_ends_the_connection(run_scenario: RunScenario, message: Message) -> None:
    async def scenario() -> None:
        peer, other = await connect_peer()
        other.send(encode_frame(message))
        await wait_until(lambda: peer.lost)
        assert (peer.notes, type(peer.lost[0])) == ([], msgspec.ValidationError)
        other.close()

    run_scenario(scenario())


def test_a_message_that_cannot_be_encoded_is_an_error_and_the_connection_stays_open(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        peer, other = await connect_peer()
        for text in ("x" * 200_000, "half \udc80"):
            with pytest.raises(ValueError):
                peer.connection.send(Note(text))
        peer.connection.send(Note("a"))
        assert await asyncio.get_running_loop().sock_recv(other, 1000) == encode_frame(Note("a"))
        peer.connection.abort()
        other.close()

    run_scenario(scenario())
