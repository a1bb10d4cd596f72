"""The contract of the `Fetcher` port, against a server that misbehaves (C2, C5): every sin has one outcome.

Each test runs on uvloop and on asyncio's own loop; `filterwarnings = error` makes a leaked socket a failure.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
import uvloop

from lycosa.core.errors import (
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
)
from lycosa.core.headers import Headers
from lycosa.core.model import Request, Response
from lycosa.fetchers import sockets
from lycosa.fetchers.curl import CurlFetcher, FetchSettings
from tests.servers.misbehaving import Server, serving

Play = Callable[[CurlFetcher, Server], Awaitable[Any]]
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
TEST_MAX_S = 15.0


@pytest.fixture(params=[*LOOPS, "asyncio, each socket watched by the loop"])
def run(request, monkeypatch) -> Callable[..., Any]:
    """Run an `async def play(fetcher, server)`; fail on what the loop complains about, and on sockets left open."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)

    def runner(play: Play, **settings: Any) -> Any:
        complaints: list[Any] = []

        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(TEST_MAX_S), serving() as server:
                async with fetching(**settings) as fetcher:
                    result = await play(fetcher, server)
                await until(lambda: server.open_connections == 0)
                return result

        with asyncio.Runner(loop_factory=LOOPS[name]) as loop:
            result = loop.run(main())
        assert complaints == []
        return result

    return runner


@asynccontextmanager
async def fetching(**settings: Any) -> AsyncIterator[CurlFetcher]:
    fetcher = CurlFetcher(FetchSettings(**{"timeout_s": 6.0, "connect_timeout_s": 5.0, **settings}))
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about; the test's time limit bounds it."""
    while not true():  # noqa: ASYNC110  the server has no event for each of these
        await asyncio.sleep(0.001)


def get(path: str, **more: Any) -> Play:
    """Return a play that fetches one path."""

    async def play(fetcher: CurlFetcher, server: Server) -> Response:
        fields = {key: more.pop(key) for key in ("accept", "max_body") if key in more}
        return await fetcher.fetch(Request(server.url(path), **more), **fields)

    return play


# ----------------------------------------------------------------------------------------------------------- what works


def test_a_page(run):
    response = run(get("/good"))
    assert (response.status, response.http_version, response.ip, response.skipped) == (200, "1.1", "127.0.0.1", False)
    assert response.headers.get("Content-Type") == "text/html; charset=utf-8"
    assert b"All is well." in response.body
    assert response.size_bytes == len(response.body)
    assert response.url.endswith("/good")


def test_timings_are_in_order(run):
    timings = run(get("/slow?ms=50")).timings
    assert 0 < timings.connect_s < timings.first_byte_s <= timings.total_s < 10
    assert timings.first_byte_s >= 0.04
    assert timings.tls_s == 0


@pytest.mark.parametrize("status", [204, 304, 401, 403, 404, 410, 500, 503])
def test_every_status_is_a_response(run, status):
    assert run(get(f"/{status}")).status == status


def test_redirects_are_not_followed(run):
    response = run(get("/redirect-good"))
    assert (response.status, response.headers.get("location")) == (302, "/good")


def test_an_empty_body(run):
    response = run(get("/empty"))
    assert (response.status, response.body) == (200, b"")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_are_decompressed_and_counted_as_they_travel(run, coding):
    response = run(get(f"/gzip/{coding}"))
    assert b"squeezed squeezed" in response.body
    assert response.size_bytes < len(response.body) / 10


def test_the_head_is_that_of_the_final_answer(run):
    headers = run(get("/1xx")).headers
    assert headers.getlist("content-type") == ["text/html; charset=utf-8"]
    assert headers.get("x-final") == "yes"
    assert "link" not in headers


def test_trailers_do_not_count_as_headers(run):
    response = run(get("/trailers"))
    assert (response.body, response.headers.getlist("content-type")) == (b"hello", ["text/html; charset=utf-8"])
    assert "x-sum" not in response.headers


