"""Parse a `Set-Cookie` line as browsers do: RFC 6265 §5.1 and §5.2.

RFC 6265bis adds the limits and the maximum lifetime, allows cookies without a name, and forbids control characters. No
input raises. `http.core.cookies` decides whether the server may set the cookie.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from lycosa.core.dates import cookie_date

PAIR_MAX = 4096
"""Maximum octets of name and value together; a longer cookie is ignored."""

ATTRIBUTE_MAX = 1024
"""Attributes with a longer value (in octets) are ignored."""

ATTRIBUTES_MAX = 64

LIFETIME_MAX_S = 400 * 86400.0
"""Longer lifetimes are reduced to this."""

SESSION = math.inf
"""Session cookies are kept until the crawl is over."""

BLANKS = " \t"
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
SECONDS = re.compile(r"-?[0-9]+")


class SetCookie(NamedTuple):
    """A parsed line. An empty `domain` limits the cookie to the host. An empty `path` means the URL's default path.

    `expires` is in unix seconds: -inf deletes the cookie, `SESSION` is the default.
    """

    name: str
    value: str
    domain: str = ""
    path: str = ""
    expires: float = SESSION
    secure: bool = False
    http_only: bool = False
    same_site: str = ""


def parse_set_cookie(line: str, now: float) -> SetCookie | None:
    """Parse the value of a `Set-Cookie` field (octets as Latin-1); None if browsers would ignore it."""
    if CONTROL.search(line):
        return None
    pair, *rest = line.split(";")
    name, equals, value = pair.partition("=")
    if not equals:  # a nameless cookie
        name, value = "", pair
    name, value = name.strip(BLANKS), value.strip(BLANKS)
    if not (name or value) or len(name) + len(value) > PAIR_MAX:
        return None
    attributes = _attributes(rest[:ATTRIBUTES_MAX])
    domain = attributes.get("domain", "")
    if not domain.isascii():
        return None
    path = attributes.get("path", "")
    return SetCookie(
        _decode(name),
        _decode(value),
        domain.removeprefix(".").lower(),
        _decode(path) if path.startswith("/") else "",
        _expiry(attributes, now),
        "secure" in attributes,
        "httponly" in attributes,
        attributes.get("samesite", "").lower(),
    )


def _attributes(parts: list[str]) -> dict[str, str]:
    """Return the attributes by their names in lower case. If a name occurs several times, the last one counts."""
    attributes = {}
    for part in parts:
        name, _, value = part.partition("=")
        value = value.strip(BLANKS)
        if len(value) <= ATTRIBUTE_MAX:
            attributes[name.strip(BLANKS).lower()] = value
    return attributes


def _expiry(attributes: dict[str, str], now: float) -> float:
    """Max-Age overrides Expires; an invalid value counts as missing."""
    age = attributes.get("max-age", "")
    if SECONDS.fullmatch(age):
        seconds = min(int(age), LIFETIME_MAX_S)
        return now + seconds if seconds > 0 else -math.inf
    until = cookie_date(attributes["expires"]) if "expires" in attributes else None
    return SESSION if until is None else min(until, now + LIFETIME_MAX_S)


def _decode(text: str) -> str:
    """Decode octets (given as Latin-1) as UTF-8, or as Latin-1 if they are not valid UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
