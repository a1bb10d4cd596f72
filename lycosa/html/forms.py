"""Encode the fields of a form as browsers do (HTML standard, "Form submission").

Fields are a dict, or (name, value) pairs. A value may be a list or tuple of several values; a field with the value None
is omitted. Text is encoded in the encoding of the form; a character that the encoding lacks becomes a character
reference (`&#8364;`). The boundary of a multipart body is a hash of its parts, so that equal forms are equal requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from xxhash import xxh3_128_hexdigest

from lycosa.core.errors import UsageError
from lycosa.core.public import public

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
PLAIN = "text/plain"

FormData = Mapping[Any, Any] | Iterable[tuple[Any, Any]]
Field = tuple[str | bytes, Any]


class BadForm(UsageError, ValueError):
    """The form cannot be found or filled in."""


@public
class FormFile(NamedTuple):
    """A file to upload. Only a multipart body carries its content; other bodies carry only its name."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"


def fields_of(formdata: FormData) -> list[Field]:
    """Return (name, value) pairs in order; an empty list of values becomes None. Raises `BadForm`."""
    pairs = formdata.items() if isinstance(formdata, Mapping) else formdata
    try:
        return [field for name, value in pairs for field in _values(name, value)]
    except (TypeError, ValueError):
        expected = "a dict or a list of (name, value) pairs"
        raise BadForm(f"formdata must be {expected}, not {type(formdata).__name__}") from None


def encode_form(fields: Iterable[Field], kind: str = URLENCODED, encoding: str = "utf-8") -> tuple[bytes, str]:
    """Return the body and its Content-Type. `kind` is URLENCODED, MULTIPART or PLAIN."""
    present = [(name, value) for name, value in fields if value is not None]
    if kind == MULTIPART:
        parts = [_part(name, value, encoding) for name, value in present]
        boundary = "----form" + xxh3_128_hexdigest(b"".join(parts))
        body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
        return body + b"--%s--\r\n" % boundary.encode(), f"{MULTIPART}; boundary={boundary}"
    if kind == PLAIN:
        lines = (_bytes(name, encoding) + b"=" + _bytes(value, encoding) for name, value in present)
        return b"".join(line + b"\r\n" for line in lines), PLAIN
    return encode_query(present, encoding).encode(), URLENCODED


def encode_query(fields: Iterable[Field], encoding: str = "utf-8") -> str:
    """Encode the fields as the query of a URL."""
    query = "&".join(
        f"{quote_plus(_bytes(name, encoding), '*')}={quote_plus(_bytes(value, encoding), '*')}"
        for name, value in fields
        if value is not None
    )
    return query.replace("~", "%7E")  # which `quote_plus` never escapes


def has_files(fields: Iterable[Field]) -> bool:
    """Return whether a field is a file, which only a multipart body can carry."""
    return any(isinstance(value, FormFile) for _, value in fields)


def _values(name: str | bytes, value: Any) -> Iterator[Field]:
    if isinstance(value, (str, bytes, FormFile)) or not isinstance(value, Iterable):
        yield name, value
    else:
        yield from ((name, each) for each in list(value) or [None])


def _bytes(value: Any, encoding: str) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value.name if isinstance(value, FormFile) else str(value)
    return text.encode(encoding, "xmlcharrefreplace")


def _part(name: str | bytes, value: Any, encoding: str) -> bytes:
    head = b'Content-Disposition: form-data; name="%s"' % _quoted(name, encoding)
    if isinstance(value, FormFile):
        head += b'; filename="%s"\r\nContent-Type: %s' % (_quoted(value.name, encoding), value.content_type.encode())
        return head + b"\r\n\r\n" + value.content
    return head + b"\r\n\r\n" + _bytes(value, encoding)


def _quoted(text: str | bytes, encoding: str) -> bytes:
    return _bytes(text, encoding).replace(b"\n", b"%0A").replace(b"\r", b"%0D").replace(b'"', b"%22")