def test_connections_are_kept(run):
    async def play(fetcher: CurlFetcher, server: Server) -> int:
        for _ in range(20):
            await fetcher.fetch(Request(server.url("/good")))
        return server.connections

    assert run(play) == 1


def test_a_connection_closed_between_two_requests_is_replaced(run):
    async def play(fetcher: CurlFetcher, server: Server) -> list[int]:
        return [(await fetcher.fetch(Request(server.url("/early-close-keepalive")))).status for _ in range(10)]

    assert run(play) == [200] * 10


def test_many_at_a_time_get_their_own_answers(run):
    async def play(fetcher: CurlFetcher, server: Server) -> list[Response]:
        paths = [f"/tree/2000/{number}" for number in range(500)]
        return await asyncio.gather(*(fetcher.fetch(Request(server.url(path))) for path in paths))

    responses = run(play, connections_max=50)
    for number, response in enumerate(responses):
        assert f"<h1>Page {number}</h1>".encode() in response.body


def test_connections_per_host_are_limited(run):
    async def play(fetcher: CurlFetcher, server: Server) -> int:
        await asyncio.gather(*(fetcher.fetch(Request(server.url("/slow?ms=10"))) for _ in range(20)))
        return server.connections

    assert run(play, connections_per_host_max=3) == 3


# ------------------------------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"])
@pytest.mark.parametrize("body", [b"", b"a=1\r\n\0\xff"])
def test_methods_and_bodies_travel(run, method, body):
    said = json.loads(run(get("/echo", method=method, body=body)).body)
    assert (said["method"], bytes.fromhex(said["body"])) == (method, body)
    assert "expect" not in said["headers"]
    assert "content-type" not in said["headers"]


def test_head_has_headers_and_no_body(run):
    response = run(get("/good", method="HEAD"))
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["content-length"]) > 0


def test_headers_of_the_settings_and_of_the_request(run):
    play = get("/echo", headers={"X-One": "1", "Accept": "text/plain", "X-Empty": ""})
    headers = json.loads(run(play, user_agent="spider/1", headers={"x-one": "0", "X-Two": "2"}).body)["headers"]
    assert (headers["x-one"], headers["x-two"], headers["accept"], headers["x-empty"]) == ("1", "2", "text/plain", "")
    assert headers["user-agent"] == "spider/1"
    assert "gzip" in headers["accept-encoding"]


def test_options_of_one_request_do_not_stick_to_the_next(run):
    async def play(fetcher: CurlFetcher, server: Server) -> dict[str, Any]:
        special = Request(server.url("/echo"), method="PUT", body=b"x", headers={"X-Once": "1"})
        await fetcher.fetch(special.replace(meta={"download_timeout": 9}))
        return json.loads((await fetcher.fetch(Request(server.url("/echo")))).body)

    said = run(play)
    assert (said["method"], said["body"]) == ("GET", "")
    assert "x-once" not in said["headers"]


def test_params_are_merged_into_the_url(run):
    said = json.loads(run(get("/echo?a=1#part", params={"b": "ü &"})).body)
    assert said["target"] == "/echo?a=1&b=%C3%BC+%26"


def test_a_url_that_is_not_ascii(run):
    assert json.loads(run(get("/echo?ü")).body)["target"] == "/echo?%C3%BC"


