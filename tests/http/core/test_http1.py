"""Heads and bodies of HTTP/1 as a proxy reads them (P6): ambiguous messages are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadMessage
from lycosa.http.core.http1.forward import (
    encode_request,
    encode_response,
    is_connection_bound,
    is_kept,
    is_reusable,
    read_target,
)
from lycosa.http.core.http1.framing import (
    CHUNK_LINE_MAX,
    LAST_CHUNK,
    TRAILERS_MAX,
    ChunkedReader,
    ContentLengthReader,
    UntilCloseReader,
    encode_chunk,
    request_body_reader,
    response_body_reader,
)
from lycosa.http.core.http1.head import FIELDS_MAX, HEAD_MAX, TARGET_MAX, head_end, read_request, read_response


def request(*fields: str, line: str = "GET http://shop.example/ HTTP/1.1"):
    return read_request("\r\n".join([line, "Host: shop.example", *fields, "", ""]).encode("latin-1"))


def response(*fields: str, line: str = "HTTP/1.1 200 OK"):
    return read_response("\r\n".join([line, *fields, "", ""]).encode("latin-1"))


def test_request_head_is_parsed():
    head = read_request(b"PUT http://a.example/x?y HTTP/1.1\r\nhOST:  a.example \r\nX-Odd:\r\nCookie: \xfc=1\r\n\r\n")
    assert (head.method, head.target, head.minor) == (b"PUT", b"http://a.example/x?y", 1)
    assert head.values(b"host") == [b"a.example"]
    assert head.fields == [(b"host", b"hOST:  a.example "), (b"x-odd", b"X-Odd:"), (b"cookie", b"Cookie: \xfc=1")]


def test_response_head_is_parsed():
    assert read_response(b"HTTP/1.0 404 Not Found\r\n\r\n")[:3] == (404, b"Not Found", 0)
    assert read_response(b"HTTP/1.1 200\r\n\r\n").reason == b""
    assert read_response(b"HTTP/1.1 200 \r\nA: b\r\n\r\n").fields == [(b"a", b"A: b")]


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, "folded"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400, "folded"),
        (b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET  / HTTP/1.1\r\n\r\n", 400, "first line"),
        (b"GET /a b HTTP/1.1\r\n\r\n", 400, "first line"),
        (b"GET /\tb HTTP/1.1\r\n\r\n", 400, "first line"),
        (b"GET / HTTP/1.1 \r\n\r\n", 400, "first line"),
        (b"GET / http/1.1\r\n\r\n", 400, "first line"),
        (b"GET /\r\n\r\n", 400, "first line"),
        (b"G@T / HTTP/1.1\r\n\r\n", 400, "first line"),
        (b"GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"),
        (b"PRI * HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"),
        (b"GET / HTTP/1.2\r\n\r\n", 400, "first line"),
        (b"GET /" + b"a" * TARGET_MAX + b" HTTP/1.1\r\n\r\n", 414, "longer"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (FIELDS_MAX + 1) + b"\r\n", 431, "fields"),
    ],
)
def test_invalid_request_heads_are_refused(head: bytes, status: int, reason: str):
    with pytest.raises(BadMessage, match=reason) as raised:
        read_request(head)
    assert raised.value.status == status


@pytest.mark.parametrize(
    "head", [b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\na : b\r\n\r\n"]
)
def test_invalid_response_heads_are_refused(head: bytes):
    with pytest.raises(BadMessage, match="not HTTP/1"):
        read_response(head)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data: bytes):
    for read in (read_request, read_response):
        for text in (data, data + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n"):
            try:
                head = read(text)
            except BadMessage:
                continue
            assert all(b"\r" not in line and b"\n" not in line and b"\0" not in line for _, line in head.fields)


def test_end_of_a_head_is_found_in_pieces():
    message = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"
    assert [head_end(message[:n], n - 1) for n in (1, 25, 26, 27)] == [0, 0, 0, 27]
    assert head_end(message) == 27
    assert head_end(b"a" * (HEAD_MAX - 1)) == 0
    with pytest.raises(BadMessage, match="longer"):
        head_end(b"a" * HEAD_MAX)


# --- bodies


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (("Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (("Content-Length: 5", "Content-Length: 5"), 400),
        (("Content-Length: 5", "Content-Length: 6"), 400),
        (("Content-Length: 5, 5",), 400),
        (("Content-Length: +5",), 400),
        (("Content-Length: -5",), 400),
        (("Content-Length: 0x5",), 400),
        (("Content-Length: 1_0",), 400),
        (("Content-Length:",), 400),
        (("Content-Length: 9999999999999999999",), 400),
        (("Transfer-Encoding: gzip, chunked",), 501),
        (("Transfer-Encoding: chunked, identity",), 501),
        (("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 501),
        (("Transfer-Encoding: xchunked",), 501),
        (("Transfer-Encoding:",), 501),
        (("Transfer-Encoding: chunked;a=b",), 501),
    ],
)
def test_requests_with_an_ambiguous_end_are_refused(fields: tuple[str, ...], status: int):
    with pytest.raises(BadMessage) as raised:
        request_body_reader(request(*fields))
    assert raised.value.status == status


def test_chunks_in_http_1_0_are_refused():
    with pytest.raises(BadMessage, match=r"HTTP/1\.0"):
        request_body_reader(request("Transfer-Encoding: chunked", line="POST http://a.example/ HTTP/1.0"))


def test_readers_of_request_bodies():
    assert request_body_reader(request()).done
    assert request_body_reader(request("Content-Length: 0")).done
    assert request_body_reader(request("Content-Length: 7")).feed(b"1234567GET") == (b"1234567", b"GET")
    assert isinstance(request_body_reader(request("transfer-encoding: Chunked")), ChunkedReader)


@pytest.mark.parametrize(
    ("head", "method", "kind"),
    [
        (response("Content-Length: 5"), b"GET", ContentLengthReader),
        (response("Transfer-Encoding: chunked"), b"GET", ChunkedReader),
        (response(), b"GET", UntilCloseReader),
        (response(line="HTTP/1.0 200 OK"), b"GET", UntilCloseReader),
    ],
)
def test_readers_of_response_bodies(head, method: bytes, kind: type):
    body = response_body_reader(head, method)
    assert isinstance(body, kind)
    assert not body.done


@pytest.mark.parametrize(
    ("head", "method"),
    [
        (response("Content-Length: 5"), b"HEAD"),
        (response("Transfer-Encoding: chunked"), b"HEAD"),
        (response("Content-Length: 5", line="HTTP/1.1 304 Not Modified"), b"GET"),
        (response(line="HTTP/1.1 204 No Content"), b"GET"),
    ],
)
def test_responses_without_a_body(head, method: bytes):
    assert response_body_reader(head, method).done


@pytest.mark.parametrize(
    "head",
    [
        response("Content-Length: 5", "Transfer-Encoding: chunked"),
        response("Content-Length: 5", "Content-Length: 4"),
        response("Transfer-Encoding: gzip"),
        response("Transfer-Encoding: chunked", line="HTTP/1.0 200 OK"),
    ],
)
def test_responses_with_an_ambiguous_end_are_refused(head):
    with pytest.raises(BadMessage):
        response_body_reader(head, b"GET")


def feed(data: bytes, size: int) -> tuple[bytes, bytes, ChunkedReader]:
    """Feed a chunked body in pieces of this size. Return its content, the data after its end, and the reader."""
    body, content, rest = ChunkedReader(), b"", b""
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        if body.done:
            rest += piece
        else:
            payload, behind = body.feed(piece)
            content, rest = content + payload, rest + behind
    return content, rest, body


CHUNKED = b'5\r\nhello\r\n00A ; name="v"\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\nGET next'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_in_pieces_of_any_size(size: int):
    content, rest, body = feed(CHUNKED, size)
    assert (content, rest, body.done) == (b"hello, world!!!", b"GET next", True)


@given(st.lists(st.binary(max_size=60)), st.integers(1, 80))
def test_encoded_chunks_are_decoded(parts: list[bytes], size: int):
    data = b"".join(encode_chunk(part) for part in parts) + LAST_CHUNK
    content, rest, body = feed(data + b"behind", size)
    assert (content, rest, body.done) == (b"".join(parts), b"behind", True)


@pytest.mark.parametrize(
    "data",
    [
        b"g\r\n",
        b"\r\n",
        b"-1\r\nx\r\n",
        b"+1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b" 1\r\nx\r\n",
        b"1\nx\n",
        b"1;a\nb\r\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n\r",
        b"1\r\nx\rX",
        b"fffffffffffffffff\r\n",
        b"1;" + b"a" * CHUNK_LINE_MAX + b"\r\n",
        b"1;" + b"a" * CHUNK_LINE_MAX,
        b"0\r\n" + b"a: b\r\n" * (TRAILERS_MAX // 6 + 1),
        b"0\r\nx: \0\r\n\r\n",
        b"0\r\nx: a\nb\r\n\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 10_000])
def test_bad_chunks_are_refused(data: bytes, size: int):
    with pytest.raises(BadMessage):
        feed(data, size)


@given(st.binary(max_size=100), st.integers(1, 20))
def test_any_bytes_are_chunks_or_refused(data: bytes, size: int):
    try:
        content, rest, _ = feed(data, size)
    except BadMessage:
        return
    assert len(content) + len(rest) <= len(data)


# --- passing on


def test_hop_by_hop_fields_are_not_forwarded():
    head = request(
        "Connection: x-mine, Keep-Alive",
        "X-Mine: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic c2VjcmV0",
        "TE: trailers",
        "Upgrade: h2c",
        "HTTP2-Settings: x",
        "X-Yours: 2",
        "Accept: */*",
    )
    target, path = read_target(head)
    assert encode_request(head, target, path, ContentLengthReader(0), absolute_form=True, login=b"Basic dXM=") == (
        b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nX-Yours: 2\r\nAccept: */*\r\n"
        b"Proxy-Authorization: Basic dXM=\r\n\r\n"
    )


def test_host_of_the_target_replaces_the_host_field():
    head = read_request(b"GET http://a.example:8080?q HTTP/1.1\r\nX: y\r\nhost: b.example\r\n\r\n")
    target, path = read_target(head)
    assert encode_request(head, target, path, ContentLengthReader(0), absolute_form=False) == (
        b"GET /?q HTTP/1.1\r\nX: y\r\nhost: a.example:8080\r\n\r\n"
    )


def test_chunked_body_is_announced_as_chunked():
    head = request("Transfer-Encoding: chunked", line="POST http://a.example/ HTTP/1.1")
    sent = encode_request(head, *read_target(head), ChunkedReader(), absolute_form=True)
    assert sent.endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert sent.count(b"chunked") == 1


@pytest.mark.parametrize("named", ["host", "content-length", "close, Host"])
def test_connection_field_may_not_name_host_or_content_length(named: str):
    head = request(f"Connection: {named}", "Content-Length: 0")
    with pytest.raises(BadMessage, match="Connection"):
        encode_request(head, *read_target(head), ContentLengthReader(0), absolute_form=True)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET https://shop.example/ HTTP/1.1", 501),
        ("GET ftp://shop.example/ HTTP/1.1", 501),
        ("GET shop.example HTTP/1.1", 400),
        ("GET http:///path HTTP/1.1", 400),
        ("GET http://ann:secret@shop.example/ HTTP/1.1", 400),
        ("GET http://shop.example:99999/ HTTP/1.1", 400),
        ("GET http://shop.example:0/ HTTP/1.1", 400),
        ("GET http://shop.example/#part HTTP/1.1", 400),
        ("GET http://shop.example:80:80/ HTTP/1.1", 400),
        ("GET http://[::1/ HTTP/1.1", 400),
        ("GET http://a\\b/ HTTP/1.1", 400),
        ("GET http://a%00b/ HTTP/1.1", 400),
    ],
)
def test_invalid_targets_are_refused(line: str, status: int):
    with pytest.raises(BadMessage) as raised:
        read_target(request(line=line))
    assert raised.value.status == status


def test_two_host_fields_or_none_are_refused():
    for fields in ("", "Host: a.example\r\nHost: a.example\r\n"):
        head = read_request(f"GET http://a.example/ HTTP/1.1\r\n{fields}\r\n".encode())
        with pytest.raises(BadMessage, match="Host"):
            read_target(head)
    assert read_target(read_request(b"GET http://a.example HTTP/1.0\r\n\r\n"))[1] == b"/"


def test_connections_that_are_kept():
    assert is_kept(request())
    assert not is_kept(request("Connection: foo, Close"))
    assert not is_kept(request("Proxy-Connection: close"))
    assert not is_kept(request(line="GET http://a.example/ HTTP/1.0"))
    assert is_reusable(response(), ContentLengthReader(3))
    assert not is_reusable(response(), UntilCloseReader())
    assert not is_reusable(response("connection: close"), ContentLengthReader(3))
    assert not is_reusable(response(line="HTTP/1.0 200 OK"), ContentLengthReader(3))


def test_logins_that_bind_a_connection():
    assert is_connection_bound(request("Authorization: NTLM TlRMTVNTUAAB"))
    assert is_connection_bound(response("WWW-Authenticate: Basic realm=x", "WWW-Authenticate: Negotiate"))
    assert not is_connection_bound(request("Authorization: Bearer negotiate"))


def test_response_head_for_the_client():
    head = response("Server: x", "Connection: keep-alive", "X-Proxy-Lease: forged", "Content-Length: 3")
    assert encode_response(head, [b"X-Proxy-Lease: a-1"], close=True) == (
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 3\r\nX-Proxy-Lease: a-1\r\nConnection: close\r\n\r\n"
    )
