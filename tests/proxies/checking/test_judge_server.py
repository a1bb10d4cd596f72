"""The judge: what clients with its key get, what others get, and its bounds."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lycosa.core.errors import FetchError, StateError, TlsFailed, UsageError
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.infra.web import http_server
from lycosa.infra.web.listening import Access, PortInUse, open_listener
from lycosa.proxies.checking import judge_server as judge_module
from lycosa.proxies.checking.judge_server import (
    CERTIFICATE_FILE,
    HEAD_MAX,
    KEY_FILE,
    Certificate,
    Judge,
    load_or_create_key,
    run_judge,
)
from lycosa.proxies.core.checks.judging import LOOK, PAGE, JudgeAddress, decode_answer, make_page, parse_judge_address
from tests.conftest import need
from tests.servers.ports import closed_port

NONCE = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    need("openssl", shutil.which("openssl") is not None)
    return Certificate.load_or_create(tmp_path_factory.mktemp("judge"))


def run(scenario: Callable[[Judge], Awaitable[None]], certificate: Certificate | None = None, **options: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), run_judge(certificate, **options) as judge:  # type: ignore[arg-type]
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of a failed handshake
            await scenario(judge)

    asyncio.run(main())


async def request(judge: Judge, message: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", judge.address.port)
    writer.write(message)
    answer = b""
    with suppress(ConnectionResetError):
        answer = await reader.read()
    writer.close()
    return answer


def head(judge: Judge, kind: str, *fields: str) -> bytes:
    target = judge.address.ask(kind, NONCE).partition(f":{judge.address.port}")[2]
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: a", *fields, "", ""]).encode("latin-1")


def test_clients_with_the_key_get_their_request_as_the_judge_saw_it() -> None:
    async def scenario(judge: Judge) -> None:
        answer = await request(judge, head(judge, LOOK, "Via: 1.1 a", "X-Forwarded-For:  10.0.0.1 ", "nonsense"))
        head_, _, body = answer.partition(b"\r\n\r\n")
        assert head_.startswith(b"HTTP/1.1 200 OK\r\n")
        seen = decode_answer(body, judge.address.key, NONCE)
        assert seen is not None
        assert (seen.address, seen.is_tls) == ("127.0.0.1", False)
        assert seen.fields == (("host", "a"), ("via", "1.1 a"), ("x-forwarded-for", "10.0.0.1"))
        assert (judge.answered, judge.rejected) == (1, 0)

    run(scenario)


def test_a_page_is_derived_from_the_nonce() -> None:
    async def scenario(judge: Judge) -> None:
        answer = await request(judge, head(judge, PAGE))
        assert answer.partition(b"\r\n\r\n")[2] == make_page(judge.address.key, NONCE)
        assert b"Content-Type: text/html" in answer

    run(scenario)


def test_clients_without_the_key_learn_nothing() -> None:
    async def scenario(judge: Judge) -> None:
        right = head(judge, LOOK)
        answers = {
            (await request(judge, right.replace(NONCE.encode(), b"f" * 32))),
            (await request(judge, right.replace(b"look", b"page"))),
            (await request(judge, right.replace(b"GET", b"POST"))),
            (await request(judge, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")),
            (await request(judge, b"GET http://[x HTTP/1.1\r\nHost: a\r\n\r\n")),
        }
        assert len(answers) == 1
        assert answers.pop().startswith(b"HTTP/1.1 404 ")
        assert (judge.answered, judge.rejected) == (0, 5)
        assert (await request(judge, b"\x16\x03\x01\x02\x00\r\n\r\n")).startswith(b"HTTP/1.1 400 ")

    run(scenario)


def test_an_absolute_url_in_the_request_is_accepted() -> None:
    async def scenario(judge: Judge) -> None:
        absolute = head(judge, LOOK).replace(b"GET /", b"GET http://judge.example/")
        assert (await request(judge, absolute)).startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_size_time_and_number_of_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "CONNECTIONS_MAX", 2)

    async def scenario(judge: Judge) -> None:
        big = await request(judge, b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_MAX + b"\r\n\r\n")
        assert big.startswith(b"HTTP/1.1 400 ")
        monkeypatch.setattr(http_server, "REQUEST_MAX_S", 0.2)
        assert await request(judge, b"GET / HTTP/1.1\r\n") == b"", "the request is never complete"
        monkeypatch.setattr(http_server, "REQUEST_MAX_S", 30.0)
        idle = [await asyncio.open_connection("127.0.0.1", judge.address.port) for _ in range(2)]
        assert await request(judge, head(judge, LOOK)) == b"", "two connections are open"
        for reader, writer in idle:
            writer.write_eof()
            await reader.read()
            writer.close()
        assert (await request(judge, head(judge, LOOK))).startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_the_certificate_is_recognised_by_its_pin(certificate: Certificate, tmp_path: Path) -> None:
    stranger = JudgeAddress("127.0.0.1", 1, "k" * 32, 2, Certificate.load_or_create(tmp_path).pin)

    async def scenario(judge: Judge) -> None:
        assert parse_judge_address(judge.address.url) == judge.address
        for pins, is_accepted in ((judge.address.curl_pin, True), ("", False), (stranger.curl_pin, False)):
            fetcher = CurlFetcher(FetchSettings(pins=pins, timeout_s=10))
            try:
                response = await fetcher.fetch(Request(judge.address.ask(LOOK, NONCE, tls=True)))
                assert is_accepted
                seen = decode_answer(response.body, judge.address.key, NONCE)
                assert seen is not None
                assert seen.is_tls
            except TlsFailed as error:
                assert not is_accepted
                assert not error.retry
                assert not pins or str(error) == "certificate does not match the pinned key"
            finally:
                await fetcher.close()

    run(scenario, certificate)


def test_key_and_certificate_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    need("openssl", shutil.which("openssl") is not None)
    first, key = Certificate.load_or_create(tmp_path), load_or_create_key(tmp_path)
    assert (Certificate.load_or_create(tmp_path).pin, load_or_create_key(tmp_path)) == (first.pin, key)
    for secret in (KEY_FILE, "judge.key"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0
    (tmp_path / "judge.key").write_text("short")
    with pytest.raises(UsageError, match="has no judge key"):
        load_or_create_key(tmp_path)
    (tmp_path / KEY_FILE).write_text("nonsense")
    with pytest.raises(UsageError, match="are not a certificate and its key"):
        Certificate.load_or_create(tmp_path)


@pytest.mark.parametrize("calls_before", [0, 1])
def test_judges_that_start_together_share_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls_before: int
) -> None:
    """The other judge starts before the first one has created the key, or before it has created the certificate."""
    need("openssl", shutil.which("openssl") is not None)
    run, calls, other = judge_module._openssl, [], []

    def openssl(*words: str) -> str:
        calls.append(words)
        if len(calls) == 1 + calls_before:
            other.append(Certificate.load_or_create(tmp_path))
        return run(*words)

    monkeypatch.setattr(judge_module, "_openssl", openssl)
    first = Certificate.load_or_create(tmp_path)
    assert [first.pin] == [each.pin for each in other] == [Certificate.load_or_create(tmp_path).pin]
    assert {file.name for file in tmp_path.iterdir()} == {KEY_FILE, CERTIFICATE_FILE}


def test_judges_that_start_together_share_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other: list[str] = []

    def new_key() -> str:
        monkeypatch.undo()
        other.append(load_or_create_key(tmp_path))
        return "k" * 32

    monkeypatch.setattr(judge_module, "new_key", new_key)
    assert [load_or_create_key(tmp_path)] == other == [load_or_create_key(tmp_path)]


@pytest.mark.parametrize("lost", [KEY_FILE, CERTIFICATE_FILE])
def test_a_missing_key_or_certificate_is_created_again(tmp_path: Path, lost: str) -> None:
    need("openssl", shutil.which("openssl") is not None)
    pin = Certificate.load_or_create(tmp_path).pin
    (tmp_path / lost).unlink()
    assert (Certificate.load_or_create(tmp_path).pin == pin) is (lost == CERTIFICATE_FILE), "the pin is that of the key"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    for create in (Certificate.load_or_create, load_or_create_key):
        with pytest.raises(UsageError, match=r"cannot be written: no such file or directory$"):
            create(tmp_path / "gone")


def test_without_openssl_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StateError, match="install it, or use --no-tls"):
        Certificate.load_or_create(tmp_path)


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def main() -> None:
            async with run_judge(port=port):
                pass

        with pytest.raises(StateError, match=f"127.0.0.1:{port}: cannot listen there: address already in use$"):
            asyncio.run(main())


@pytest.mark.parametrize("named", ["port", "tls_port"])
def test_a_named_port_is_not_given_to_the_other_server(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    reserved = closed_port()

    def listen(host: str, port: int, where: str, access: Access) -> socket.socket:
        try:
            return open_listener(host, port or reserved, where, access)  # the worst that the system may choose
        except PortInUse:
            return open_listener(host, port, where, access)

    monkeypatch.setattr(judge_module, "open_listener", listen)

    async def main() -> None:
        async with run_judge(certificate, **{named: reserved}) as judge:  # type: ignore[arg-type]
            assert getattr(judge.address, named) == reserved

    asyncio.run(main())


def test_a_judge_serves_ipv6(certificate: Certificate) -> None:
    need("IPv6", socket.has_ipv6 and Path("/proc/net/if_inet6").exists())

    async def scenario(judge: Judge) -> None:
        assert judge.address.host == "[::1]"
        fetcher = CurlFetcher(FetchSettings(pins=judge.address.curl_pin, timeout_s=10))
        try:
            for tls in (False, True):
                response = await fetcher.fetch(Request(judge.address.ask(LOOK, NONCE, tls=tls)))
                seen = decode_answer(response.body, judge.address.key, NONCE)
                assert seen is not None
                assert seen.address == "::1"
        except FetchError as error:
            raise AssertionError(error) from None
        finally:
            await fetcher.close()

    run(scenario, certificate, host="::1")


def test_the_context_requires_tls_1_2(certificate: Certificate) -> None:
    assert certificate.context.minimum_version >= ssl.TLSVersion.TLSv1_2
