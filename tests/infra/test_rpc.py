"""Calls and messages between two processes: what arrives, what is bounded, and what a bad or lost peer cannot do."""

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

PROMPT_S = 10.0
VERSION = 7
LIMITS = RpcLimits(frame_max=100_000, clients_max=3, calls_max=5)

Play = Callable[[Awaitable[None]], None]


class Counter(Protocol):
    """A port."""

    async def add(self, numbers: Iterable[int], *, twice: bool = False) -> int: ...

    async def text(self, part: str, times: int = 2) -> str: ...

    async def numbers(self, count: int) -> list[int]: ...

    async def wait(self) -> str: ...

    async def fail(self, kind: str) -> None: ...

    def local(self) -> int: ...


METHODS = methods_of(Counter)


class LocalCounter:
    """An implementation. `wait` returns when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
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
            await self.go_on.wait()
            self.ended += 1
            return "waited"
        finally:
            self.waiting -= 1

    async def fail(self, kind: str) -> None:
        raise error_of(kind, "the message") if kind else ZeroDivisionError


class RemoteCounter(RpcClient):
    """The port at the other end."""

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
def play(request: pytest.FixtureRequest) -> Play:
    """Run a story, and see that nothing went wrong that it did not notice."""

    def played(story: Awaitable[None]) -> None:
        wrong: list[dict[str, Any]] = []

        async def bounded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
            async with asyncio.timeout(30):
                await story

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())
        assert wrong == []

    return played


class Owner:
    """A server of one counter."""

    def __init__(self, address: Address, make_service: Callable[[Any], Service] | None = None, **options: Any) -> None:
        self.counter = LocalCounter()
        make = make_service or (lambda counter: Service(METHODS, counter))
        limits = options.pop("limits", LIMITS)
        options = {"purpose": "tests", "refusal": "too many", **options}
        self.server = RpcServer(address, VERSION, lambda: make(self.counter), limits, **options)


@asynccontextmanager
async def owner(address: Address, *args: Any, **options: Any) -> AsyncIterator[Owner]:
    one = Owner(address, *args, **options)
    await one.server.start()
    try:
        yield one
    finally:
        await one.server.close()


@asynccontextmanager
async def client(address: Address, **options: Any) -> AsyncIterator[RemoteCounter]:
    one = RemoteCounter(address, **options)
    await one.connect(PROMPT_S)
    try:
        yield one
    finally:
        one.connection.abort()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PROMPT_S):
        while not is_so():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.002)


async def raw(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect without a client. The greeting is read."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    hello = msgspec.msgpack.decode(await read_frame(reader), type=Hello)
    assert hello == Hello(VERSION, os.getpid())
    return reader, writer


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PROMPT_S):
        (size,) = rpc.LENGTH.unpack(await reader.readexactly(rpc.LENGTH.size))
        return await reader.readexactly(size)


async def answer(reader: asyncio.StreamReader) -> RpcResult | RpcError:
    found: RpcResult | RpcError = msgspec.msgpack.decode(await read_frame(reader), type=RpcResult | RpcError)
    return found


def call(number: int, method: str, *arguments: object) -> bytes:
    return encode_frame(RpcCall(number, method, msgspec.Raw(encode(arguments))))


# --------------------------------------------------------------------------------------------------------------- calls


def test_calls_return_what_the_method_returns_with_any_kind_of_argument(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            assert await one.add({1, 2}) == 3
            assert await one.add([1, 2], twice=True) == 6
            assert (await one.text("a"), await one.text("a", 3), await one.text(times=1, part="b")) == (
                "aa",
                "aaa",
                "b",
            )
            assert one.pid == os.getpid()

    play(story())


def test_calls_are_made_over_tcp_as_well(play: Play) -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = unused.getsockname()
        async with owner(address), client(address) as one:
            assert await one.text("a") == "aa"

    play(story())


def test_calls_are_answered_in_any_order(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its, client(tmp_path / "s") as one:
            waits = [asyncio.create_task(one.wait()) for _ in range(3)]
            assert await one.text("a") == "aa"
            its.counter.go_on.set()
            assert await asyncio.gather(*waits) == ["waited"] * 3

    play(story())


def test_a_long_list_comes_in_parts(tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "LIST_PART", 7)

    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            for count in (0, 1, 7, 8, 50):
                assert await one.numbers(count) == list(range(count))
            reader, writer = await raw(tmp_path / "s")
            writer.write(call(1, "numbers", 20))
            parts = [await answer(reader) for _ in range(3)]
            assert [part.more for part in parts if isinstance(part, RpcResult)] == [True, True, False]
            writer.close()

    play(story())


def test_a_remote_method_has_the_signature_of_its_port() -> None:
    for name in METHODS:
        assert inspect.signature(getattr(RemoteCounter, name)) == inspect.signature(getattr(Counter, name))
    assert "local" not in METHODS


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", [UsageError, StorageError, NoProxy, LycosaError])
def test_an_error_of_the_method_arrives_as_itself(tmp_path: Path, play: Play, kind: type[LycosaError]) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            with pytest.raises(LycosaError, match="the message") as raised:
                await one.fail(kind.__name__)
            assert type(raised.value) is kind
            assert await one.text("a") == "aa"

    play(story())


def test_an_error_of_an_unknown_class_is_one_of_the_state() -> None:
    for kind in ("SystemExit", "__doc__", "annotations", "Nonsense", "os", "", "HttpError"):
        assert type(error_of(kind, "what")) is StateError


def test_a_bug_in_a_method_is_logged_and_the_connection_goes_on(tmp_path: Path, play: Play, caplog) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            with pytest.raises(StateError, match="the log of the owner says why"):
                await one.fail("")
            assert await one.text("a") == "aa"

    play(story())
    assert "a call of another process failed (fail); this one goes on" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_call_that_is_none_is_refused_in_a_line_and_the_connection_goes_on(tmp_path: Path, play: Play) -> None:
    calls = [
        ("close", ()), ("__init__", ()), ("local", ()), ("", ()), ("text", ()), ("text", (1, 2)),
        ("text", ("a", "many")),
        ("add", ([1.5], False)), ("numbers", (1, 2)),
    ]  # fmt: skip

    async def story() -> None:
        async with owner(tmp_path / "s"):
            reader, writer = await raw(tmp_path / "s")
            for number, (method, arguments) in enumerate(calls):
                writer.write(call(number, method, *arguments))
                refused = await answer(reader)
                assert isinstance(refused, RpcError)
                assert (refused.number, refused.kind) == (number, "UsageError")
                assert "\n" not in refused.text
            writer.write(call(99, "text", "a", 2))
            assert isinstance(await answer(reader), RpcResult)
            writer.close()

    play(story())


# -------------------------------------------------------------------------------------------------------- cancellation


def test_a_call_that_is_cancelled_ends_at_the_server(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its, client(tmp_path / "s") as one:
            waiting = asyncio.create_task(one.wait())
            await until(lambda: its.counter.waiting)
            waiting.cancel()
            await until(lambda: not its.counter.waiting and not one.connection.pending)
            assert waiting.cancelled()
            assert (its.counter.ended, one.abandoned) == (0, [])

    play(story())


def test_a_call_that_is_cancelled_before_it_begins_is_answered(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its:
            reader, writer = await raw(tmp_path / "s")
            writer.write(call(1, "wait") + encode_frame(RpcCancel(1)))
            assert await answer(reader) == RpcError(1, "LycosaError", "the call was cancelled")
            assert its.counter.waiting == 0
            writer.close()

    play(story())


def test_a_result_that_nobody_waits_for_is_handed_over(tmp_path: Path, play: Play) -> None:
    class Stubborn(Service):
        cancels = False

    async def story() -> None:
        async with owner(tmp_path / "s", lambda it: Stubborn(METHODS, it)) as its, client(tmp_path / "s") as one:
            waiting = asyncio.create_task(one.wait())
            await until(lambda: its.counter.waiting)
            waiting.cancel()
            await asyncio.wait([waiting])
            its.counter.go_on.set()
            await until(lambda: one.abandoned == [("wait", "waited")])
            assert one.connection.pending == {}

    play(story())


def test_a_result_that_comes_just_before_the_cancellation_is_handed_over(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            texting = asyncio.create_task(one.text("a"))
            await asyncio.sleep(0)
            handlers: Any = one.connection._handlers
            take = handlers[RpcResult]
            handlers[RpcResult] = lambda result: (take(result), texting.cancel())
            await asyncio.wait([texting])
            assert (texting.cancelled(), one.abandoned) == (True, [("text", "aa")])

    play(story())


def test_a_call_that_takes_too_long_names_the_process(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its, client(tmp_path / "s", timeout_s=0.05) as one:
            silent = rf"process {os.getpid()} has not answered for 0\.05 s: it hangs or was stopped; kill -CONT"
            with pytest.raises(StateLocked, match=silent):
                await one.wait()
            await until(lambda: not its.counter.waiting)

    play(story())


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
def test_garbage_ends_its_own_connection_and_nothing_else(tmp_path: Path, play: Play, data: bytes, caplog) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its, client(tmp_path / "s") as good:
            reader, writer = await raw(tmp_path / "s")
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(PROMPT_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
            assert await good.text("a") == "aa"
            await until(lambda: len(its.server.clients) == 1)

    play(story())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -------------------------------------------------------------------------------------------------------------- bounds


def test_calls_of_a_client_are_bounded(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s") as its, client(tmp_path / "s") as one:
            waits = [asyncio.create_task(one.wait()) for _ in range(LIMITS.calls_max)]
            await until(lambda: its.counter.waiting == LIMITS.calls_max)
            with pytest.raises(UsageError, match="5 calls of one process at a time: wait for some of them"):
                await one.text("a")
            its.counter.go_on.set()
            await asyncio.gather(*waits)
            assert await one.text("a") == "aa"

    play(story())


def test_one_client_too_many_is_refused(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(tmp_path / "s")) for _ in range(LIMITS.clients_max)]
            with pytest.raises(StateLocked, match="too many"):
                await stack.enter_async_context(client(tmp_path / "s"))
            clients[0].connection.abort()
            one = RemoteCounter(tmp_path / "s")
            while True:  # until the server has noticed
                with suppress(StateLocked):
                    await one.connect(PROMPT_S)
                    break
                one = RemoteCounter(tmp_path / "s")
            assert await one.text("a") == "aa"
            one.connection.abort()

    play(story())


def test_the_client_that_is_idle_for_longest_makes_room_for_one_more(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s", evict_idle=True) as its, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(tmp_path / "s")) for _ in range(LIMITS.clients_max)]
            waiting = asyncio.create_task(clients[0].wait())
            await until(lambda: its.counter.waiting)
            await clients[1].text("a")
            more = await stack.enter_async_context(client(tmp_path / "s"))  # in the place of the third one
            assert [await each.text("a") for each in (clients[1], more)] == ["aa"] * 2
            with pytest.raises(StateError, match="has ended"):
                await clients[2].text("a")
            waits = [asyncio.create_task(each.wait()) for each in (clients[1], more)]
            await until(lambda: its.counter.waiting == 3)
            with pytest.raises(StateLocked, match="too many"):
                await stack.enter_async_context(client(tmp_path / "s"))
            its.counter.go_on.set()
            await asyncio.gather(waiting, *waits)

    play(story())


SLOW = {
    "bytes": LIMITS._replace(unread_max=300_000),
    "time": LIMITS._replace(write_timeout_s=0.1),
}


@pytest.mark.parametrize("limits", SLOW.values(), ids=SLOW.keys())
def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, play: Play, limits: RpcLimits) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s", limits=limits) as its, client(tmp_path / "s") as good:
            reader, writer = await raw(tmp_path / "s")
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            number = 0
            async with asyncio.timeout(PROMPT_S):
                while len(its.server.clients) > 1:
                    number += 1
                    if not writer.is_closing():
                        writer.write(call(number, "text", "x" * 1000, 90))
                    assert await good.text("a") == "aa"
            writer.transport.abort()

    play(story())


def test_what_does_not_fit_into_a_frame_is_an_error_of_its_call(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with owner(tmp_path / "s"), client(tmp_path / "s") as one:
            with pytest.raises(StorageError, match=r"one answer has 100,0\d\d bytes, more than fit into a frame"):
                await one.text("x" * 1000, 100)
            with pytest.raises(UsageError, match=r"one call has 100,0\d\d bytes, more than fit into a frame"):
                await one.text("x" * 100_000)
            assert await one.text("a") == "aa"

    play(story())


# ----------------------------------------------------------------------------------------------------- strange servers

GREETING = encode_frame(Hello(VERSION, 4711))
OLDER = encode({"type": "hello", "version": 2, "pid": 5})
STRANGE = {
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


@pytest.mark.parametrize(("data", "end", "kind", "line"), STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_server_is_described_in_one_line(
    tmp_path: Path, play: Play, data: bytes, end: bool, kind: type, line: str
) -> None:
    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if not end:
            with suppress(OSError):
                await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    async def story() -> None:
        one = RemoteCounter(tmp_path / "s", timeout_s=0.1)
        async with await asyncio.start_unix_server(attend, str(tmp_path / "s")):
            try:
                await one.connect(0.1)
                await one.text("a")
            finally:
                one.connection.abort()
                await ended.wait()

    with pytest.raises(StateError) as raised:
        play(story())
    assert type(raised.value) is kind
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_place_where_nobody_listens_is_an_os_error(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        with pytest.raises(FileNotFoundError):
            await RemoteCounter(tmp_path / "s").connect(PROMPT_S)

    play(story())


# ---------------------------------------------------------------------------------------------------------- lost peers


def test_calls_end_when_their_server_does(tmp_path: Path, play: Play) -> None:
    async def story() -> None:
        async with client_of_ending(tmp_path / "s") as one:
            with pytest.raises(StateError, match=f"process {os.getpid()} has ended"):
                await one.text("a")

    @asynccontextmanager
    async def client_of_ending(path: Path) -> AsyncIterator[RemoteCounter]:
        async with AsyncExitStack() as stack:
            async with owner(path) as its:
                one = await stack.enter_async_context(client(path))
                waiting = asyncio.create_task(one.wait())
                await until(lambda: its.counter.waiting)
            with pytest.raises(StateError, match="has ended"):
                await waiting
            assert its.counter.waiting == 0, "its calls were cancelled"
            yield one

    play(story())


def test_a_server_that_ends_waits_for_calls_that_it_does_not_cancel(tmp_path: Path, play: Play) -> None:
    class Stubborn(Service):
        cancels = False

    async def story() -> None:
        async with owner(tmp_path / "s", lambda it: Stubborn(METHODS, it)) as its, client(tmp_path / "s") as one:
            waiting = asyncio.create_task(one.wait())
            await until(lambda: its.counter.waiting)
            one.connection.abort()
            await until(lambda: not its.server.clients)
            closing = asyncio.create_task(its.server.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
            its.counter.go_on.set()
            await closing
            assert its.counter.ended == 1
            await asyncio.gather(waiting, return_exceptions=True)

    play(story())


def test_a_result_whose_caller_is_gone_is_taken_back(tmp_path: Path, play: Play) -> None:
    taken: list[tuple[str, Any]] = []

    class Careful(Service):
        cancels = False

        async def undelivered(self, method: Method, result: Any) -> None:
            taken.append((method.name, result))

    async def story() -> None:
        async with owner(tmp_path / "s", lambda it: Careful(METHODS, it)) as its, client(tmp_path / "s") as one:
            waiting = asyncio.create_task(one.wait())
            await until(lambda: its.counter.waiting)
            one.connection.abort()
            await asyncio.gather(waiting, return_exceptions=True)
            await until(lambda: not its.server.clients)
            its.counter.go_on.set()
            await until(lambda: taken == [("wait", "waited")])

    play(story())


@pytest.mark.parametrize("turns", range(8))
def test_a_client_that_is_accepted_while_the_server_ends_is_dropped(tmp_path: Path, turns: int) -> None:
    """However far its connection is: a call would reach what may be another owner's by now.

    Not on the loop of asyncio, which forgets a connection that it accepts in the moment in which its server is closed.
    """

    async def story() -> None:
        its = Owner(tmp_path / "s")
        await its.server.start()
        plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        plug.connect(str(tmp_path / "s"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await its.server.close()
        reader, writer = await asyncio.open_unix_connection(sock=plug)
        async with asyncio.timeout(PROMPT_S):
            with suppress(OSError):
                await reader.read()  # a greeting at most
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_a_server_whose_start_was_cancelled_does_not_listen_after_it_is_closed(tmp_path: Path, play: Play) -> None:
    def listeners() -> list[str]:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [line for line in lines if line.endswith(f" {tmp_path / 's'}") and line.split()[5] == "01"]

    async def story() -> None:
        for turns in range(4):
            its = Owner(tmp_path / "s")
            starting = asyncio.create_task(its.server.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await its.server.close()
            assert not listeners()

    play(story())


def test_a_file_system_without_sockets_is_a_warning(tmp_path: Path, play: Play, caplog) -> None:
    (tmp_path / "s").mkdir()

    async def story() -> None:
        async with owner(tmp_path / "s"):
            await asyncio.sleep(0)

    play(story())
    assert f"{tmp_path / 's'}: no socket for tests: " in caplog.text
    assert (tmp_path / "s").is_dir()


# ------------------------------------------------------------------------------------------------------------ messages


class Note(Message):
    """A message of the tests."""

    text: str


class Other(Message):
    """Another one."""

    number: int


class Peer:
    """One end of a connection for notes, and what it received."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.lost: list[Exception | None] = []
        self.connection = Connection(LIMITS, on_disconnect=self.lost.append)
        self.connection.handle({Note: self.notes.append})


