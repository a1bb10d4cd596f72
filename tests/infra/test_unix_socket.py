"""The socket of a live owner used wrongly, by hostile clients and towards hostile owners (F7, issue 3 "Operations").

Nothing that comes over it may reach the crawl, and whoever asks gets one clear line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from lycosa.core.errors import LycosaError, NewerState, StateError, StateLocked, StorageError, UsageError
from lycosa.frontier import messages, remote
from lycosa.frontier import server as served
from lycosa.frontier.core.model import Extras, Selection
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.messages import SLICE_ROWS, Answer, Hello, Refusal
from lycosa.frontier.operations import LocalOperations
from lycosa.infra import unix_socket
from lycosa.infra.unix_socket import FRAME_MAX, connect, listen, read_frame, write_frame
from tests.frontier.contracts.test_operations import url

PROMPT_S = 20.0


@asynccontextmanager
async def owner(path: Path):
    """A live owner at this socket."""
    async with served.served(path, LocalOperations(memory_frontier(Policy(robots=False)))):
        yield


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


async def raw(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect without being polite; the greeting is read."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    hello = messages.decode_said(await read_frame(reader))
    assert hello == Hello(messages.VERSION, os.getpid())
    return reader, writer


def open_folders(folder: Path) -> list[Path]:
    """Return our descriptors of this folder."""
    return [each for each in Path("/proc/self/fd").iterdir() if each.exists() and each.samefile(folder)]


def run(story: Awaitable[None]) -> None:
    """Play a story on the loop that crawls run on."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


GARBAGE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "too long": struct.pack(">I", FRAME_MAX + 1) + b"x",
    "4 GiB": b"\xff\xff\xff\xff",
    "half a length": b"\x00\x00",
    "half a frame": struct.pack(">I", 100) + b"abc",
    "empty frame": frame(b""),
    "not msgpack": frame(b"\xc1\xc1\xc1"),
    "no call": frame(messages.encode([1, 2, 3])),
    "another message": frame(messages.encode(Hello(1, 2))),
    "deep": frame(b"\x91" * 100_000),
    "wrong arguments": frame(messages.call("rows", "a", 1, [])),
    "missing arguments": frame(messages.call("rows")),
    "limit of text": frame(messages.call("hosts", "", "many")),
    "fingerprint of the wrong size": frame(
        messages.encode(messages.Call("find", msgspec.Raw(b"\x92\xcb" + b"\0" * 8)))
    ),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_its_own_connection_and_nothing_else(tmp_path: Path, data: bytes, caplog) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with owner(path), remote.connected(path) as good:
            reader, writer = await raw(path)
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(PROMPT_S):
                assert await reader.read() == b""
            writer.close()
            assert await good.push([url(1)]) == 1

    run(story())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_unknown_method_is_refused_in_words_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with owner(path):
            reader, writer = await raw(path)
            for method in ("close", "__init__", "shelf", ""):
                await write_frame(writer, messages.call(method))
                said = messages.decode_said(await read_frame(reader))
                assert isinstance(said, Refusal)
                assert (said.kind, "no " + repr(method) in said.message) == ("UsageError", True)
            await write_frame(writer, messages.call("stats"))
            assert isinstance(messages.decode_said(await read_frame(reader)), Answer)
            writer.close()

    run(story())


