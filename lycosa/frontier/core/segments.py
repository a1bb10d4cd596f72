"""Segments: which part of a crawl a request belongs to, and when that part begins.

A time segment is named by its start in UTC: `2026-11-21`, `2026-11-21T10` or `2026-11-21T10:30`. Every back end can
therefore tell from the name alone when a segment may be served, and in which order. A segment with any other name
starts at once. "" is the segment of a crawl without segments; it comes before all others.

A run has one segment, that of its first seed at its start. All its requests inherit it, so a crawl that runs past
midnight does not start over. With time segments, a request that is due later goes into the segment of that time
instead. Multiples such as `3d` are counted from a fixed time (weeks from a Monday), so they mean the same in every run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from lycosa.core.errors import BadSetting, BadSpider, UsageError
from lycosa.core.units import DURATION_UNITS_S
from lycosa.frontier.core.model import FrontierStats, SegmentState, SegmentView
from lycosa.http.core.request import Request

NAME_MAX = 100
"""Maximum number of characters of a segment's name."""

SHOWN_MAX = 60
"""Maximum number of characters of an invalid name that a message shows."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@-]*")
"""Valid segment names: they appear in commands, paths and database keys."""

START = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d)(?::(\d\d))?)?", re.ASCII)

UNITS_S = {unit: int(DURATION_UNITS_S[unit]) for unit in "hdw"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONDAY_S = 4 * UNITS_S["d"]
"""1970-01-05, the Monday from which weeks are counted."""

SPANS = {"hour": "1h", "day": "1d", "week": "1w"}
WORDS = ("none", "hour", "day", "week", "month", "6h", "3d", "2w", "spider", "module:function")
_SPAN = re.compile(r"([1-9]\d{0,2})([hdw])", re.ASCII)
_TOO_FINE = re.compile(r"\d*\s*(?:s|m|ms|secs?|seconds?|mins?|minutes?)", re.ASCII | re.IGNORECASE)

SegmentResolver = Callable[[Request, float], str]
"""(first seed of a run, now in unix seconds) -> name of the run's segment."""

NameAt = Callable[[float], str]
"""time (unix seconds, years 1 to 9999) -> name of the segment that it belongs to."""


@dataclass(frozen=True, slots=True)
class SegmentNaming:
    """How a crawl names its segments. `at` names time segments; None for other kinds."""

    resolver: SegmentResolver
    at: NameAt | None = None

    def of_run(self, first: Request, now: float) -> str:
        """Return the segment of a run that starts now. Raises `BadSpider` if a resolver fails."""
        return self.resolver(first, now)

    def of_request(self, inherited: str, not_before: float) -> str:
        """Return the segment of a request: the inherited one, or the later one in which it is due."""
        if self.at is None or not_before <= 0:
            return inherited
        return max(inherited, self.at(not_before), key=segment_order)


NO_SEGMENTS = SegmentNaming(lambda *_: "")


def parse_segments(word: str, spider: str, resolver: SegmentResolver | None = None) -> SegmentNaming:
    """Parse the setting `segment`. Raises `BadSetting`.

    `resolver` is the function that `word` names, if it names one; `spider` is the name of the spider, for the word
    `spider`.
    """
    if resolver is not None:
        return SegmentNaming(_checked(resolver, word))
    if word in {"", "none"}:
        return NO_SEGMENTS
    if word == "spider":
        name = _name(spider)
        if name is None:
            raise BadSetting(f"segment: the spider's name {spider!r} cannot name a segment: {_VALID}")
        return SegmentNaming(lambda *_: name)
    at = _month if word == "month" else _span(word)
    return SegmentNaming(lambda _, now: at(now), at)


def _span(word: str) -> NameAt:
    """Return the naming of `hour`, `day`, `week` or a multiple such as `3d`. Raises `BadSetting`."""
    found = _SPAN.fullmatch(SPANS.get(word, word))
    if found is None:
        raise BadSetting(_unknown(word))
    unit = found[2]
    length_s, origin_s = int(found[1]) * UNITS_S[unit], MONDAY_S if unit == "w" else 0

    def at(time: float) -> str:
        start_s = origin_s + (time - origin_s) // length_s * length_s
        return (EPOCH + timedelta(seconds=start_s)).isoformat()[: 13 if unit == "h" else 10]

    return at


