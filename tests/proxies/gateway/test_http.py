"""Plain HTTP through the gateway (P6): what proxies hear, what clients get, whose fault what was."""

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
from tests.proxies.gateway.playing import GET, LAST, OK, Stage, Told, plays


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def reads_body(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return head and content of a request."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"chunked" not in head:
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return head, await reader.readexactly(length)
    body, content = ChunkedReader(), b""
    while not body.done:
        content += body.feed(await reader.read(1000))[0]
    return head, content


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, content = await reads_body(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))


def test_a_request_goes_through_a_proxy(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK), login="ann:secret@")
        answer = await stage.ask(LAST)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"hi"
        assert b"Content-Length: 2\r\nX-Proxy-Lease: " in head
        assert head.endswith(b"\r\nConnection: close")
        assert proxy.heard == [
            b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nProxy-Authorization: Basic "
            + b64encode(b"ann:secret") + b"\r\n\r\n"
        ]  # fmt: skip
        assert stage.pool.outcomes == [("none", "")]
        lease, outcomes = stage.pool.returned[0]
        assert lease.target == "shop.example"
        assert 0 < outcomes[0].latency_s < 5

    played(play)


def test_connections_to_client_and_proxy_are_reused(played_on_both):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK))
        reader, writer = await stage.connect()
        for _ in range(3):
            writer.write(GET)
            assert b"X-Proxy-Lease" in await stage.head(reader)
            assert await reader.readexactly(2) == b"hi"
        assert proxy.heard == [GET * 3]
        assert len(stage.pool.returned) == 3  # a lease for each request

    played_on_both(play)


def test_pipelined_requests_are_answered_in_order(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(*(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(5))))
        reader, writer = await stage.connect()
        writer.write(b"\r\n" + GET * 4 + LAST)
        answer = await reader.read()
        assert [each[:1] for each in answer.split(b"\r\n\r\n")[1:]] == [b"0", b"1", b"2", b"3", b"4"]

    played(play)


@pytest.mark.parametrize("size", [0, 5, 70_000, 3_000_000])
def test_request_and_response_bodies_are_passed_on(played_on_both, size: int):
    async def play(stage: Stage) -> None:
        await stage.proxy(echoes)
        content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        head = b"POST http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n"
        plain = head + b"Content-Length: %d\r\n\r\n%b" % (size, content)
        assert body_of(await stage.ask(plain)) == content
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:]) if part)
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Trailer: y\r\n\r\n"
        assert body_of(await stage.ask(chunked)) == content

    played_on_both(play)


def test_chunks_are_encoded_anew(played):
    async def play(stage: Stage) -> None:
        answer = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;evil=1\r\nabc\r\n0003\r\ndef\r\n0\r\nT: x\r\n\r\n"
        )
        await stage.proxy(plays(answer))
        assert body_of(await stage.ask(LAST)) == b"6\r\nabcdef\r\n0\r\n\r\n"
        old = await stage.ask(b"GET http://shop.example/ HTTP/1.0\r\n\r\n")
        assert body_of(old) == b"abcdef"
        assert b"chunked" not in old

    played(play)


def test_a_response_that_ends_with_its_connection_is_passed_on(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(b"HTTP/1.0 200 OK\r\n\r\nall of it", close=True))
        answer = await stage.ask(GET)
        assert body_of(answer) == b"all of it"
        assert b"\r\nConnection: close\r\n" in answer

    played(play)