def test_one_call_touches_a_bounded_number_of_rows(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with owner(path), remote.connected(path) as operations:
            await operations.push([url(number) for number in range(4 * SLICE_ROWS)])
            for limit in (10**9, 0, -5):
                rows, after = await operations.rows(Selection(), "", limit)
                assert 1 <= len(rows) <= SLICE_ROWS
                assert after is not None
            reader, writer = await raw(path)
            await write_frame(writer, messages.call("push", [url(number) for number in range(SLICE_ROWS + 1)]))
            said = messages.decode_said(await read_frame(reader))
            assert isinstance(said, Refusal)
            assert "at most" in said.message
            writer.close()

    run(story())


def test_answers_that_are_too_long_come_in_shorter_slices(tmp_path: Path, monkeypatch) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        big = [url(number, extras=Extras("POST", {}, b"x" * 3000)) for number in range(40)]
        async with owner(path), remote.connected(path) as operations:
            for each in big:
                await operations.push([each])
            monkeypatch.setattr(served, "FRAME_MAX", 20_000)
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                rows, after = await operations.rows(Selection(), after, 1000)
                assert len(rows) < 7
                found += [row.record.url for row in rows]
            assert found == [each.url for each in big]
            monkeypatch.setattr(served, "FRAME_MAX", 2_000)
            with pytest.raises(StorageError, match="bytes"):
                await operations.rows(Selection(), "", 1000)

    run(story())


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, monkeypatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(served, "WRITE_MAX_S", 0.2)
        path = tmp_path / "socket"
        async with owner(path), remote.connected(path) as good:
            await good.push([url(number, extras=Extras("POST", {}, b"x" * 20_000)) for number in range(SLICE_ROWS)])
            reader, writer = await raw(path)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await write_frame(writer, messages.call("rows", Selection(), "", SLICE_ROWS))
            async with asyncio.timeout(PROMPT_S):
                while True:  # others are served meanwhile, and it is gone in the end
                    await good.stats()
                    try:
                        await write_frame(writer, messages.call("stats"))
                    except OSError:
                        break
            writer.close()

    run(story())


def test_the_longest_silent_client_makes_room_for_one_more(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with owner(path), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(remote.connected(path)) for _ in range(served.CLIENTS_MAX)]
            for client in clients[:-1]:  # the last one has been silent for the longest time now
                await client.stats()
            more = await stack.enter_async_context(remote.connected(path))
            await more.stats()
            with pytest.raises(StateError, match="ended"):
                await clients[-1].stats()
            for client in clients[:-1]:
                await client.stats()

    run(story())


def test_who_finds_only_busy_clients_is_told(tmp_path: Path, monkeypatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(served, "CLIENTS_MAX", 1)
        path = tmp_path / "socket"
        go_on = asyncio.Event()
        operations: Any = LocalOperations(memory_frontier(Policy()), commit=go_on.wait)  # type: ignore[arg-type]
        async with served.served(path, operations), remote.connected(path) as busy:
            committing = asyncio.ensure_future(busy.commit())
            while True:
                await asyncio.sleep(0)
                try:
                    async with remote.connected(path) as more:
                        await more.stats()
                except StateLocked as refused:
                    assert "try again" in str(refused)
                    break
                except StateError:
                    break
            go_on.set()
            await asyncio.wait([committing])

    run(story())


@pytest.mark.parametrize("error", [UsageError("wrong"), StorageError("no disk"), LycosaError("what")], ids=repr)
def test_an_error_of_the_owner_arrives_as_itself(tmp_path: Path, error: LycosaError) -> None:
    async def fail() -> None:
        raise error

    async def story() -> None:
        path = tmp_path / "socket"
        operations = LocalOperations(memory_frontier(Policy()), commit=fail)
        async with served.served(path, operations), remote.connected(path) as client:
            with pytest.raises(type(error), match=str(error)):
                await client.commit()
            assert (await client.stats()).queued == 0

    run(story())


def test_a_fault_in_the_owner_ends_the_connection_and_is_logged(tmp_path: Path, caplog) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        path = tmp_path / "socket"
        operations = LocalOperations(memory_frontier(Policy()), commit=fail)
        async with served.served(path, operations):
            async with remote.connected(path) as client:
                with pytest.raises(StateError):
                    await client.commit()
            async with remote.connected(path) as client:
                assert (await client.stats()).queued == 0

    run(story())
    assert "the crawl goes on" in caplog.text


def test_an_unknown_kind_of_error_is_one_of_the_state() -> None:
    for kind in ("SystemExit", "__doc__", "annotations", "Nonsense", ""):
        assert type(messages.error_of(Refusal(kind, "what"))) is StateError


Said = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def met(path: Path, said: Said, answer_max_s: float, say: Callable[[str], None] = lambda _: None) -> None:
    """Connect to a fake owner and ask it something."""
    done = asyncio.Event()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await said(reader, writer)
        await done.wait()
        writer.close()

    server = await asyncio.start_unix_server(attend, path=path)
    try:
        async with remote.connected(path, answer_max_s, say) as client:
            await client.rows(Selection(), "", 10)
    finally:
        done.set()
        server.close()


def says(*bodies: bytes, end: bool = False) -> Said:
    async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in bodies:
            writer.write(body)
        await writer.drain()
        if end:
            writer.transport.abort()

    return said


GREETING = frame(messages.encode(Hello(messages.VERSION, 4711)))


@pytest.mark.parametrize(
    ("said", "kind", "line"),
    [
        (says(), StateLocked, "the owner has not answered for 0.5 s: it hangs or was stopped"),
        (says(GREETING), StateLocked, "process 4711 has not answered for 0.5 s"),
        (says(end=True), StateError, "the crawl has just ended"),
        (says(GREETING, end=True), StateError, "the crawl has just ended"),
        (says(GREETING + b"\0\0\0\x09abc", end=True), StateError, "the crawl has just ended"),
        (says(frame(messages.encode(Hello(99, 4711)))), NewerState, "process 4711 runs another version"),
        (says(frame(messages.encode(Refusal("StateLocked", "full")))), StateLocked, "full"),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), StateLocked, "does not speak like a crawl"),
        (says(frame(b"\xc1")), StateLocked, "does not speak like a crawl"),
        (says(frame(messages.encode(Answer(msgspec.Raw(b"\x01"))))), StateLocked, "does not speak like a crawl"),
        (says(GREETING, GREETING), StateLocked, "does not speak like a crawl"),
        (says(GREETING, frame(messages.encode(Answer(msgspec.Raw(b"\x01"))))), StateLocked, "does not speak like"),
    ],
)
def test_a_strange_owner_is_described_in_one_line(tmp_path: Path, said: Said, kind: type, line: str) -> None:
    with pytest.raises(kind) as refused:
        run(met(tmp_path / "socket", said, 0.5 if "for 0.5 s" in line else PROMPT_S))
    assert type(refused.value) is kind
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_owner_that_is_silent_is_told_of_once_while_it_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(remote, "SILENT_MAX_S", 0.05)
    (tmp_path / "lock").write_text("4712")
    told: list[str] = []

    with pytest.raises(StateLocked, match=r"process 4712 has not answered for 0\.3 s: .*; kill -CONT 4712 lets"):
        run(met(tmp_path / "socket", says(), 0.3, told.append))
    assert told == [f"{tmp_path}/socket: process 4712 has not answered for 0.05 s: it is waited for, 0.3 s at most"]