async def joined() -> tuple[Peer, socket.socket]:
    ours, theirs = socket.socketpair()
    peer = Peer()
    await asyncio.get_running_loop().create_connection(lambda: peer.connection, sock=ours)
    theirs.setblocking(False)
    return peer, theirs


def test_messages_arrive_whole_in_whatever_pieces(play: Play) -> None:
    notes = [Note("a"), Note(""), Note("x" * 5000), Note("é")]

    async def story() -> None:
        peer, other = await joined()
        data = b"".join(map(encode_frame, notes))
        for start in range(0, len(data), 7):
            other.send(data[start : start + 7])
            await asyncio.sleep(0)
        await until(lambda: len(peer.notes) == len(notes))
        assert peer.notes == notes
        other.close()
        await until(lambda: peer.lost == [None])

    play(story())


def test_the_messages_of_one_iteration_of_the_loop_are_one_write(play: Play) -> None:
    async def story() -> None:
        writes: list[bytes] = []
        peer, other = await joined()
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

    play(story())


class Recorder:
    """Records what is written to a transport."""

    def __init__(self, transport: Any, writes: list[bytes]) -> None:
        self._transport = transport
        self.write = writes.append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_messages_sent_before_the_connection_is_made_are_not_lost(play: Play) -> None:
    async def story() -> None:
        ours, theirs = socket.socketpair()
        sender, receiver = Peer(), Peer()
        sender.connection.send(Note("early"))
        await asyncio.sleep(0)
        for peer, sock in ((sender, ours), (receiver, theirs)):
            await asyncio.get_running_loop().create_connection(partial(getattr, peer, "connection"), sock=sock)
        await until(lambda: receiver.notes == [Note("early")])
        sender.connection.close()
        await until(lambda: receiver.lost == sender.lost == [None])
        sender.connection.send(Note("late"))  # does nothing
        with pytest.raises(PeerLost):
            sender.connection.request("text", ())

    play(story())


@pytest.mark.parametrize("message", [Other(1), RpcCall(1, "text", msgspec.Raw(b"\x90"))], ids=["message", "call"])
def test_a_message_of_another_class_ends_the_connection(play: Play, message: Message) -> None:
    async def story() -> None:
        peer, other = await joined()
        other.send(encode_frame(message))
        await until(lambda: peer.lost)
        assert (peer.notes, type(peer.lost[0])) == ([], msgspec.ValidationError)
        other.close()

    play(story())


def test_a_message_that_cannot_be_sent_is_an_error_and_the_connection_goes_on(play: Play) -> None:
    async def story() -> None:
        peer, other = await joined()
        for text in ("x" * 200_000, "half \udc80"):
            with pytest.raises(ValueError):
                peer.connection.send(Note(text))
        peer.connection.send(Note("a"))
        await asyncio.sleep(0.01)
        assert other.recv(1000) == encode_frame(Note("a"))
        peer.connection.abort()
        other.close()

    play(story())
