"""One `Set-Cookie` line in, what it asks for out, read as browsers do (RFC 6265 §5.1 and §5.2, with the limits, the
refusal of control characters, nameless cookies and the cap on lifetimes of its revision, RFC 6265bis).

Total: text of any kind comes out as a `SetCookie`, or as None when a browser would ignore the line. What the line may
ask for (its domain, its prefix, `Secure`) is for `http.core.cookies` to judge.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

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
DELIMITERS = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])")
DAY = re.compile(r"([0-9]{1,2})(?![0-9])")
YEAR = re.compile(r"([0-9]{2,4})(?![0-9])")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIRST_YEAR = 1601


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


def parse_date(text: str) -> float | None:
    """Return the unix seconds of a cookie date in any of the forms that browsers take (§5.1.1), None for no date."""
    time = day = month = year = None
    for token in DELIMITERS.split(text):
        if time is None and (found := TIME.match(token)):
            time = found
        elif day is None and (found := DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in MONTHS:
            month = MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := YEAR.match(token)):
            year = _full_year(int(found[1]))
    if time is None or day is None or month is None or year is None or year < FIRST_YEAR:
        return None
    try:
        return datetime(year, month, day, int(time[1]), int(time[2]), int(time[3]), tzinfo=UTC).timestamp()
    except ValueError:  # the 31st of February, 25:00:00
        return None


def _full_year(year: int) -> int:
    if 70 <= year <= 99:
        return year + 1900
    return year + 2000 if year <= 69 else year


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
    until = parse_date(attributes["expires"]) if "expires" in attributes else None
    return SESSION if until is None else min(until, now + LIFETIME_MAX_S)


def _as_sent(text: str) -> str:
    """Return the text whose UTF-8, the way headers leave, are the octets that came; Latin-1 where they are no UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