@pytest.mark.parametrize(("method", "does"), [("verify", "checks"), ("compact", "compacts")])
def test_an_owner_that_is_at_work_is_not_called_silent(tmp_path: Path, monkeypatch, method: str, does: str) -> None:
    path, go_on, told = tmp_path / "socket", asyncio.Event(), []

    def say(line: str) -> None:
        told.append(line)
        go_on.set()

    async def story() -> None:
        operations: Any = LocalOperations(memory_frontier(Policy()), commit=go_on.wait)  # type: ignore[arg-type]
        async with served.served(path, operations), remote.connected(path, say=say) as client:
            monkeypatch.setattr(remote, "SILENT_MAX_S", 0.02)
            await (client.verify(told.append) if method == "verify" else client.compact())

    run(story())
    assert told == [f"{path}: process {os.getpid()} {does} all that is stored, and its crawl stands still meanwhile"]


def test_an_owner_that_answers_is_not_told_of(tmp_path: Path) -> None:
    told: list[str] = []

    async def story() -> None:
        async with owner(tmp_path / "socket"), remote.connected(tmp_path / "socket", say=told.append) as client:
            for _ in range(3):
                await client.stats()

    run(story())
    assert told == []


def test_only_our_user_may_connect_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        path.write_text("left by a dead owner")
        async with owner(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with remote.connected(path) as client:
                assert client.pid == os.getpid()
        assert not path.exists()

    run(story())


def test_the_path_of_a_state_may_be_longer_than_that_of_a_socket(tmp_path: Path) -> None:
    async def story() -> None:
        folder = tmp_path / ("x" * 100) / ("y" * 100)
        folder.mkdir(parents=True)
        async with owner(folder / "socket"), remote.connected(folder / "socket") as client:
            assert await client.push([url(1)]) == 1
        assert open_folders(folder) == []

    run(story())


def test_where_there_can_be_no_socket_the_crawl_goes_on(tmp_path: Path, caplog) -> None:
    async def story() -> None:
        (tmp_path / "socket").mkdir()
        async with owner(tmp_path / "socket"):
            await asyncio.sleep(0)

    run(story())
    assert "no socket for `lycosa frontier`" in caplog.text
    assert (tmp_path / "socket").is_dir()


def test_clients_are_dropped_when_the_owner_ends(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with AsyncExitStack() as clients:
            async with owner(path):
                client = await clients.enter_async_context(remote.connected(path))
                await client.stats()
            async with asyncio.timeout(PROMPT_S):
                with pytest.raises(StateError, match="has just ended"):
                    await client.stats()

    run(story())


@contextmanager
def full(path: Path) -> Iterator[tuple[socket.socket, int]]:
    """Listen there; yield that socket, and how many clients, whom nobody accepts, there was room for."""
    with ExitStack() as stack:
        listening, room = stack.enter_context(listen(path, 1)), 0
        while True:
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            try:
                client.connect(str(path))
            except BlockingIOError:
                break
            room += 1
        yield listening, room


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_who_finds_the_backlog_full_waits_for_room(tmp_path: Path, new_loop: Any) -> None:
    async def story() -> None:
        with full(tmp_path / "socket") as (listening, room), ExitStack() as accepted:
            connecting = asyncio.create_task(connect(tmp_path / "socket"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not connecting.done()
            for _ in range(room):
                accepted.enter_context(listening.accept()[0])
            reader, writer = await asyncio.wait_for(connecting, 30)
            accepted.enter_context(theirs := listening.accept()[0])
            theirs.sendall(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story())


def test_an_owner_that_accepts_nobody_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(unix_socket, "CONNECT_MAX_S", 0.05)

    async def story() -> None:
        with full(tmp_path / "socket"), pytest.raises(OSError, match="Connection timed out"):
            await connect(tmp_path / "socket")

    run(story())


@pytest.mark.parametrize("turns", range(8))
def test_who_is_accepted_while_the_owner_ends_is_dropped(tmp_path: Path, turns: int) -> None:
    """However far the connection is: whatever it asked would be asked of a state that is somebody else's by now."""

    async def story() -> None:
        path = tmp_path / "socket"
        plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        async with owner(path):
            plug.connect(str(path))
            for _ in range(turns):
                await asyncio.sleep(0)
        reader, writer = await asyncio.open_unix_connection(sock=plug)
        async with asyncio.timeout(PROMPT_S):
            with suppress(OSError):
                await reader.read()  # a greeting at most
        writer.close()

    run(story())
