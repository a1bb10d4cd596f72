"""What a request says about the page it was found on: the `Referer` header by the W3C's Referrer Policy.

Each policy says what to send to the same origin, to another one, and from https to plain http: the whole URL, its
origin alone, or nothing. Credentials and fragments are never sent, and nothing where a page is not http or https.
"""

from __future__ import annotations

from lycosa.http.core.origin import place_of, rest_of

FULL, ORIGIN, NOTHING = "full", "origin", ""

POLICIES = {
    # to the:                           same origin, another one, from https to http
    "no-referrer": (NOTHING, NOTHING, NOTHING),
    "no-referrer-when-downgrade": (FULL, FULL, NOTHING),
    "same-origin": (FULL, NOTHING, NOTHING),
    "origin": (ORIGIN, ORIGIN, ORIGIN),
    "strict-origin": (ORIGIN, ORIGIN, NOTHING),
    "origin-when-cross-origin": (FULL, ORIGIN, ORIGIN),
    "strict-origin-when-cross-origin": (FULL, ORIGIN, NOTHING),
    "unsafe-url": (FULL, FULL, FULL),
    "scrapy-default": (FULL, FULL, NOTHING),
    "": (FULL, FULL, NOTHING),
}

REFERRER_MAX = 4096
"""Characters of a URL that is sent whole; of a longer one only the origin is."""


class Referrer:
    """What the page `source` tells under one of `POLICIES`; made once for all its requests."""

    __slots__ = ("_another", "_begin", "_lower", "_origin", "_same")

    def __init__(self, policy: str, source: str) -> None:
        place = place_of(source)
        self._origin = place.origin if place else ""
        full = self._origin + rest_of(source)
        self._begin = self._origin + "/"
        told = {FULL: full if len(full) <= REFERRER_MAX else self._begin, ORIGIN: self._begin, NOTHING: ""}
        same, another, lower = POLICIES[policy] if place else (NOTHING,) * 3
        self._same, self._another = told[same], told[another]
        self._lower = told[lower] if self._origin.startswith("https") else self._another

    def to(self, target: str) -> str:
        """Return the referrer of a request for the URL `target`, "" for none."""
        if target.startswith(self._begin):
            return self._same
        place = place_of(target)
        if place is None or place.origin == self._origin:
            return self._same if place else ""
        return self._another if place.origin.startswith("https") else self._lower


def referrer(policy: str, source: str, target: str) -> str:
    """Return what a request for `target` tells of the page `source`, "" for nothing; `policy` is one of `POLICIES`."""
    return Referrer(policy, source).to(target)


def policy_of(text: str) -> str | None:
    """Return the last policy we know in a comma-separated list, as in the `Referrer-Policy` header; None for none."""
    known = [name for each in text.split(",") if (name := each.strip(" \t").lower()) in POLICIES]
    return known[-1] if known else None
