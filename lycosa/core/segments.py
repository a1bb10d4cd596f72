"""Segments: which stretch of a crawl a request belongs to, and when that begins.

A segment that is made of time is named by its start in UTC: `2026-11-21`, `2026-11-21T10` or `2026-11-21T10:30`, so
that every back end knows from the name alone from when on it may be served, and in which order. Any other name starts
at once. "" is the segment of a crawl that has none; it comes before all others.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

NAME_MAX = 100
"""Characters of a segment's name."""

START = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d)(?::(\d\d))?)?", re.ASCII)


def starts_at(name: str) -> float:
    """Return the unix seconds from which on a segment may be served, 0 for at once."""
    found = START.fullmatch(name)
    if found is None:
        return 0.0
    try:
        return datetime(*(int(part or 0) for part in found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    except ValueError:
        return 0.0


def order(name: str) -> tuple[float, str]:
    """Return what segments are sorted by: oldest first, those without a start before all others."""
    return starts_at(name), name
