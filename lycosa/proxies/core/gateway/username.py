"""Parses the options that a client sends in its user name, in the form that proxy providers use.

    ann-site-shop.example-session-cart7-country-de-sticky-10m

    NAME { "-" KEY "-" VALUE }         in a VALUE, write -- for a dash; in NAME too, if the gateway has no accounts

    site      the target of the lease, with its own bans and counts    (default: the registrable domain of the host)
    session   the same proxy for the same word                         (default: any proxy, each time)
    sticky    maximum time of the session: seconds, or with s, m, h    (default: the pool's policy decides)
    country, region, city, asn, provider                               tags that the proxy must have

Anything else is an error.
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
"""Maximum number of sessions. Beyond it the least recently used session is forgotten, so its time starts again."""

TAGS = ("country", "region", "city", "asn", "provider")
KEYS = ("site", "session", "sticky", *TAGS)
VALUES = {
    "site": re.compile(r"[\w.:\[\]~-]{1,253}", re.ASCII),
    "session": re.compile(r"[\w.~-]{1,64}", re.ASCII),
    "sticky": re.compile(r"\d{1,6}[smh]?", re.ASCII),
    **dict.fromkeys(TAGS, re.compile(r"[\w.~ -]{1,64}", re.ASCII)),
}
EXPECTED = {
    "site": "a domain or a word",
    "session": "letters, digits, . _ ~ and -- for a dash, 64 at most",
    "sticky": "a time such as 60, 10m or 1h, up to a day",
}
ESCAPED_DASH = "\0"
LOGIN_STATUS = 407
LOGIN_FAILED = "unknown user name or wrong password"


@dataclass(frozen=True, slots=True)
class GatewayUser:
    """An account and what its client requests.

    An empty `site` means the domain of the requested host, and `sticky_s` 0 the session time of the policy.
    """

    account: str = ""
    site: str = ""
    session: str = ""
    sticky_s: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)


def parse_username(text: str, accounts: Collection[str] | None = None) -> GatewayUser:
    """Parse a user name. Raises `Forbidden` (407).

    The account is the longest name in `accounts` that the text starts with; without `accounts`, the text up to the
    first single dash.
    """
    if len(text) > USERNAME_MAX or not text.isprintable():
        raise Forbidden(
            f"the user name has more than {USERNAME_MAX} characters, or unprintable characters", LOGIN_STATUS
        )
    account, rest = _split_account(text, accounts)
    pieces = [each.replace(ESCAPED_DASH, "-") for each in rest.replace("--", ESCAPED_DASH).split("-")[1:]]
    values: dict[str, str] = {}
    # A missing last value becomes "", which no pattern matches.
    for key, value in zip(pieces[::2], [*pieces[1::2], ""], strict=False):
        if key not in KEYS:
            keys = ", ".join(KEYS)
            raise Forbidden(f"unknown {key[:40]!r} in the user name: write -KEY-VALUE, KEY one of {keys}", LOGIN_STATUS)
        if key in values:
            raise Forbidden(f"{key} appears twice in the user name", LOGIN_STATUS)
        if not VALUES[key].fullmatch(value):
            raise Forbidden(f"{key} {value[:40]!r} in the user name: write {EXPECTED.get(key, 'a word')}", LOGIN_STATUS)
        values[key] = value
    sticky_s = _parse_sticky(values["sticky"]) if "sticky" in values else 0.0
    if sticky_s and "session" not in values:
        raise Forbidden("sticky in the user name needs a session: write -session-WORD-sticky-TIME", LOGIN_STATUS)
    tags = {key: values[key].lower() if key == "country" else values[key] for key in TAGS if key in values}
    return GatewayUser(account, values.get("site", "").lower(), values.get("session", ""), sticky_s, tags)


def _split_account(text: str, accounts: Collection[str] | None) -> tuple[str, str]:
    """Return the account, and the rest, which is empty or starts with a dash."""
    if accounts is None:
        name = re.match(r"(?:[^-]|--)*", text)
        assert name
        return name[0].replace("--", "-"), text[name.end() :]
    # One look-up for each dash, not for each account: this also runs for clients that have not logged in.
    for end in [len(text), *(dash.start() for dash in reversed(list(re.finditer(r"-(?!-)", text))))]:
        if text[:end] in accounts:
            return text[:end], text[end:]
    raise Forbidden(LOGIN_FAILED, LOGIN_STATUS)


def _parse_sticky(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or not 1 <= seconds <= STICKY_MAX_S:
        raise Forbidden(f"sticky {text!r} in the user name: write {EXPECTED['sticky']}", LOGIN_STATUS)
    return seconds


class StickySessions:
    """Sessions with a maximum duration, after which a session gets a new name in the pool."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._started: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._max = sessions_max

    def __len__(self) -> int:
        return len(self._started)

    def session(self, user: GatewayUser, now: float) -> str:
        """Return the session's name in the pool, "" for none. Accounts do not share sessions. `now` in seconds."""
        if not user.session or not user.sticky_s:
            return f"{user.account}/{user.session}" if user.session else ""
        key = (user.account, user.session)
        start, count = self._started.get(key, (now, 0))
        if now >= start + user.sticky_s:
            start, count = now, count + 1  # the count distinguishes sessions that start within one second
        self._started[key] = (start, count)
        self._started.move_to_end(key)
        if len(self._started) > self._max:
            self._started.popitem(last=False)
        return f"{user.account}/{user.session}/{int(start)}.{count}"
