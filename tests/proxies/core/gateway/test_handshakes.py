"""Messages of SOCKS and CONNECT, as servers and as clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadMessage, ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway import socks
from lycosa.proxies.core.gateway.handshakes import handshake_for
from lycosa.proxies.core.proxy import parse_proxy

NAME, V4, V6 = Destination("shop.example", 443), Destination("93.184.216.34", 80), Destination("2001:db8::1", 443)


def run_handshake(url: str, to: Destination, answers: list[bytes]) -> tuple[list[bytes], bytes]:
    """Run a handshake with these replies, received byte by byte. Return the sent messages, and the bytes after the end.

    Then run the handshake again, and receive the last reply together with more bytes.
    """
    handshake = handshake_for(parse_proxy(url), to)
    sent = [handshake.opening]
    for answer in answers:
        assert not handshake.done
        out = b"".join(handshake.receive(answer[n : n + 1]) for n in range(len(answer) - 1))
        sent.append(out + handshake.receive(answer[-1:]))
    assert handshake.done
    second = handshake_for(parse_proxy(url), to)
    for answer in answers[:-1]:
        second.receive(answer)
    second.receive(answers[-1] + b"behind")
    assert (second.done, second.rest) == (True, b"behind")
    return sent, handshake.rest


def failure_of(url: str, to: Destination, answers: list[bytes]) -> ProxyFailed:
    with pytest.raises(ProxyFailed) as raised:
        run_handshake(url, to, answers)
    return raised.value


def test_connect_sends_the_login_and_skips_interim_responses():
    sent, _ = run_handshake(
        "http://ann:se%3Acret@p.example:3128", NAME, [b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n"]
    )
    assert sent[0] == (
        b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n"
        b"Proxy-Authorization: Basic YW5uOnNlOmNyZXQ=\r\n\r\n"
    )
    assert run_handshake("http://p.example:1", V6, [b"HTTP/1.0 200 OK\r\n\r\n"])[0][0].startswith(
        b"CONNECT [2001:db8::1]:443 "
    )


@pytest.mark.parametrize(
    ("answer", "behind", "words"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", False, "refused the login"),
        (b"HTTP/1.1 403 No\r\n\r\n", True, "answered 403"),
        (b"HTTP/1.1 502 No\r\n\r\n", True, "answered 502"),
        (b"HTTP/1.1 301 Go\r\nLocation: x\r\n\r\n", True, "answered 301"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", False, "invalid HTTP"),
        (b"x" * 70_000, False, "invalid HTTP"),
    ],
)
def test_a_refused_connect_raises_with_the_status(answer: bytes, behind: bool, words: str):
    # `behind`: whether the failure is behind the proxy, so that the proxy itself was reached.
    error = failure_of("http://ann:secret@p.example:1", NAME, [answer] if len(answer) < 1000 else [answer, b"x"])
    assert error.reached is behind
    assert words in str(error)
    assert "secret" not in str(error)


def test_socks_4_requests_and_replies():
    done = [bytes((0, 90)) + bytes(6)]
    assert run_handshake("socks4://me@p.example", V4, done)[0] == [b"\x04\x01\x00\x50\x5d\xb8\xd8\x22me\x00", b""]
    assert (
        run_handshake("socks4a://p.example", NAME, done)[0][0]
        == b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00shop.example\x00"
    )
    assert failure_of("socks4a://p.example", NAME, [bytes((0, 91)) + bytes(6)]).reached
    assert not failure_of("socks4://p.example", V4, [bytes((0, 93)) + bytes(6)]).reached
    assert not failure_of("socks4://p.example", V4, [b"HTTP/1.1 400"]).reached
    assert failure_of("socks4a://p.example", V6, []).reached


def test_socks_5_requests_and_replies():
    done = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    assert run_handshake("socks5h://p.example", NAME, [b"\x05\x00", done])[0] == [
        b"\x05\x01\x00", b"\x05\x01\x00\x03\x0cshop.example\x01\xbb", b"",
    ]  # fmt: skip
    assert run_handshake("socks5://ann:secret@p.example", V4, [b"\x05\x02", b"\x01\x00", done])[0] == [
        b"\x05\x02\x00\x02", b"\x01\x03ann\x06secret", b"\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x50", b"",
    ]  # fmt: skip
    for bound in (b"\x04" + bytes(16), b"\x03\x05a.b.c"):
        assert run_handshake("socks5h://p.example", V6, [b"\x05\x00", b"\x05\x00\x00" + bound + b"\x00\x50"])[1] == b""


@pytest.mark.parametrize(
    ("answers", "behind", "words"),
    [
        ([b"\x05\xff"], False, "refused the login"),
        ([b"\x05\x02"], False, "refused the login"),
        ([b"\x04\x00"], False, "invalid SOCKS 5"),
        ([b"HTTP/1.1 400 Bad"], False, "invalid SOCKS 5"),
        ([b"\x05\x00", b"\x05\x05\x00\x01\x00"], True, "connection refused"),
        ([b"\x05\x00", b"\x05\x04\x00\x01\x00"], True, "host unreachable"),
        ([b"\x05\x00", b"\x05\x63\x00\x01\x00"], True, "failure"),
        ([b"\x05\x00", b"\x05\x00\x00\x09\x00"], False, "invalid SOCKS 5"),
    ],
)
def test_a_refused_socks_5_request_raises_with_the_reason(answers: list[bytes], behind: bool, words: str):
    error = failure_of("socks5h://p.example", NAME, answers)
    assert (error.reached, words in str(error)) == (behind, True)


def test_a_refused_password_of_socks_5_is_not_shown():
    error = failure_of("socks5h://ann:secret@p.example", NAME, [b"\x05\x02", b"\x01\x01"])
    assert not error.reached
    assert "secret" not in str(error)


@given(st.binary(max_size=60), st.sampled_from(["http", "socks4a", "socks5h"]))
def test_any_reply_of_a_proxy_is_parsed_or_refused(data: bytes, scheme: str):
    handshake = handshake_for(parse_proxy(f"{scheme}://ann:secret@p.example:1"), NAME)
    try:
        for n in range(len(data)):
            if handshake.done:
                break
            handshake.receive(data[n : n + 1])
    except ProxyFailed:
        pass


# --- as a server


def test_greetings_are_parsed():
    assert socks.read_methods(b"\x05\x02\x00\x02rest") == (b"\x00\x02", 4)
    for part in (b"", b"\x05", b"\x05\x02\x00"):
        assert socks.read_methods(part) is None


def test_logins_are_parsed():
    assert socks.read_login(b"\x01\x03ann\x06secretrest") == (("ann", "secret"), 12)
    assert socks.read_login(b"\x01\x00\x00") == (("", ""), 3)
    for length in range(12):
        assert socks.read_login(b"\x01\x03ann\x06secret"[:length]) is None
    with pytest.raises(BadMessage):
        socks.read_login(b"\x05\x03ann\x06secret")


@pytest.mark.parametrize(
    ("message", "to"),
    [
        (b"\x05\x01\x00\x03\x0cShop.Example\x01\xbb", NAME),
        (b"\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x50", V4),
        (b"\x05\x01\x00\x04\x20\x01\x0d\xb8" + bytes(11) + b"\x01\x01\xbb", V6),
        (b"\x05\x01\x00\x03\x060x7f.1\x00\x50", Destination("127.0.0.1", 80)),
    ],
)
def test_requests_are_parsed(message: bytes, to: Destination):
    assert socks.read_request(message + b"rest") == ((1, to), len(message))
    for length in range(len(message)):
        assert socks.read_request(message[:length]) is None


@pytest.mark.parametrize(
    "message",
    [
        b"\x04\x01\x00\x01\x5d\xb8\xd8\x22\x00\x50",
        b"\x05\x01\x01\x01\x5d\xb8\xd8\x22\x00\x50",
        b"\x05\x01\x00\x02\x5d\xb8\xd8\x22\x00\x50",
        b"\x05\x01\x00\x03\x00\x00\x50\x00\x00",
        b"\x05\x01\x00\x03\x05a b c\x00\x50",
        b"\x05\x01\x00\x03\x05a@b.c\x00\x50",
        b"\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x00",
    ],
)
def test_invalid_requests_are_refused(message: bytes):
    with pytest.raises(BadMessage):
        socks.read_request(message)


@given(st.binary(max_size=300))
def test_any_bytes_of_a_client_are_parsed_or_refused(data: bytes):
    for read in (socks.read_methods, socks.read_login, socks.read_request):
        try:
            found = read(data)
        except BadMessage:
            continue
        assert found is None or 0 < found[1] <= len(data)
