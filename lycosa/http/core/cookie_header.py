"""One `Set-Cookie` line in, what it asks for out, read as browsers do (RFC 6265 §5.1 and §5.2, with the limits, the
refusal of control characters, nameless cookies and the cap on lifetimes of its revision, RFC 6265bis).

Total: text of any kind comes out as a `SetCookie`, or as None when a browser would ignore the line. What the line may
ask for (its domain, its prefix, `Secure`) is for `http.core.cookies` to judge.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from lycosa.core.dates import cookie_date

PAIR_MAX = 4096
"""Octets of a name and its value together; a longer cookie is ignored."""

ATTRIBUTE_MAX = 1024
"""Octets of an attribute's value; a longer one is ignored."""

ATTRIBUTES_MAX = 64
"""Attributes of one line that are read."""

LIFETIME_MAX_S = 400 * 86400.0
"""Seconds that a cookie is kept at most, whatever it asks for."""

SESSION = math.inf
"""The expiry of a cookie that lasts as long as the session, which is the crawl."""

BLANKS = " \t"
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
SECONDS = re.compile(r"-?[0-9]+")


class SetCookie(NamedTuple):
    """What a line asks for. `domain` is "" for the host alone, `path` "" for the default of the URL; `expires` is in
    unix seconds, -inf for "delete it", `SESSION` where the line says nothing."""

    name: str
    value: str
    domain: str = ""
    path: str = ""
    expires: float = SESSION
    secure: bool = False
    http_only: bool = False
    same_site: str = ""


def parse_set_cookie(line: str, now: float) -> SetCookie | None:
    """Return what the value of a `Set-Cookie` field (octets as Latin-1) asks for; None when it is to be ignored."""
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
        _as_sent(name),
        _as_sent(value),
        domain.removeprefix(".").lower(),
        _as_sent(path) if path.startswith("/") else "",
        _expiry(attributes, now),
        "secure" in attributes,
        "httponly" in attributes,
        attributes.get("samesite", "").lower(),
    )


def _attributes(parts: list[str]) -> dict[str, str]:
    """Return the last value of each attribute, names in lower case."""
    attributes = {}
    for part in parts:
        name, _, value = part.partition("=")
        value = value.strip(BLANKS)
        if len(value) <= ATTRIBUTE_MAX:
            attributes[name.strip(BLANKS).lower()] = value
    return attributes


def _expiry(attributes: dict[str, str], now: float) -> float:
    """Return when the cookie ends. Max-Age counts before Expires; what cannot be read counts as not there."""
    age = attributes.get("max-age", "")
    if SECONDS.fullmatch(age):
        seconds = min(int(age), LIFETIME_MAX_S)
        return now + seconds if seconds > 0 else -math.inf
    until = cookie_date(attributes["expires"]) if "expires" in attributes else None
    return SESSION if until is None else min(until, now + LIFETIME_MAX_S)


def _as_sent(text: str) -> str:
    """Return the text whose UTF-8, the way headers leave, are the octets that came; Latin-1 where they are no UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
