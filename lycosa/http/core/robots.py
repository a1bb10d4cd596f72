"""The rules of a robots.txt (RFC 9309), with Crawl-delay and Sitemap lines. No input raises.

This module selects the groups: whole product tokens are compared case-insensitively, and all groups for our token are
merged; without any, the groups for `*` apply. Protego then matches paths: longest match, `*`, `$`, escapes. It deviates
from the RFC: `Allow: /index.html` also allows `/`, and `$` at the end of a rule also matches a literal `$`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from protego import Protego

from lycosa.core.errors import BadUrl
from lycosa.core.url import canonicalize

ROBOTS_MAX = 512_000
"""Maximum bytes of a robots.txt that are read: RFC 9309 §2.5 requires at least 500 KiB."""

CRAWL_DELAY_MAX = 300.0
"""A longer Crawl-delay is reduced to this many seconds."""

RULES_MAX = 10_000
"""Maximum lines that are kept from all groups for our token, and likewise from all groups for `*`."""

SITEMAPS_MAX = 1_000

_LINE = re.compile(  # with the misspellings that Google's parser and protego also accept
    rb"(user[- ]?agent|disallow|dissallow|dissalow|disalow|diasllow|disallaw|allow|crawl[- ]delay|sitemap)"
    rb"\s*[:\s]\s*(.*)",
    re.IGNORECASE,
)
# RFC 9309 has no digits in product tokens, but 2bot, 360Spider and 008 exist.
_TOKEN = re.compile(r"[a-zA-Z0-9_-]+")
_COMPATIBLE = re.compile(r"compatible;\s*([a-zA-Z0-9_-]+)")
_EVERYBODY = re.compile(rb"\*(?:\s|\xc2?\xa0|$)")
_ESCAPED = re.compile(rb"[^\x21-\x7e]")


class Robots:
    """The rules of one host for one user agent."""

    __slots__ = ("_protego", "crawl_delay_s", "sitemaps", "unreachable")

    def __init__(self, *, unreachable: bool = False) -> None:
        """Allow everything, or nothing if robots.txt is `unreachable` (RFC 9309 §2.3.1.4)."""
        self.unreachable = unreachable
        self.crawl_delay_s = 0.0
        self.sitemaps: list[str] = []
        self._protego: Protego | None = None

    @classmethod
    def parse(cls, body: bytes, user_agent: str = "Lycosa") -> Robots:
        """Parse a robots.txt for the product that `user_agent` names (`lycosa` for `Lycosa/1.0 (...)`)."""
        robots = cls()
        groups = _Groups(body, product_token(user_agent))
        robots.sitemaps = groups.sitemaps
        robots.crawl_delay_s = groups.crawl_delay_s
        if any(line.startswith("Disallow") for line in groups.rules):  # otherwise all is allowed
            robots._protego = Protego.parse("\n".join(["User-agent: *", *groups.rules]))
        return robots

    def allowed(self, url: str) -> bool:
        """Whether this canonical URL may be fetched; /robots.txt itself always may."""
        if self._protego is not None:
            return self._protego.can_fetch(url, "*")
        return not self.unreachable or _path(url) == "/robots.txt"


def robots_from_response(body: bytes, status: int, user_agent: str = "Lycosa") -> Robots:
    """Return the rules that follow from a response to a request for /robots.txt. Status 0: no response.

    2xx: the rules of the body. 429, 5xx and no response: nothing is allowed. Any other status (404, endless redirects):
    everything is allowed.
    """
    if 200 <= status < 300:
        return Robots.parse(body, user_agent)
    return Robots(unreachable=not 300 <= status < 500 or status == 429)


def forbidding_rule(body: bytes, status: int, url: str, user_agent: str = "Lycosa") -> str:
    """Return the longest line of a robots.txt that forbids this URL, or ""."""
    if not 200 <= status < 300 or robots_from_response(body, status, user_agent).allowed(url):
        return ""
    rules = _Groups(body, product_token(user_agent)).rules
    against = [rule for rule in rules if not Protego.parse(f"User-agent: *\n{rule}").can_fetch(url, "*")]
    return max(against, key=len, default="")


def product_token(user_agent: str) -> str:
    """Return our name in a robots.txt: `lycosa` for `Lycosa/1.0 (+https://...)`; "" for none."""
    token = _TOKEN.match(user_agent.strip())
    named = _COMPATIBLE.search(user_agent) if token and token[0] == "Mozilla" else None
    return (named[1] if named else token[0] if token else "").lower()


class _Groups:
    """Reads the rules of the groups for `token`; if no group names it, those of the groups for `*`."""

    def __init__(self, body: bytes, token: str) -> None:
        self.sitemaps: list[str] = []
        ours: list[tuple[bytes, bytes]] = []
        everybody: list[tuple[bytes, bytes]] = []
        named = False
        current: list[list[tuple[bytes, bytes]]] = []
        agents_end = True
        for field, value in _lines(body):
            if field[0] in b"uU":
                if agents_end:  # consecutive User-agent lines start one group
                    current, agents_end = [], False
                named_here = _agent(value)
                named = named or (named_here == token and token != "")  # even an empty group for us overrides `*`
                target = everybody if named_here == "*" else ours if named_here == token else None
                if target is not None and not any(target is group for group in current):
                    current.append(target)
            elif field[0] in b"sS":
                self._add_sitemap(value)
            else:
                agents_end = True
                for group in current:
                    if len(group) < RULES_MAX:
                        group.append((field, value))
        chosen = ours if named else everybody
        self.rules = [
            f"{'Allow' if field[0] in b'aA' else 'Disallow'}: {_ESCAPED.sub(_escape, value).decode('ascii')}"
            for field, value in chosen
            if value and field[0] not in b"cC"
        ]
        self.crawl_delay_s = max((_seconds(value) for field, value in chosen if field[0] in b"cC"), default=0.0)

    def _add_sitemap(self, value: bytes) -> None:
        if len(self.sitemaps) < SITEMAPS_MAX:
            try:
                self.sitemaps.append(canonicalize(value.decode("utf-8", "replace")))
            except BadUrl:
                return


def _lines(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(body) > ROBOTS_MAX:  # drop the last line, which may be cut: a shorter rule forbids more
        body = body[:ROBOTS_MAX]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r"), 0)]
    for line in re.split(rb"[\r\n]+", body.removeprefix(b"\xef\xbb\xbf")):
        found = _LINE.match(line.partition(b"#")[0].strip())
        if found:
            yield found[1], found[2].strip()


def _agent(value: bytes) -> str:
    if _EVERYBODY.match(value):
        return "*"
    token = _TOKEN.match(value.decode("latin-1"))
    return token[0].lower() if token else "\0"


def _escape(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]


def _seconds(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return min(seconds, CRAWL_DELAY_MAX) if math.isfinite(seconds) and seconds > 0 else 0.0


def _path(url: str) -> str:
    start = url.find("/", 8)
    return url[start:].partition("?")[0]