def _month(time: float) -> str:
    # Whole seconds: a timedelta rounds to microseconds, and could name the month that is about to begin.
    return (EPOCH + timedelta(seconds=time // 1)).isoformat()[:8] + "01"


_VALID = f"write at most {NAME_MAX} letters, digits and _.:+@- (ASCII), a letter or digit first"


def _name(text: object) -> str | None:
    """Return the text if it is a valid name."""
    valid = isinstance(text, str) and len(text) <= NAME_MAX and NAME.fullmatch(text)
    return str(text) if valid else None


def validate_name(text: str) -> str:
    """Return the name if it is valid; "" is the segment without a name. Raises `UsageError`."""
    if text and _name(text) is None:
        raise UsageError(f"segment {text[:SHOWN_MAX]!r} is not a valid name: {_VALID}")
    return text


def find_segment(name: str, views: Iterable[SegmentView]) -> SegmentView:
    """Return the segment with this name. Raises `UsageError`, with the nearest name, if it is missing or dropped."""
    live = {view.name: view for view in views if view.state is not SegmentState.DROPPED or view.name == name}
    found = live.get(name)
    if found is None:
        shown = repr(name[:SHOWN_MAX]) if name else "without a name"
        near = get_close_matches(name, [each for each in live if each], n=1, cutoff=0.0)
        guess = f": the nearest is {near[0]!r}; " if near else ": "
        raise UsageError(f"there is no segment {shown}{guess}lycosa frontier segments lists them")
    if found.state is SegmentState.DROPPED:
        raise UsageError(f"segment {name!r} was dropped: its URLs are forgotten")
    return found


def _checked(resolver: SegmentResolver, name: str) -> SegmentResolver:
    """Wrap a user's resolver: it raises `BadSpider` for its errors and for invalid names."""

    def resolve(first: Request, now: float) -> str:
        try:
            returned = resolver(first, now)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            raise BadSpider(f"the segment resolver {name} failed: {reason}") from error
        segment = _name(returned)
        if segment is None:
            raise BadSpider(f"the segment resolver {name} returned {_shown(returned)}: {_VALID}")
        return segment

    return resolve


def _shown(returned: object) -> str:
    return repr(returned)[:60] if isinstance(returned, str) else f"a {type(returned).__name__}"


def _unknown(word: str) -> str:
    """Return the error message for an unknown word."""
    if _TOO_FINE.fullmatch(word):
        why = "each segment fetches every page again and is stored separately, so the shortest is an hour"
        return f"segment: {word!r} is too short: {why}: write hour"
    near = get_close_matches(word.lower(), ["none", "hour", "day", "week", "month", "spider"], n=1)
    guess = f"did you mean {near[0]}? Otherwise " if near else ""
    return f"segment: {word!r} is unknown: {guess}write {', '.join(WORDS)} (at most 999 units)"


def starts_at(name: str) -> float:
    """Return when the URLs of a segment may be fetched (unix seconds), 0 for at once."""
    found = START.fullmatch(name)
    if found is None:
        return 0.0
    try:
        return datetime(*(int(part or 0) for part in found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    except ValueError:
        return 0.0


def segment_order(name: str) -> tuple[float, str]:
    """The sort key of segments: oldest first, those without a start before all others."""
    return starts_at(name), name


def total_stats(views: Sequence[SegmentView], leased: int) -> FrontierStats:
    """Return the total counts of all segments. `leased` is how many of their queued URLs are leased."""
    reasons: Counter[str] = Counter()
    dead_reasons: Counter[str] = Counter()
    for view in views:
        reasons.update(view.reasons)
        dead_reasons.update(view.dead_reasons)
    return FrontierStats(
        queued=sum(view.queued for view in views) - leased,
        delayed=sum(view.delayed for view in views),
        done=sum(view.done for view in views),
        dead=sum(view.dead for view in views),
        reasons=dict(reasons),
        dead_reasons=dict(dead_reasons),
    )
