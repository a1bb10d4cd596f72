"""Plain HTTP through the gateway: what proxies receive, what clients receive, and which outcomes are recorded."""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64encode

import pytest

from lycosa.http.core.http1.framing import ChunkedReader
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.project_policies import Policies, TargetSettings
from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.gateway import store_timeout
from lycosa.proxies.ports import ProxyLease
from tests.proxies.gateway.harness import GET, GET_AND_CLOSE, OK, FakeProxy, RunningGateway, respond


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return head and body of a request."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"chunked" not in head:
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return head, await reader.readexactly(length)
    body, content = ChunkedReader(), b""
    while not body.done:
        content += body.feed(await reader.read(1000))[0]
    return head, content


async def echo_bodies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, content = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))


def test_a_request_goes_through_a_proxy(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK), login="ann:secret@")
        answer = await gateway.request(GET_AND_CLOSE)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"hi"
        assert b"Content-Length: 2\r\nX-Proxy-Lease: " in head
        assert head.endswith(b"\r\nConnection: close")
        assert proxy.received == [
            b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nProxy-Authorization: Basic "
            + b64encode(b"ann:secret") + b"\r\n\r\n"
        ]  # fmt: skip
        assert gateway.pool.outcomes == [("none", "")]
        lease, outcomes = gateway.pool.released[0]
        assert lease.target == "shop.example"
        assert 0 < outcomes[0].latency_s < 5

    run(scenario)


def test_connections_to_client_and_proxy_are_reused(run_on_both_loops):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        reader, writer = await gateway.connect()
        for _ in range(3):
            writer.write(GET)
            assert b"X-Proxy-Lease" in await gateway.read_head(reader)
            assert await reader.readexactly(2) == b"hi"
        assert proxy.received == [GET * 3]
        assert len(gateway.pool.released) == 3  # a lease for each request

    run_on_both_loops(scenario)


def test_pipelined_requests_are_answered_in_order(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(*(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(5))))
        reader, writer = await gateway.connect()
        writer.write(b"\r\n" + GET * 4 + GET_AND_CLOSE)
        answer = await reader.read()
        assert [each[:1] for each in answer.split(b"\r\n\r\n")[1:]] == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario)


@pytest.mark.parametrize("size", [0, 5, 70_000, 3_000_000])
def test_request_and_response_bodies_are_passed_on(run_on_both_loops, size: int):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(echo_bodies)
        content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        head = b"POST http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n"
        plain = head + b"Content-Length: %d\r\n\r\n%b" % (size, content)
        assert body_of(await gateway.request(plain)) == content
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:]) if part)
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Trailer: y\r\n\r\n"
        assert body_of(await gateway.request(chunked)) == content

    run_on_both_loops(scenario)


def test_chunks_are_encoded_anew(run):
    async def scenario(gateway: RunningGateway) -> None:
        answer = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;evil=1\r\nabc\r\n0003\r\ndef\r\n0\r\nT: x\r\n\r\n"
        )
        await gateway.add_proxy(respond(answer))
        assert body_of(await gateway.request(GET_AND_CLOSE)) == b"6\r\nabcdef\r\n0\r\n\r\n"
        old = await gateway.request(b"GET http://shop.example/ HTTP/1.0\r\n\r\n")
        assert body_of(old) == b"abcdef"
        assert b"chunked" not in old

    run(scenario)


def test_a_response_that_ends_with_its_connection_is_passed_on(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(b"HTTP/1.0 200 OK\r\n\r\nall of it", close=True))
        answer = await gateway.request(GET)
        assert body_of(answer) == b"all of it"
        assert b"\r\nConnection: close\r\n" in answer

    run(scenario)


