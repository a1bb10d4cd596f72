"""Canonical URLs, host keys and fingerprints.

The canonical form is ada's WHATWG serialisation without the fragment: scheme and host in lower case, no default port,
dot segments resolved, query order kept, pure ASCII. Only http and https are accepted. A user name or password is
refused, because canonical URLs are stored, logged and written to the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import ada_url
from xxhash import xxh3_64_intdigest

from lycosa.core.errors import BadUrl

URL_MAX = 8192
"""Maximum length of a URL in characters, before and after canonicalization."""

FINGERPRINT_KEY = 0x4C79_636F_7361_0001
PARTS_KEY = 0x4C79_636F_7361_0002
"""Hash keys of `fingerprint`: the first for GET requests without a body, the second for all others. A change makes
every stored state unreadable."""

JOINED_MAX = 4096
"""Maximum number of cached results of `join`. A link is first joined and then canonicalized; the second step only looks
into the cache."""

_joined: set[str] = set()

SHOWN_MAX = 100
"""Maximum characters of a bad URL in a message."""


def canonicalize(url: str) -> str:
    """Return the canonical form of an absolute http(s) URL. Raises `BadUrl`, which says what to write."""
    if url in _joined:
        return url
    if len(url) <= URL_MAX:
        try:
            canonical = _accepted(ada_url.normalize_url(url))
        except ValueError:
            canonical = None
        if canonical is not None:
            return canonical
    raise BadUrl(_explain(url))


def join(base_url: str, href: str) -> str | None:
    """Return the canonical URL of `href` on the page `base_url`; None if it cannot be crawled."""
    if len(href) > URL_MAX:
        return None
    try:
        joined = _accepted(ada_url.join_url(base_url, href))
    except ValueError:
        return None
    if joined is not None:
        if len(_joined) >= JOINED_MAX:
            _joined.clear()  # cheaper than an LRU, and the set is refilled by the next pages
        _joined.add(joined)
    return joined


def redirect_target(url: str, location: str) -> str | None:
    """Return the canonical URL of a Location field; None if it cannot be crawled.

    Non-ASCII octets (read as Latin-1) are percent-escaped one by one, since their encoding is unknown.
    """
    if not location:
        return None  # `join` would return the page itself
    return join(url, location if location.isascii() else "".join(map(_escaped, location)))


def host_key(canonical: str) -> str:
    """Return scheme, host and port of a canonical URL: `https://example.com:443`."""
    origin = canonical[: canonical.find("/", 8)]
    if origin.find(":", 6) == -1 or origin[-1] == "]":
        return origin + (":443" if canonical[4] == "s" else ":80")
    return origin


def host_name(key: str) -> str:
    """Return the host of a host key: `[::1]` for `http://[::1]:80`."""
    return key.partition("://")[2].rpartition(":")[0]


def fingerprint(method: str, url: str, body: bytes = b"") -> int:
    """Return a 64-bit hash of method (case-insensitive), canonical URL and body."""
    if not body and (method == "GET" or method.upper() == "GET"):
        return xxh3_64_intdigest(url.encode(), FINGERPRINT_KEY)
    verb = method.upper()
    # The lengths make the concatenation unambiguous.
    head = f"{len(verb)} {len(url)} {verb}{url}".encode("utf-8", "surrogatepass")
    return xxh3_64_intdigest(head + body, PARTS_KEY)


def add_params(url: str, params: Mapping[str, Any] | None) -> str:
    """Add `params` to the query of a URL."""
    if not params:
        return url
    address, mark, fragment = url.partition("#")
    return address + ("&" if "?" in address else "?") + urlencode(params, doseq=True) + mark + fragment


def _accepted(href: str) -> str | None:
    """Drop the fragment. Return None if the URL is too long, not http(s), or has a login."""
    if "#" in href:  # ada escapes every other '#'
        href = href[: href.index("#")]
    if len(href) > URL_MAX or not href.startswith(("http://", "https://")):
        return None
    if "@" in href and "@" in href[: href.find("/", 8)]:
        return None
    return href


def _escaped(character: str) -> str:
    return character if character.isascii() else f"%{ord(character):02X}"


def _explain(url: str) -> str:
    shown = repr(url if len(url) <= SHOWN_MAX else url[:SHOWN_MAX] + "...")
    text = url.strip()
    if not text:
        return "the URL is empty: write one like https://example.com"
    if len(url) > URL_MAX:
        return f"{shown} is {len(url)} characters long: write at most {URL_MAX}"
    scheme, colon, rest = text.partition(":")
    if scheme.lower() in ("http", "https") and colon:
        return _explain_http(shown, text, rest)
    if "://" in text:
        return f"{shown} is not http: write a URL that begins with http:// or https://"
    if colon and scheme.isalpha() and not rest[:1].isdigit():
        return f"{shown} is a {scheme.lower()}: address: write a URL that begins with http:// or https://"
    return f"{shown} has no scheme: write {_shortened('https://' + text.lstrip('/'))}"


def _explain_http(shown: str, text: str, rest: str) -> str:
    authority = rest.lstrip("/\\").partition("/")[0]
    if not authority:
        return f"{shown} has no host name: write one like https://example.com"
    if "@" in authority:
        plain = f"{text.partition(':')[0]}://...@{_shortened(authority.rpartition('@')[2])}"
        return f"{plain} holds a user name or password: leave them out and send them as a header (Authorization)"
    try:
        length = len(ada_url.normalize_url(text))
    except ValueError:
        return f"{shown} is not a valid URL: check the host name and the port"
    return f"{shown} is {length} characters long once escaped: write at most {URL_MAX}"


def _shortened(text: str) -> str:
    shown = repr(text[:SHOWN_MAX])[1:-1]
    return shown if len(text) <= SHOWN_MAX else shown + "..."