def test_expectations_and_interim_responses_are_passed_on(played):
    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nExpect: 100-continue\r\n" in head
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(4) == b"body"
        writer.write(OK)

    async def play(stage: Stage) -> None:
        await stage.proxy(waits)
        reader, writer = await stage.connect()
        writer.write(
            b"PUT http://shop.example/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
        assert await stage.head(reader) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 200")

    played(play)


def test_an_early_response_ends_an_upload(played_on_both):
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await reader.read()

    async def play(stage: Stage) -> None:
        await stage.proxy(refuses)
        reader, writer = await stage.connect()
        writer.write(b"POST http://shop.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome")
        answer = await reader.read()  # the connection ends although the client has not sent all
        assert (status_of(answer), body_of(answer)) == (413, b"no")
        assert b"\r\nConnection: close\r\n" in answer

    played_on_both(play)


def test_head_and_not_modified_have_no_body(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(
            plays(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n")
        )
        reader, writer = await stage.connect()
        for method in (b"HEAD", b"GET"):
            writer.write(GET.replace(b"GET", method))
            await stage.head(reader)
        assert len(stage.pool.returned) == 2

    played(play)


# --- whose fault


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
def test_status_and_body_determine_the_blame(played, answer: bytes, outcome: tuple[str, str]):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(answer))
        assert status_of(await stage.ask(LAST)) == int(answer[9:12])  # the client gets it as it is
        assert stage.pool.outcomes == [outcome]
        if b"Retry-After" in answer:
            assert stage.pool.returned[0][1][0].rest_s == 7

    played(play)


def test_a_captcha_in_a_compressed_page_is_detected(played):
    async def play(stage: Stage) -> None:
        page = gzip.compress(b"<html>" + b"x" * 5000 + b"g-recaptcha")
        head = b"HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(page)
        await stage.proxy(plays(head + page))
        assert body_of(await stage.ask(LAST)) == page
        assert stage.pool.outcomes == [("site", "captcha (g-recaptcha)")]

    played(play)


def test_rules_of_the_project_apply(played):
    policies = Policies(
        named={
            "shop.example": TargetSettings(TargetPolicy(), (OutcomeRule(Blame.SITE, "soft", body="unusual traffic"),))
        }
    )

    async def play(stage: Stage) -> None:
        await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nunusual traffic"))
        assert status_of(await stage.ask(LAST)) == 200
        assert stage.pool.outcomes == [("site", "soft")]

    played(play, policies=policies)


async def two(stage: Stage, bad: object) -> Told:
    """Add a good proxy, and take care that the bad one comes first."""
    assert bad is not None
    return await stage.proxy(plays(OK), price_request=1.0)


def test_a_dead_proxy_is_replaced(played):
    async def play(stage: Stage) -> None:
        await two(stage, await stage.dead())
        answer = await stage.ask(LAST.replace(b"GET", b"POST").replace(b"Conn", b"Content-Length: 0\r\nConn"))
        assert body_of(answer) == b"hi"  # whatever the method: it did not get the request
        assert [blame for blame, _ in stage.pool.outcomes] == ["proxy", "none"]
        assert stage.gateway.context.counts.retries == 1

    played(play)


def test_a_proxy_that_refuses_our_login_is_replaced(played):
    async def play(stage: Stage) -> None:
        answer = b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
        await two(stage, await stage.proxy(plays(answer), login="ann:wrong@"))
        assert body_of(await stage.ask(LAST)) == b"hi"
        assert stage.pool.outcomes == [("proxy", "proxy refused the login (407)"), ("none", "")]

    played(play)


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


def test_only_idempotent_requests_are_repeated_after_a_proxy_disconnects(played):
    async def play(stage: Stage) -> None:
        good = await two(stage, await stage.proxy(hangs_up))
        assert body_of(await stage.ask(LAST)) == b"hi"
        assert [blame for blame, _ in stage.pool.outcomes] == ["miss", "none"]
        post = b"POST http://shop.example/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        answer = await stage.ask(post)
        assert status_of(answer) == 502
        assert b"the connection was closed before the answer" in answer
        assert len(good.heard) == 1

    played(play)


def test_a_small_body_is_sent_again_and_a_large_one_is_not(played):
    async def drinks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads_body(reader)

    async def play(stage: Stage) -> None:
        await stage.proxy(drinks)
        good = await stage.proxy(echoes, price_request=1.0)
        for size in (5_000, 500_000):
            head = (
                b"PUT http://shop.example/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                % size
            )
            answer = await stage.ask(head, *[b"x" * 5_000] * (size // 5_000))
            assert status_of(answer) == (200 if size == 5_000 else 502)
        assert len(good.heard) == 1
        assert good.heard[0].endswith(b"\r\n\r\n" + b"x" * 5_000)

    played(play)


def test_a_closed_idle_connection_is_not_a_fault_of_the_proxy(played):
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readexactly(1)  # it closes when the next request comes: the race of every kept connection

    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(once)
        reader, writer = await stage.connect()
        for _ in range(3):
            writer.write(GET)
            await stage.head(reader)
            assert await reader.readexactly(2) == b"hi"
        assert len(proxy.heard) == 3
        assert stage.pool.outcomes == [("none", "")] * 3  # that is nobody's fault

    played(play)


def test_attempts_are_bounded(played):
    async def play(stage: Stage) -> None:
        proxies = [await stage.proxy(hangs_up) for _ in range(6)]
        answer = await stage.ask(LAST)
        assert status_of(answer) == 502
        assert sum(len(each.heard) for each in proxies) == 4
        assert len({lease.proxy.key for lease, _ in stage.pool.returned}) == 4

    played(play, attempts=4)


def test_a_truncated_response_is_truncated_for_the_client(played):
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async def play(stage: Stage) -> None:
        good = await two(stage, await stage.proxy(half))
        reader, writer = await stage.connect()
        writer.write(GET)
        await stage.head(reader)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(100)
        assert good.heard == []  # the client has seen the beginning of another answer
        assert [blame for blame, _ in stage.pool.outcomes] == ["miss"]

    played(play)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_invalid_responses_are_a_502(played, answer: bytes):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(answer))
        said = await stage.ask(LAST)
        assert status_of(said) == 502
        assert b"\r\nX-Proxy-Error: bad answer" in said

    played(play, attempts=1)


def test_a_silent_proxy_is_a_504(played, monkeypatch: pytest.MonkeyPatch):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def play(stage: Stage) -> None:
        await stage.proxy(silent)
        answer = await stage.ask(LAST)
        assert status_of(answer) == 504
        assert [blame for blame, _ in stage.pool.outcomes] == ["miss"]

    monkeypatch.setattr("lycosa.proxies.gateway.gateway.SWEEP_S", 0.02)
    played(play, answer_s=0.2, attempts=1)


def test_a_client_that_disconnects_cancels_its_request(played_on_both):
    heard = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        heard.set()
        await reader.read()  # until the gateway hangs up

    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(slow)
        _, writer = await stage.connect()
        writer.write(GET)
        await heard.wait()
        writer.close()
        while proxy.open or stage.gateway.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert stage.pool.returned[0][1] == []  # nobody knows whose fault that was

    played_on_both(play)


def test_clients_may_disconnect_at_any_moment(played):
    async def play(stage: Stage) -> None:
        for _ in range(20):
            await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000))
        for turns in range(8):
            clients = [await stage.connect() for _ in range(30)]
            for _, writer in clients:
                writer.write(GET)
            for _ in range(turns):
                await asyncio.sleep(0)
            for _, writer in clients:
                writer.transport.abort()
        while stage.gateway.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    played(play)


def test_a_client_that_does_not_read_pauses_the_proxy(played_on_both):
    size = 50_000_000
    sent = 0

    async def gushes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async def play(stage: Stage) -> None:
        await stage.proxy(gushes)
        reader, writer = await stage.connect()
        writer.write(LAST)
        await stage.head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < size / 2  # what is in the buffers of the system, and not all
        assert len(await reader.read()) == size

    played_on_both(play)


def test_a_proxy_that_does_not_read_pauses_the_client(played_on_both):
    async def play(stage: Stage) -> None:
        done = asyncio.Event()

        async def ignores(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()

        server = await asyncio.start_server(ignores, "127.0.0.1", 0)
        await stage.pool.add([parse_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")])
        _, writer = await stage.connect()
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
        assert 0 < sent < 45_000_000  # what is in the buffers of the system, and not all
        task.cancel()
        writer.transport.abort()
        done.set()
        server.close()

    played_on_both(play)


def test_no_proxy_is_a_503_with_the_reason(played):
    async def play(stage: Stage) -> None:
        answer = await stage.ask(LAST)
        assert status_of(answer) == 503
        assert b"the pool has no proxies" in body_of(answer)
        assert b"\r\nRetry-After: " in answer
        await stage.dead()
        for _ in range(2):
            assert status_of(await stage.ask(LAST)) in (502, 503)
        answer = await stage.ask(LAST)
        assert status_of(answer) == 503
        assert b"no proxy for shop.example is free within 0.2 s (1 cooling)" in body_of(answer)

    played(play)


def test_the_user_name_selects_proxy_and_target(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nfr"), tags={"country": "fr"})
        await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nde"), tags={"country": "de"})
        for user, said in (("ann-country-de", b"de"), ("ann-country-FR-site-x", b"fr")):
            login = b64encode(f"{user}:secret".encode())
            answer = await stage.ask(LAST.replace(b"Conn", b"Proxy-Authorization: Basic " + login + b"\r\nConn"))
            assert body_of(answer) == said
        assert [lease.target for lease, _ in stage.pool.returned] == ["shop.example", "x"]

    played(play, users={"ann": "secret"})


def test_connections_with_an_ntlm_login_are_not_reused(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK))
        reader, writer = await stage.connect()
        for _ in range(2):
            writer.write(GET.replace(b"\r\n\r\n", b"\r\nAuthorization: NTLM TlRM\r\n\r\n"))
            await stage.head(reader)
            await reader.readexactly(2)
        assert len(proxy.heard) == 2

    played(play)


def test_a_pool_with_an_unreachable_store_is_a_503(played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_timeout, "STORE_TIMEOUT_S", 0.1)

    async def play(stage: Stage) -> None:
        async def away(*_: object, **__: object) -> list[ProxyLease]:
            return await asyncio.get_running_loop().create_future()

        await stage.proxy(plays(OK))
        monkeypatch.setattr(stage.pool, "acquire", away)
        session = b"Proxy-Authorization: Basic " + b64encode(b"ann-session-c7:") + b"\r\nConn"
        for request in (LAST, LAST.replace(b"Conn", session)):
            answer = await stage.ask(request)
            assert (status_of(answer), body_of(answer)[:38]) == (503, b"the pool did not answer within 0.3 s: ")

    played(play)


def test_a_closed_pool_is_a_503(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(OK))
        await stage.pool.close()
        answer = await stage.ask(LAST)
        assert (status_of(answer), body_of(answer)) == (503, b"the pool is closed\n")

    played(play)
