"""What a client asks for in its user name, as providers of proxies have it.

    ann-site-shop.example-session-cart7-country-de-sticky-10m

    NAME { "-" KEY "-" VALUE }         a dash within a VALUE, or a NAME that nobody knows beforehand, is written twice

    site      what the proxies are for, with its own bans and counts   (the registrable domain of the host)
    session   the same proxy for the same word                         (any proxy, each time)
    sticky    for so long at most: seconds, or with s, m, h            (as the pool has it)
    country, region, city, asn, provider                               tags that the proxy must have

Whatever else stands there is an error, and not a part of something else.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lycosa.core.errors import Forbidden
from lycosa.core.units import parse_duration

USERNAME_MAX = 512
STICKY_MAX_S = 86_400.0
SESSIONS_MAX = 100_000
"""Sessions whose beginning is remembered; the one that was used longest ago is forgotten, and begins anew."""

TAGS = ("country", "region", "city", "asn", "provider")
KEYS = ("site", "session", "sticky", *TAGS)
VALUES = {
    "site": re.compile(r"[\w.:\[\]~-]{1,253}", re.ASCII),
    "session": re.compile(r"[\w.~-]{1,64}", re.ASCII),
    "sticky": re.compile(r"\d{1,6}[smh]?", re.ASCII),
    **dict.fromkeys(TAGS, re.compile(r"[\w.~ -]{1,64}", re.ASCII)),
}
MEANT = {
    "site": "a domain or a word",
    "session": "letters, digits, . _ ~ and -- for a dash, 64 at most",
    "sticky": "a time such as 60, 10m or 1h, to a day",
}
DASH = "\0"
STATUS = 407


@dataclass(frozen=True, slots=True)
class GatewayUser:
    """Who asks, and what for. `site` "": that of the host. `sticky_s` 0: as long as the pool has it."""

    account: str = ""
    site: str = ""
    session: str = ""
    sticky_s: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)


def parse_username(text: str, accounts: Collection[str] | None = None) -> GatewayUser:
    """Return what a user name asks for. Raises `Forbidden` (407), which says what to write instead.

    The longest of the `accounts` that it begins with is its name; without accounts, all to the first single dash.
    """
    if len(text) > USERNAME_MAX or not text.isprintable():
        raise Forbidden(f"the user name is longer than {USERNAME_MAX}, or holds what cannot be printed", STATUS)
    account, rest = _account(text, accounts)
    pieces = rest.replace("--", DASH).split("-")[1:]
    given = [each.replace(DASH, "-") for each in pieces]
    found: dict[str, str] = {}
    for key, value in zip(given[::2], [*given[1::2], ""], strict=False):
        if key not in KEYS:
            raise Forbidden(f"{key[:40]!r} in the user name: write -KEY-VALUE, KEY of {', '.join(KEYS)}", STATUS)
        if key in found:
            raise Forbidden(f"{key} stands twice in the user name", STATUS)
        if not VALUES[key].fullmatch(value):
            raise Forbidden(f"{key} {value[:40]!r} in the user name: write {MEANT.get(key, 'a word')}", STATUS)
        found[key] = value
    sticky_s = _seconds(found.get("sticky", ""))
    if sticky_s and "session" not in found:
        raise Forbidden("sticky in the user name goes with a session: write -session-WORD-sticky-TIME", STATUS)
    tags = {key: found[key].lower() if key == "country" else found[key] for key in TAGS if key in found}
    return GatewayUser(account, found.get("site", "").lower(), found.get("session", ""), sticky_s, tags)


def _account(text: str, accounts: Collection[str] | None) -> tuple[str, str]:
    """Return the name, and what stands behind it: nothing, or what begins with a dash."""
    if accounts is None:
        name = re.match(r"(?:[^-]|--)*", text)
        assert name
        return name[0].replace("--", "-"), text[name.end() :]
    for end in [len(text), *(found.start() for found in reversed(list(re.finditer(r"-(?!-)", text))))]:
        if text[:end] in accounts:
            return text[:end], text[end:]
    raise Forbidden("unknown user name or wrong password", STATUS)


def _seconds(text: str) -> float:
    if not text:
        return 0.0
    seconds = parse_duration(text)
    if seconds is None or not 1 <= seconds <= STICKY_MAX_S:
        raise Forbidden(f"sticky {text!r} in the user name: write {MEANT['sticky']}", STATUS)
    return seconds


class StickySessions:
    """Sessions with a time of their own: each is known to the pool by another word when its time is over."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._begun: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._max = sessions_max

    def __len__(self) -> int:
        return len(self._begun)

    def session(self, asked: GatewayUser, now: float) -> str:
        """Return the word for the pool: sessions of different accounts are different ones. `now` in seconds."""
        if not asked.session or not asked.sticky_s:
            return f"{asked.account}/{asked.session}" if asked.session else ""
        key = (asked.account, asked.session)
        begun, count = self._begun.get(key, (now, 0))
        if now >= begun + asked.sticky_s:
            begun, count = now, count + 1
        self._begun[key] = (begun, count)
        self._begun.move_to_end(key)
        if len(self._begun) > self._max:
            self._begun.popitem(last=False)
        return f"{asked.account}/{asked.session}/{int(begun)}.{count}"
