"""Rewrite the heads of HTTP/1 messages for the next hop (RFC 9110 §7.6, RFC 9112 §3.2).

Fields keep their order and spelling, since sites check both. Via, Forwarded and X-Forwarded-For are not added: they
would reveal the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lycosa.core.errors import BadMessage
from lycosa.http.core.destination import Destination, parse_authority
from lycosa.http.core.http1.framing import BodyReader, ChunkedReader
from lycosa.http.core.http1.head import Field, RequestHead, ResponseHead, elements

HOP_BY_HOP = frozenset(
    {
        b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"proxy-authorization", b"proxy-authenticate", b"proxy-authentication-info", b"http2-settings",
        b"x-proxy-lease",
    }
)  # fmt: skip
"""Fields that are never forwarded, whether or not Connection names them. Only we may set x-proxy-lease."""

FRAMING = frozenset({b"host", b"content-length"})
"""Fields that Connection must not name: removing them would change the meaning of the message."""

ABSOLUTE = re.compile(rb"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)")
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})
"""Methods whose requests may be repeated (RFC 9110 §9.2.2)."""


def read_target(head: RequestHead) -> tuple[Destination, bytes]:
    """Return the destination of a request in absolute form, and its path with the query. Raises `BadMessage`."""
    found = ABSOLUTE.fullmatch(head.target)
    if found is None:
        raise BadMessage("the address is not http://HOST/PATH")
    if found["scheme"].lower() != b"http":
        raise BadMessage("only http:// requests are forwarded: use CONNECT for others", 501)
    if head.minor and len(head.values(b"host")) != 1:
        raise BadMessage("the request needs exactly one Host field (RFC 9112 §3.2)")
    rest = found["rest"]
    return parse_authority(found["authority"], 80), rest if rest.startswith(b"/") else b"/" + rest


def check_connection_field(head: RequestHead | ResponseHead) -> None:
    """Raise `BadMessage` for a Connection field that names one of FRAMING."""
    if not FRAMING.isdisjoint(_options(head)):
        raise BadMessage("Connection names a field that it must not name (RFC 9110 §7.6.1)")


def is_kept(head: RequestHead) -> bool:
    """Whether the client keeps its connection open."""
    return bool(head.minor) and b"close" not in _options(head)


def is_reusable(head: ResponseHead, body: BodyReader) -> bool:
    """Whether the connection may be reused after the body of the response."""
    return bool(head.minor) and not body.open_ended and b"close" not in _options(head)


def is_connection_bound(head: RequestHead | ResponseHead) -> bool:
    """Whether a message authenticates its connection (NTLM, Negotiate), which must then not be shared."""
    read = head.read
    if b"authorization" not in read and b"www-authenticate" not in read:
        return False
    logins = head.values(b"authorization") + head.values(b"www-authenticate")
    return any(value[:9].lower().startswith((b"ntlm", b"negotiate")) for value in logins)


def encode_request(
    head: RequestHead, to: Destination, path: bytes, body: BodyReader, *, absolute_form: bool, login: bytes = b""
) -> bytes:
    """Return the head to forward.

    The target is a full URL with `absolute_form` (for an HTTP proxy), otherwise only the path. `login` is the
    Proxy-Authorization to add. Raises `BadMessage` for a Connection field that names one of FRAMING.
    """
    authority = to.host_field(80)
    lines = [b"%b %b HTTP/1.1" % (head.method, b"http://" + authority + path if absolute_form else path)]
    if not head.values(b"host"):
        lines.append(b"Host: " + authority)
    # The Host field is replaced by the authority of the target, which was checked (RFC 9112 §3.2.2).
    lines += [line[:4] + b": " + authority if name == b"host" else line for name, line in _forwarded(head)]
    if isinstance(body, ChunkedReader):
        lines.append(b"Transfer-Encoding: chunked")
    if login:
        lines.append(b"Proxy-Authorization: " + login)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def encode_response(
    head: ResponseHead, more: Iterable[bytes] = (), *, chunked: bool = False, close: bool = False
) -> bytes:
    """Return the head of a response for the client, with `more` lines added."""
    lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason), *(line for _, line in _forwarded(head)), *more]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _options(head: RequestHead | ResponseHead) -> list[bytes]:
    read = head.read
    if b"connection" not in read and b"proxy-connection" not in read:
        return []
    return elements(head.values(b"connection") + head.values(b"proxy-connection"))


def _forwarded(head: RequestHead | ResponseHead) -> list[Field]:
    dropped = HOP_BY_HOP
    if options := _options(head):
        check_connection_field(head)
        dropped = HOP_BY_HOP.union(options)
    return [field for field in head.fields if field[0] not in dropped]