def test_expectations_and_interim_responses_are_passed_on(run):
    async def send_continue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nExpect: 100-continue\r\n" in head
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(4) == b"body"
        writer.write(OK)

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(send_continue)
        reader, writer = await gateway.connect()
        writer.write(
            b"PUT http://shop.example/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
        assert await gateway.read_head(reader) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200")

    run(scenario)


def test_an_early_response_ends_an_upload(run_on_both_loops):
    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await reader.read()

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(refuse_early)
        reader, writer = await gateway.connect()
        writer.write(b"POST http://shop.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome")
        answer = await reader.read()  # the connection ends although the client has not sent all
        assert (status_of(answer), body_of(answer)) == (413, b"no")
        assert b"\r\nConnection: close\r\n" in answer

    run_on_both_loops(scenario)


def test_head_and_not_modified_have_no_body(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(
            respond(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n")
        )
        reader, writer = await gateway.connect()
        for method in (b"HEAD", b"GET"):
            writer.write(GET.replace(b"GET", method))
            await gateway.read_head(reader)
        assert len(gateway.pool.released) == 2

    run(scenario)


# --- outcomes and retries


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", ("nobody", "404")),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", ("nobody", "500")),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", ("site", "403")),
        (b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", ("site", "429")),
        (b"HTTP/1.1 503 No\r\nContent-Length: 17\r\n\r\n<g-recaptcha></g>", ("site", "captcha (g-recaptcha)")),
    ],
)
def test_status_and_body_determine_the_blame(run, answer: bytes, outcome: tuple[str, str]):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(answer))
        # The client gets the response unchanged.
        assert status_of(await gateway.request(GET_AND_CLOSE)) == int(answer[9:12])
        assert gateway.pool.outcomes == [outcome]
        if b"Retry-After" in answer:
            assert gateway.pool.released[0][1][0].rest_s == 7

    run(scenario)


def test_a_captcha_in_a_compressed_page_is_detected(run):
    async def scenario(gateway: RunningGateway) -> None:
        page = gzip.compress(b"<html>" + b"x" * 5000 + b"g-recaptcha")
        head = b"HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(page)
        await gateway.add_proxy(respond(head + page))
        assert body_of(await gateway.request(GET_AND_CLOSE)) == page
        assert gateway.pool.outcomes == [("site", "captcha (g-recaptcha)")]

    run(scenario)


def test_rules_of_the_project_apply(run):
    policies = Policies(
        named={
            "shop.example": TargetSettings(TargetPolicy(), (OutcomeRule(Blame.SITE, "soft", body="unusual traffic"),))
        }
    )

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nunusual traffic"))
        assert status_of(await gateway.request(GET_AND_CLOSE)) == 200
        assert gateway.pool.outcomes == [("site", "soft")]

    run(scenario, policies=policies)


async def add_spare_proxy(gateway: RunningGateway) -> FakeProxy:
    """Add a proxy that works, and is tried last because it costs something."""
    return await gateway.add_proxy(respond(OK), price_request=1.0)


