"""Parse the heads of HTTP/1 messages (RFC 9112): bytes in, values or `BadMessage` out.

Parsing is strict, because the next server may be lenient in a different way and see a request that we do not see
(request smuggling): lines end in CRLF, no field is folded, no whitespace precedes a colon, there are no control
characters.
llhttp is too lenient, does not keep the original lines, and would be no faster from Python.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lycosa.core.errors import BadMessage

HEAD_MAX = 65_536
"""Maximum bytes of a head. nginx and Apache allow 8 KiB per line, Chromium 256 KiB per head."""

TARGET_MAX = 16_384

FIELDS_MAX = 200

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
FIELD = TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n"
REQUEST = re.compile(
    rb"(?P<method>%b) (?P<target>[\x21-\x7e\x80-\xff]+) HTTP/1\.(?P<minor>[01])\r\n(?P<fields>(?:%b)*+)\r\n"
    % (TOKEN, FIELD)
)
RESPONSE = re.compile(
    rb"HTTP/1\.(?P<minor>[01]) (?P<status>[1-9][0-9][0-9])(?: (?P<reason>[\t\x20-\x7e\x80-\xff]*+))?\r\n"
    rb"(?P<fields>(?:%b)*+)\r\n" % FIELD
)
END = b"\r\n\r\n"

READ = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"connection", b"proxy-connection", b"expect",
        b"authorization", b"proxy-authorization", b"www-authenticate", b"max-forwards", b"content-type",
        b"retry-after", b"location", b"content-encoding",
    }
)  # fmt: skip
"""Fields whose values are used; all others are only forwarded."""

Field = tuple[bytes, bytes]
"""The name in lower case, and the original line without the line break."""

Values = dict[bytes, list[bytes]]
"""The values of the fields in READ, without leading and trailing whitespace."""


class RequestHead(NamedTuple):
    """The head of a request; `minor` is the second digit of the version."""

    method: bytes
    target: bytes
    minor: int
    fields: list[Field]
    read: Values

    def values(self, name: bytes) -> list[bytes]:
        """The name must be in READ."""
        return self.read.get(name, [])


class ResponseHead(NamedTuple):
    """The head of a response."""

    status: int
    reason: bytes
    minor: int
    fields: list[Field]
    read: Values

    def values(self, name: bytes) -> list[bytes]:
        """The name must be in READ."""
        return self.read.get(name, [])


def head_end(data: bytes | bytearray, since: int = 0) -> int:
    """Return the length of the head at the start of `data`; 0 if it is incomplete.

    The first `since` bytes were searched before. Raises `BadMessage` (431) for a head that is too long.
    """
    end = data.find(END, max(0, since - len(END) + 1), HEAD_MAX)
    if end < 0:
        if len(data) >= HEAD_MAX:
            raise BadMessage(f"the head is longer than {HEAD_MAX:,} bytes", 431)
        return 0
    return end + len(END)


def read_request(head: bytes) -> RequestHead:
    """Parse a complete head. Raises `BadMessage`."""
    found = REQUEST.fullmatch(head)
    if found is None:
        raise BadMessage(*_explain(head))
    method, target, minor, fields = found.groups()
    if len(target) > TARGET_MAX:
        raise BadMessage(f"the address is longer than {TARGET_MAX:,} bytes", 414)
    return RequestHead(method, target, 1 if minor == b"1" else 0, *_fields(fields))


def read_response(head: bytes) -> ResponseHead:
    """Parse a complete head. Raises `BadMessage`."""
    found = RESPONSE.fullmatch(head)
    if found is None:
        raise BadMessage("the response is not HTTP/1")
    minor, status, reason, fields = found.groups()
    return ResponseHead(int(status), reason or b"", 1 if minor == b"1" else 0, *_fields(fields))


def elements(values: list[bytes]) -> list[bytes]:
    """Return the elements of a list (RFC 9110 §5.6.1), in lower case."""
    return [name for value in values for each in value.split(b",") if (name := each.strip(b" \t").lower())]


def _fields(block: bytes) -> tuple[list[Field], Values]:
    if block.count(b"\r\n") > FIELDS_MAX:
        raise BadMessage(f"more than {FIELDS_MAX} fields", 431)
    fields: list[Field] = []
    read: Values = {}
    for line in block.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        fields.append((name, line))
        if name in READ:
            read.setdefault(name, []).append(value.strip(b" \t"))
    return fields, read


def _explain(head: bytes) -> tuple[str, int]:
    """Return what is wrong with a request, and the status to answer with. The text does not quote the request."""
    line, _, rest = head.partition(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not re.fullmatch(TOKEN, parts[0]):
        return "the first line is not METHOD TARGET HTTP/1.1", 400
    if re.fullmatch(rb"HTTP/[0-9]\.[0-9]", parts[2]) and not parts[2].startswith(b"HTTP/1."):
        return "only HTTP/1.1 is supported", 505
    if re.search(rb"[\x00-\x1f\x7f]", line) or not re.fullmatch(rb"HTTP/1\.[01]", parts[2]):
        return "the first line is not METHOD TARGET HTTP/1.1", 400
    for each in rest.split(b"\r\n")[:-2]:
        if each[:1] in (b" ", b"\t"):
            return "a field is folded over several lines (RFC 9112 §5.2)", 400
        if not re.fullmatch(FIELD, each + b"\r\n"):
            return "a field is not NAME: VALUE (RFC 9112 §5)", 400
    return "the head is not HTTP/1.1", 400
