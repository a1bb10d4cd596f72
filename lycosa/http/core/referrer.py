"""The `Referer` header according to the W3C's Referrer Policy.

Credentials and fragments are never sent, and nothing is sent for pages that are not http or https.
"""

from __future__ import annotations

from lycosa.http.core.origin import origin_of, path_and_query_of

FULL, ORIGIN, NOTHING = "full", "origin", ""

POLICIES = {
    # sent to                           the same origin, another origin, http (by an https page)
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
"""For a longer URL only the origin is sent."""


class Referrer:
    """The referrers of requests for the links on the page `source`, by one of `POLICIES`."""

    __slots__ = ("_downgrade", "_origin", "_other", "_prefix", "_same")

    def __init__(self, policy: str, source: str) -> None:
        origin = origin_of(source)
        self._origin = origin.text if origin else ""
        full = self._origin + path_and_query_of(source)
        self._prefix = self._origin + "/"
        values = {FULL: full if len(full) <= REFERRER_MAX else self._prefix, ORIGIN: self._prefix, NOTHING: ""}
        same, other, downgrade = POLICIES[policy] if origin else (NOTHING,) * 3
        self._same, self._other = values[same], values[other]
        self._downgrade = values[downgrade] if self._origin.startswith("https") else self._other

    def to(self, target: str) -> str:
        if target.startswith(self._prefix):
            return self._same
        origin = origin_of(target)
        if origin is None or origin.text == self._origin:
            return self._same if origin else ""
        return self._other if origin.text.startswith("https") else self._downgrade


def referrer(policy: str, source: str, target: str) -> str:
    """Return the referrer of a request for `target` found on the page `source`, or ""."""
    return Referrer(policy, source).to(target)


def policy_of(text: str) -> str | None:
    """Return the last known policy of a `Referrer-Policy` header (a comma-separated list), or None."""
    known = [name for each in text.split(",") if (name := each.strip(" \t").lower()) in POLICIES]
    return known[-1] if known else None