def test_a_dead_proxy_is_replaced(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_dead_proxy()
        await add_spare_proxy(gateway)
        answer = await gateway.request(
            GET_AND_CLOSE.replace(b"GET", b"POST").replace(b"Conn", b"Content-Length: 0\r\nConn")
        )
        assert body_of(answer) == b"hi"  # whatever the method: the proxy did not get the request
        assert [blame for blame, _ in gateway.pool.outcomes] == ["proxy", "none"]
        assert gateway.context.counts.retries == 1

    run(scenario)


def test_a_proxy_that_refuses_our_login_is_replaced(run):
    async def scenario(gateway: RunningGateway) -> None:
        answer = b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
        await gateway.add_proxy(respond(answer), login="ann:wrong@")
        await add_spare_proxy(gateway)
        assert body_of(await gateway.request(GET_AND_CLOSE)) == b"hi"
        assert gateway.pool.outcomes == [("proxy", "proxy refused the login (407)"), ("none", "")]

    run(scenario)


async def read_head_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


def test_only_idempotent_requests_are_repeated_after_a_proxy_disconnects(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(read_head_and_close)
        good = await add_spare_proxy(gateway)
        assert body_of(await gateway.request(GET_AND_CLOSE)) == b"hi"
        assert [blame for blame, _ in gateway.pool.outcomes] == ["miss", "none"]
        post = b"POST http://shop.example/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        answer = await gateway.request(post)
        assert status_of(answer) == 502
        assert b"the connection was closed before the response" in answer
        assert len(good.received) == 1

    run(scenario)


def test_a_small_body_is_sent_again_and_a_large_one_is_not(run):
    async def read_request_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(read_request_and_close)
        good = await gateway.add_proxy(echo_bodies, price_request=1.0)
        for size in (5_000, 500_000):
            head = (
                b"PUT http://shop.example/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                % size
            )
            answer = await gateway.request(head, *[b"x" * 5_000] * (size // 5_000))
            assert status_of(answer) == (200 if size == 5_000 else 502)
        assert len(good.received) == 1
        assert good.received[0].endswith(b"\r\n\r\n" + b"x" * 5_000)

    run(scenario)


def test_a_closed_idle_connection_is_not_a_fault_of_the_proxy(run):
    async def respond_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readexactly(1)  # closes when the next request comes, a race that every reused connection may lose

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond_once)
        reader, writer = await gateway.connect()
        for _ in range(3):
            writer.write(GET)
            await gateway.read_head(reader)
            assert await reader.readexactly(2) == b"hi"
        assert len(proxy.received) == 3
        assert gateway.pool.outcomes == [("none", "")] * 3  # no proxy is to blame

    run(scenario)


def test_attempts_are_bounded(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxies = [await gateway.add_proxy(read_head_and_close) for _ in range(6)]
        answer = await gateway.request(GET_AND_CLOSE)
        assert status_of(answer) == 502
        assert sum(len(each.received) for each in proxies) == 4
        assert len({lease.proxy.key for lease, _ in gateway.pool.released}) == 4

    run(scenario, attempts=4)


def test_a_truncated_response_is_truncated_for_the_client(run):
    async def send_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(send_half)
        good = await add_spare_proxy(gateway)
        reader, writer = await gateway.connect()
        writer.write(GET)
        await gateway.read_head(reader)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(100)
        assert good.received == []  # not tried: the client has received the start of the first response
        assert [blame for blame, _ in gateway.pool.outcomes] == ["miss"]

    run(scenario)


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_invalid_responses_are_a_502(run, response: bytes):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(response))
        answer = await gateway.request(GET_AND_CLOSE)
        assert status_of(answer) == 502
        assert b"\r\nX-Proxy-Error: bad answer" in answer

    run(scenario, attempts=1)


def test_a_silent_proxy_is_a_504(run, monkeypatch: pytest.MonkeyPatch):
    async def never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(never_respond)
        answer = await gateway.request(GET_AND_CLOSE)
        assert status_of(answer) == 504
        assert [blame for blame, _ in gateway.pool.outcomes] == ["miss"]

    monkeypatch.setattr("lycosa.proxies.gateway.gateway.SWEEP_S", 0.02)
    run(scenario, answer_s=0.2, attempts=1)


def test_a_client_that_disconnects_cancels_its_request(run_on_both_loops):
    arrived = asyncio.Event()

    async def never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()  # until the gateway disconnects

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(never_respond)
        _, writer = await gateway.connect()
        writer.write(GET)
        await arrived.wait()
        writer.close()
        while proxy.open or gateway.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert gateway.pool.released[0][1] == []  # the outcome is unknown

    run_on_both_loops(scenario)


def test_clients_may_disconnect_at_any_moment(run):
    async def scenario(gateway: RunningGateway) -> None:
        for _ in range(20):
            await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000))
        for turns in range(8):
            clients = [await gateway.connect() for _ in range(30)]
            for _, writer in clients:
                writer.write(GET)
            for _ in range(turns):
                await asyncio.sleep(0)
            for _, writer in clients:
                writer.transport.abort()
        await gateway.wait_for_leases_to_end()

    run(scenario)


def test_a_client_that_does_not_read_pauses_the_proxy(run_on_both_loops):
    size = 50_000_000
    sent = 0

    async def send_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(send_much)
        reader, writer = await gateway.connect()
        writer.write(GET_AND_CLOSE)
        await gateway.read_head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < size / 2  # only the buffers of the system have been filled
        assert len(await reader.read()) == size

    run_on_both_loops(scenario)


def test_a_proxy_that_does_not_read_pauses_the_client(run_on_both_loops):
    async def scenario(gateway: RunningGateway) -> None:
        done = asyncio.Event()

        async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()

        server = await asyncio.start_server(read_nothing, "127.0.0.1", 0)
        await gateway.pool.add([parse_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")])
        _, writer = await gateway.connect()
        sent = 0

        async def upload() -> None:
            nonlocal sent
            writer.write(b"PUT http://shop.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 90000000\r\n\r\n")
            while sent < 90_000_000:
                writer.write(b"x" * 100_000)
                await writer.drain()
                sent += 100_000

        task = asyncio.create_task(upload())
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert 0 < sent < 45_000_000  # only the buffers of the system have been filled
        task.cancel()
        writer.transport.abort()
        done.set()
        server.close()

    run_on_both_loops(scenario)


def test_no_proxy_is_a_503_with_the_reason(run):
    async def scenario(gateway: RunningGateway) -> None:
        answer = await gateway.request(GET_AND_CLOSE)
        assert status_of(answer) == 503
        assert b"the pool has no proxies" in body_of(answer)
        assert b"\r\nRetry-After: " in answer
        await gateway.add_dead_proxy()
        for _ in range(2):
            assert status_of(await gateway.request(GET_AND_CLOSE)) in (502, 503)
        answer = await gateway.request(GET_AND_CLOSE)
        assert status_of(answer) == 503
        assert b"no proxy for shop.example is free within 0.2 s (1 cooling)" in body_of(answer)

    run(scenario)


def test_the_user_name_selects_proxy_and_target(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nfr"), tags={"country": "fr"})
        await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nde"), tags={"country": "de"})
        for user, country in (("ann-country-de", b"de"), ("ann-country-FR-site-x", b"fr")):
            login = b64encode(f"{user}:secret".encode())
            answer = await gateway.request(
                GET_AND_CLOSE.replace(b"Conn", b"Proxy-Authorization: Basic " + login + b"\r\nConn")
            )
            assert body_of(answer) == country
        assert [lease.target for lease, _ in gateway.pool.released] == ["shop.example", "x"]

    run(scenario, users={"ann": "secret"})


def test_connections_with_an_ntlm_login_are_not_reused(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        reader, writer = await gateway.connect()
        for _ in range(2):
            writer.write(GET.replace(b"\r\n\r\n", b"\r\nAuthorization: NTLM TlRM\r\n\r\n"))
            await gateway.read_head(reader)
            await reader.readexactly(2)
        assert len(proxy.received) == 2

    run(scenario)


def test_a_pool_with_an_unreachable_store_is_a_503(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_timeout, "STORE_TIMEOUT_S", 0.1)

    async def scenario(gateway: RunningGateway) -> None:
        async def never_return(*_: object, **__: object) -> list[ProxyLease]:
            return await asyncio.get_running_loop().create_future()

        await gateway.add_proxy(respond(OK))
        monkeypatch.setattr(gateway.pool, "acquire", never_return)
        session = b"Proxy-Authorization: Basic " + b64encode(b"ann-session-c7:") + b"\r\nConn"
        for request in (GET_AND_CLOSE, GET_AND_CLOSE.replace(b"Conn", session)):
            answer = await gateway.request(request)
            assert (status_of(answer), body_of(answer)[:38]) == (503, b"the pool did not answer within 0.3 s: ")

    run(scenario)


def test_a_closed_pool_is_a_503(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(OK))
        await gateway.pool.close()
        answer = await gateway.request(GET_AND_CLOSE)
        assert (status_of(answer), body_of(answer)) == (503, b"the pool is closed\n")

    run(scenario)