def test_the_path_is_sent_as_it_is(run):
    assert json.loads(run(get("/echo/../echo/./x")).body)["target"] == "/echo/../echo/./x"


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"headers": {"X-A: 1\r\nX-B": "2"}},
        {"headers": {"X-A": "1\nX-B: 2"}},
        {"headers": {"": "2"}},
        {"method": "GET / HTTP/1.1\r\nX-B: 2\r\n\r\nGET"},
        {"method": ""},
        {"meta": {"download_timeout": "soon"}},
        {"meta": {"download_timeout": -1}},
        {"meta": {"proxy": "ftp://127.0.0.1:1"}},
    ],
    ids=str,
)
def test_a_request_that_cannot_be_sent_is_refused(run, fields):
    async def play(fetcher: CurlFetcher, server: Server) -> list[str]:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(Request(server.url("/echo"), **fields))
        assert not caught.value.retry
        assert "\n" not in str(caught.value)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
        return server.paths()

    assert run(play) == ["/good"]


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1:1/", "http://", "", "\0"]
)
def test_only_http_is_fetched(run, url):
    async def play(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(Request(url))
        assert not caught.value.retry

    run(play)


def test_through_a_proxy(run):
    async def play(fetcher: CurlFetcher, server: Server) -> list[str]:
        proxied = Request("http://no-such-host.invalid/good")
        assert (await fetcher.fetch(proxied)).status == 200
        assert (await fetcher.fetch(Request(server.url("/echo"), meta={"proxy": ""}))).status == 200
        return server.paths()

    async def main(_: CurlFetcher, server: Server) -> list[str]:
        async with fetching(proxy=server.url()) as fetcher:
            return await play(fetcher, server)

    assert run(main) == ["http://no-such-host.invalid/good", "/echo"]


def test_a_proxy_for_one_request(run):
    async def play(fetcher: CurlFetcher, server: Server) -> list[str]:
        await fetcher.fetch(Request("http://no-such-host.invalid/good", meta={"proxy": server.url()}))
        return server.paths()

    assert run(play) == ["http://no-such-host.invalid/good"]


def test_a_proxy_that_refuses(run):
    async def play(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(ConnectFailed, match=r"^proxy answered 403$"):
            await fetcher.fetch(Request("https://no-such-host.invalid/", meta={"proxy": server.url()}))

    run(play)


def test_proxies_of_the_environment_are_not_used(run, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run(get("/good")).status == 200


# --------------------------------------------------------------------------------------------------------------- accept


def test_accept_is_asked_once_with_status_and_headers(run):
    asked: list[tuple[int, str]] = []

    def accept(status: int, headers: Headers) -> bool:
        asked.append((status, headers.get("content-type")))
        return True

    response = run(get("/many-links", accept=accept))
    assert len(response.body) > 100_000
    assert asked == [(200, "text/html; charset=utf-8")]


@pytest.mark.parametrize("path", ["/good", "/empty", "/204", "/video", "/endless", "/gzip-bomb", "/1xx", "/trailers"])
def test_a_refused_body_is_not_read(run, path):
    response = run(get(path, accept=lambda status, headers: False))
    assert (response.skipped, response.body) == (True, b"")
    assert response.status in {200, 204}
    assert response.size_bytes < 4 * 2**20


def test_a_small_refused_body_does_not_cost_the_connection(run):
    async def play(fetcher: CurlFetcher, server: Server) -> int:
        for _ in range(3):
            assert (await fetcher.fetch(Request(server.url("/good")), accept=lambda *_: False)).skipped
        return server.connections

    assert run(play) == 1


@pytest.mark.parametrize("path", ["/good", "/empty"])
def test_what_accept_raises_reaches_the_caller(run, path):
    def accept(status: int, headers: Headers) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(get(path, accept=accept))


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
def test_sins_end_in_an_error_with_a_reason(run, path):
    kind, message, retry = OUTCOMES[path]
    slow = 0.5 if kind is FetchTimeout else 10.0

    async def play(fetcher: CurlFetcher, server: Server) -> None:
        for _ in range(2):  # the second time on what the first left behind
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(Request(server.url(path)))
            assert (type(caught.value), str(caught.value), caught.value.retry) == (kind, message, retry)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200

    run(play, timeout_s=slow, max_body_bytes=1_000_000)


def test_nothing_listens(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        async def play(fetcher: CurlFetcher, _: Server) -> None:
            with pytest.raises(ConnectFailed, match=r"^connection refused$"):
                await fetcher.fetch(Request(f"http://127.0.0.1:{taken.getsockname()[1]}/"))

        run(play)


def test_a_host_that_does_not_exist(run):
    async def play(fetcher: CurlFetcher, _: Server) -> None:
        with pytest.raises(ConnectFailed, match=r"^host not found$"):
            await fetcher.fetch(Request("http://no-such-host.invalid/"))

    run(play)


def test_nobody_takes_the_connection(run):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        waiting = [stack.enter_context(socket.socket()) for _ in range(4)]  # more than the backlog has room for
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)

        async def play(fetcher: CurlFetcher, _: Server) -> None:
            with pytest.raises(ConnectFailed, match=r"^no connection after 0.4 s$"):
                await fetcher.fetch(Request("http://{}:{}/".format(*address)))

        run(play, connect_timeout_s=0.4)


def test_the_body_may_be_exactly_as_large_as_allowed(run):
    size = len(run(get("/good")).body)
    assert len(run(get("/good", max_body=size)).body) == size
    with pytest.raises(BodyTooLarge, match=f"^body over {size - 1} bytes$"):
        run(get("/good", max_body=size - 1))


def test_a_bomb_is_stopped_early(run):
    async def play(fetcher: CurlFetcher, server: Server) -> float:
        started = time.process_time()
        with pytest.raises(BodyTooLarge):
            await fetcher.fetch(Request(server.url("/gzip-bomb")))
        return time.process_time() - started

    assert run(play) < 2.0  # the whole GiB takes several


def test_a_timeout_for_one_request(run):
    with pytest.raises(FetchTimeout, match=r"^timed out after 0.3 s$"):
        run(get("/hang", meta={"download_timeout": 0.3}))


def test_a_short_timeout_after_a_long_one(run):
    async def play(fetcher: CurlFetcher, server: Server) -> float:
        patient = asyncio.ensure_future(fetcher.fetch(Request(server.url("/hang"))))
        await until(lambda: len(server.hits) == 1)
        started = time.monotonic()
        with pytest.raises(FetchTimeout):
            await fetcher.fetch(Request(server.url("/hang"), meta={"download_timeout": 0.2}))
        patient.cancel()
        return time.monotonic() - started

    assert run(play) < 3


# --------------------------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("path", ["/hang", "/drip", "/endless", "/hang-after-headers"])
def test_a_cancelled_transfer_frees_its_socket_at_once(run, path):
    async def play(fetcher: CurlFetcher, server: Server) -> None:
        tasks = [asyncio.ensure_future(fetcher.fetch(Request(server.url(path)))) for _ in range(5)]
        await until(lambda: len(server.hits) == 5)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in results} == {asyncio.CancelledError}
        await until(lambda: server.open_connections == 0)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200

    run(play, timeout_s=60, connect_timeout_s=60)  # much longer than the test may take


def test_cancelled_when_it_is_done_and_its_handle_works_for_another(run):
    async def play(fetcher: CurlFetcher, server: Server) -> None:
        nearly_done = asyncio.get_running_loop().create_future()

        def accept(status: int, headers: Headers) -> bool:
            nearly_done.set_result(None)
            return True

        async def other() -> Response:
            await nearly_done  # wakes before `first`, which is done by then and does not know it
            first.cancel()
            return await fetcher.fetch(Request(server.url("/good")))

        first = asyncio.ensure_future(fetcher.fetch(Request(server.url("/good")), accept=accept))
        assert (await other()).status == 200
        with pytest.raises(asyncio.CancelledError):
            await first

    run(play)


def test_cancelled_at_any_turn_of_the_loop(run):

    async def play(fetcher: CurlFetcher, server: Server) -> None:
        for path in ("/good", "/not-http"):
            for turns in range(40):
                task = asyncio.ensure_future(fetcher.fetch(Request(server.url(path))))
                others = [asyncio.ensure_future(fetcher.fetch(Request(server.url("/good")))) for _ in range(3)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert [each.status for each in await asyncio.gather(*others)] == [200] * 3

    run(play)


def test_close_aborts_what_is_under_way(run):
    async def play(fetcher: CurlFetcher, server: Server) -> None:
        tasks = [asyncio.ensure_future(fetcher.fetch(Request(server.url("/hang")))) for _ in range(3)]
        await until(lambda: len(server.hits) == 3)
        tasks[0].cancel()
        await fetcher.close()
        await fetcher.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError, FetchError, FetchError]
        with pytest.raises(FetchError, match="closed"):
            await fetcher.fetch(Request(server.url("/good")))

    run(play)
