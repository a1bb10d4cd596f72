"""The contract of the `Fetcher` port with a misbehaving server (C5): every sin has one outcome; cancellation.

Each test runs on uvloop and on asyncio's own loop; with `filterwarnings = error` a leaked socket is a failure.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack

import pytest

from lycosa.core.errors import BadResponse, BodyTooLarge, ConnectFailed, ConnectionLost, FetchError, FetchTimeout
from lycosa.core.headers import Headers
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher
from tests.http.contracts.fetching import get, wait_until
from tests.servers.misbehaving import Server

LONG_S = 20.0

# ----------------------------------------------------------------------------------------------------------------- sins

OUTCOMES: dict[str, tuple[type[FetchError], str, bool]] = {
    "/drop": (ConnectionLost, "connection closed without an answer", True),
    "/reset": (ConnectionLost, "connection lost", True),
    "/hang": (FetchTimeout, "timed out after 0.5 s", True),
    "/hang-after-headers": (FetchTimeout, "timed out after 0.5 s", True),
    "/drip": (FetchTimeout, "timed out after 0.5 s", True),
    "/endless": (BodyTooLarge, "body over 1000000 bytes", False),
    "/gzip-bomb": (BodyTooLarge, "body over 1000000 bytes", False),
    "/endless-headers": (BadResponse, "header too large", False),
    "/huge-header": (BadResponse, "header too large", False),
    "/broken-chunks": (BadResponse, "broken chunked encoding", True),
    "/cut-chunks": (ConnectionLost, "connection lost within the body", True),
    "/short": (ConnectionLost, "connection lost within the body", True),
    "/bad-gzip": (BadResponse, "cannot be decompressed", False),
    "/not-http": (BadResponse, "not HTTP", False),
    "/http-0.9": (BadResponse, "not HTTP", False),
}


@pytest.mark.parametrize("path", OUTCOMES)
def test_every_sin_ends_in_an_error_with_its_reason(run, path):
    kind, message, retry = OUTCOMES[path]
    slow = 0.5 if kind is FetchTimeout else 10.0

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        for _ in range(2):  # the second request meets what the first one left behind
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(Request(server.url(path)))
            assert (type(caught.value), str(caught.value), caught.value.retry) == (kind, message, retry)
        good = Request(server.url("/good"), meta={"download_timeout": LONG_S})
        assert (await fetcher.fetch(good)).status == 200

    run(scenario, timeout_s=slow, max_body_bytes=1_000_000)


def test_refused_connection(run):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        async def scenario(fetcher: CurlFetcher, _: Server) -> None:
            with pytest.raises(ConnectFailed, match=r"^connection refused$"):
                await fetcher.fetch(Request(f"http://127.0.0.1:{bound.getsockname()[1]}/"))

        run(scenario)


def test_unknown_host(run):
    async def scenario(fetcher: CurlFetcher, _: Server) -> None:
        with pytest.raises(ConnectFailed, match=r"^host not found$"):
            await fetcher.fetch(Request("http://no-such-host.invalid/"))

    run(scenario)


def test_connection_that_is_never_accepted_times_out(run):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        waiting = [stack.enter_context(socket.socket()) for _ in range(4)]  # more connections than fit into the backlog
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)

        async def scenario(fetcher: CurlFetcher, _: Server) -> None:
            with pytest.raises(ConnectFailed, match=r"^no connection after 0.4 s$"):
                await fetcher.fetch(Request("http://{}:{}/".format(*address)))

        run(scenario, connect_timeout_s=0.4)


def test_body_may_be_exactly_as_large_as_allowed(run):
    size = len(run(get("/good")).body)
    assert len(run(get("/good", max_body=size)).body) == size
    with pytest.raises(BodyTooLarge, match=f"^body over {size - 1} bytes$"):
        run(get("/good", max_body=size - 1))


def test_decompression_bomb_is_stopped_early(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> float:
        started = time.process_time()
        with pytest.raises(BodyTooLarge):
            await fetcher.fetch(Request(server.url("/gzip-bomb")))
        return time.process_time() - started

    assert run(scenario) < 2.0  # decompressing the whole GiB takes several seconds


def test_timeout_of_one_request(run):
    with pytest.raises(FetchTimeout, match=r"^timed out after 0.3 s$"):
        run(get("/hang", meta={"download_timeout": 0.3}))


def test_short_timeout_after_a_long_one(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> float:
        patient = asyncio.ensure_future(fetcher.fetch(Request(server.url("/hang"))))
        await wait_until(lambda: len(server.hits) == 1)
        started = time.monotonic()
        with pytest.raises(FetchTimeout):
            await fetcher.fetch(Request(server.url("/hang"), meta={"download_timeout": 0.2}))
        patient.cancel()
        return time.monotonic() - started

    assert run(scenario) < 15  # other requests of this fetcher time out after twenty seconds


# --------------------------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("path", ["/hang", "/drip", "/endless", "/hang-after-headers"])
def test_cancelled_transfer_closes_its_socket_at_once(run, path):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        tasks = [asyncio.ensure_future(fetcher.fetch(Request(server.url(path)))) for _ in range(5)]
        await wait_until(lambda: len(server.hits) == 5)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in results} == {asyncio.CancelledError}
        await wait_until(lambda: server.open_connections == 0)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200

    run(scenario, timeout_s=600, connect_timeout_s=600)  # much longer than the test may take


def test_cancelling_a_done_transfer_does_not_affect_the_next_one_on_its_handle(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        nearly_done = asyncio.get_running_loop().create_future()

        def accept(status: int, headers: Headers) -> bool:
            nearly_done.set_result(None)
            return True

        async def other() -> HttpResponse:
            await nearly_done  # wakes before `first`, which is done by then without knowing it
            first.cancel()
            return await fetcher.fetch(Request(server.url("/good")))

        first = asyncio.ensure_future(fetcher.fetch(Request(server.url("/good")), accept=accept))
        assert (await other()).status == 200
        with pytest.raises(asyncio.CancelledError):
            await first

    run(scenario)


def test_transfer_cancelled_at_any_iteration_of_the_loop_does_not_affect_others(run):

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        for path in ("/good", "/not-http"):
            for iterations in range(40):
                task = asyncio.ensure_future(fetcher.fetch(Request(server.url(path))))
                others = [asyncio.ensure_future(fetcher.fetch(Request(server.url("/good")))) for _ in range(3)]
                for _ in range(iterations):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert [each.status for each in await asyncio.gather(*others)] == [200] * 3

    run(scenario)


def test_close_aborts_running_transfers(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        tasks = [asyncio.ensure_future(fetcher.fetch(Request(server.url("/hang")))) for _ in range(3)]
        await wait_until(lambda: len(server.hits) == 3)
        tasks[0].cancel()
        await fetcher.close()
        await fetcher.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError, FetchError, FetchError]
        with pytest.raises(FetchError, match="closed"):
            await fetcher.fetch(Request(server.url("/good")))

    run(scenario)
