"""Segments: the part of a crawl that a request belongs to, and when that part begins (docs/keys-and-segments.md).

A time segment is named by its start in UTC: `2026-11-21`, `2026-11-21T10` or `2026-11-21T10:30`. The name alone tells
when a segment may be crawled, and in which order. Segments with other names start at once. "" is the segment of a crawl
without segments; it comes first.

The requests of a run inherit its segment, so a crawl that runs past midnight does not start over. Only a request due in
a later time segment goes there. With a period resolver, a run has one segment for each period, and names end with the
period: `2026-11-21+3d`. A segment takes over the URLs of the previous segment of its period, which is archived.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from math import inf
from typing import NamedTuple

from lycosa.core.errors import BadSetting, BadSpider, UsageError
from lycosa.core.units import DURATION_UNITS_S
from lycosa.frontier.core.model import FrontierStats, SegmentState, SegmentView
from lycosa.http.core.request import Request

NAME_MAX = 100
"""Maximum number of characters of a segment's name."""

NAMES_CACHED = 4096
"""Every commit looks up the names of all segments. With a resolver, every link looks up a few."""

SEGMENTS_KEPT_MAX = 900
"""If there are more segments than this, the oldest archived ones are dropped, even without `keep_segments`."""

LATEST_KEPT = 2
"""This many of the latest segments of each period are never dropped: a new one takes over URLs of the previous one."""

SHOWN_MAX = 60
"""Maximum number of characters of an invalid name in a message."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@-]*")
"""Segment names appear in commands, paths and database keys."""

PERIOD = r"hour|day|week|month|[1-9]\d{0,2}[hdw]"
START = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)(?:T(\d\d)(?::(\d\d))?)?(?:\+({PERIOD}))?", re.ASCII)
PERIOD_SIGN = "+"

UNITS_S = {unit: int(DURATION_UNITS_S[unit]) for unit in "hdw"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONDAY_S = 4 * UNITS_S["d"]
"""1970-01-05, the Monday from which weeks are counted."""

SPANS = {"hour": "1h", "day": "1d", "week": "1w"}
NONE = "none"
_CANONICAL = {"": NONE, **{span: word for word, span in SPANS.items()}}
_PERIOD = re.compile(PERIOD, re.ASCII)
_VALID_PERIOD = "return a period (hour, day, week, month, 6h, 3d, 2w, none), or None for the period of its page"
WORDS = ("none", "hour", "day", "week", "month", "6h", "3d", "2w", "spider", "module:function")
_SPAN = re.compile(r"([1-9]\d{0,2})([hdw])", re.ASCII)
_TOO_FINE = re.compile(r"\d*\s*(?:s|m|ms|secs?|seconds?|mins?|minutes?)", re.ASCII | re.IGNORECASE)

SegmentResolver = Callable[[Request, float], str]
"""(first seed of a run, now in unix seconds) -> name of the run's segment."""

PeriodResolver = Callable[[Request], str | None]
"""request -> its period (`day`, `3d`, `none`), or None for the period of the page on which it was found."""

CurrentSegments = Callable[[Iterable[str]], Sequence[str]]
"""names of stored segments -> the segments of the run."""

NameAt = Callable[[float], str]
"""time (unix seconds, years 1 to 9999) -> name of the segment that it belongs to."""


@dataclass(slots=True)
class SegmentNaming:
    """How a crawl names its segments. `at` names time segments; None if there are none, or with `period`.

    With `period`, each request has its own period, and belongs to the segment of this period at `run_at`.
    """

    resolver: SegmentResolver
    at: NameAt | None = None
    period: PeriodResolver | None = None
    run_at: float = 0.0

    def begin_run(self, now: float) -> None:
        if self.period is not None:
            self.run_at = now

    def of_run(self, first: Request, now: float) -> str:
        """The segment of a run that starts now. Raises `BadSpider` if a resolver fails."""
        return self.resolver(first, now)

    def of_request(self, request: Request, inherited: str) -> str:
        """Return the segment of a new request. Raises `BadSpider` if a resolver fails.

        `inherited` is the segment of the page on which the request was found, or of the run. A request of the same
        period stays in it, even if the next segment has begun. A request of another period goes into the segment of
        that period at `run_at`. A request that is due in a later segment goes there instead.
        """
        if self.period is not None and self.run_at:
            period = self.period(request)
            if period is not None and period != period_of(inherited):
                inherited = name_of_period(period, self.run_at)
        return self.when_due(inherited, request.not_before)

    def when_due(self, inherited: str, not_before: float) -> str:
        """The inherited segment, or the later one in which a request is due."""
        if not_before <= 0:
            return inherited
        if self.at is not None:
            return max(inherited, self.at(not_before), key=segment_order)
        period = period_of(inherited)
        return max(inherited, name_of_period(period, not_before), key=segment_order) if period else inherited

    def current(self, first: str, names: Iterable[str]) -> list[str]:
        """Return the segments of a run that begins in `first`; with periods, one for each period in these names."""
        if self.period is None:
            return [first]
        periods = filter(None, map(period_of, names))
        return sorted({first, *(name_of_period(period, self.run_at) for period in periods)}, key=segment_order)


NO_SEGMENTS = SegmentNaming(lambda *_: "")


def unnamed(_: Iterable[str]) -> list[str]:
    """Return the current segments of a crawl without segments: only the one without a name."""
    return [""]


def parse_segments(word: str, spider: str, resolver: SegmentResolver | None = None) -> SegmentNaming:
    """Parse the setting `segment`. Raises `BadSetting`.

    `resolver` is the user's function if the setting is "module:function". `spider` is the name of the segment if the
    setting is "spider".
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


def by_period(resolver: Callable[[Request], object], name: str) -> SegmentNaming:
    """The naming for a user's period resolver. `name` is the resolver's name in error messages."""

    def period(request: Request) -> str | None:
        try:
            returned = resolver(request)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            raise BadSpider(f"the segment resolver {name} failed for {request.url}: {reason}") from error
        if returned is None:
            return None
        found = _CANONICAL.get(returned, returned) if isinstance(returned, str) else ""
        if found != NONE and not _PERIOD.fullmatch(found):
            problem = f"the segment resolver {name} returned {_shown(returned)} for {request.url}"
            raise BadSpider(f"{problem}: {_VALID_PERIOD}")
        return found

    def of_run(first: Request, now: float) -> str:
        return name_of_period(period(first) or NONE, now)

    return SegmentNaming(of_run, period=period)


@lru_cache(NAMES_CACHED)
def name_of_period(period: str, time: float) -> str:
    """The name of the segment with this period at this time; "" for `none`."""
    if period == NONE:
        return ""
    at = _month if period == "month" else _span(period)
    return at(time) + PERIOD_SIGN + period


@lru_cache(NAMES_CACHED)
def period_of(name: str) -> str | None:
    """Return the period in the name of a time segment; "" if the name contains no period.

    Return NONE, which is a string, for the unnamed segment. Return None for any other name: a segment with such a
    name has no successor.
    """
    if not name:
        return NONE
    return name.partition(PERIOD_SIGN)[2] if starts_at(name) else None


def _span(word: str) -> NameAt:
    """Return the function that names the segments of `hour`, `day`, `week` or a multiple such as `3d`.

    Raises `BadSetting`.
    """
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
    # Whole seconds: a timedelta rounds to microseconds, so the last moment of a month could get the name of the next.
    return (EPOCH + timedelta(seconds=time // 1)).isoformat()[:8] + "01"


_VALID = f"write at most {NAME_MAX} letters, digits and _.:+@- (ASCII), a letter, digit or _ first"


def _name(text: object) -> str | None:
    valid = isinstance(text, str) and len(text) <= NAME_MAX and NAME.fullmatch(text)
    return str(text) if valid else None


def validate_name(text: str) -> str:
    """Return a valid name; "" is the segment without a name. Raises `UsageError`."""
    if text and _name(text) is None:
        raise UsageError(f"segment {text[:SHOWN_MAX]!r} is not a valid name: {_VALID}")
    return text


def find_segment(name: str, views: Iterable[SegmentView]) -> SegmentView:
    """Raises `UsageError` if the segment was dropped or does not exist."""
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
    """Wrap a resolver: raise `BadSpider` for its errors and invalid names."""

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
    if _TOO_FINE.fullmatch(word):
        why = "each segment fetches every page again and is stored separately, so the shortest period is an hour"
        return f"segment: {word!r} is too short: {why}: write hour"
    near = get_close_matches(word.lower(), ["none", "hour", "day", "week", "month", "spider"], n=1)
    guess = f"did you mean {near[0]}? Otherwise " if near else ""
    return f"segment: {word!r} is unknown: {guess}write {', '.join(WORDS)} (numbers up to 999)"


@lru_cache(NAMES_CACHED)
def starts_at(name: str) -> float:
    """When the URLs of a segment may be fetched (unix seconds); 0: at once."""
    found = START.fullmatch(name)
    if found is None:
        return 0.0
    try:
        return datetime(*(int(part or 0) for part in found.groups()[:5]), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    except ValueError:
        return 0.0


def latest_starts(names: Iterable[str], horizon: float = inf) -> dict[str, float]:
    """By period, the start of the latest time segment that starts at `horizon` or before.

    A finished segment that started before the latest one of its period can be archived.
    """
    latest: dict[str, float] = {}
    for name in names:
        start, period = starts_at(name), period_of(name)
        if period is not None and 0 < start <= horizon:
            latest[period] = max(start, latest.get(period, 0.0))
    return latest


def is_followed(name: str, latest: Mapping[str, float]) -> bool:
    """Whether a time segment is followed by another one of its period. `latest` is from `latest_starts`."""
    return 0 < starts_at(name) < latest.get(period_of(name) or "", 0.0)


class Retention(NamedTuple):
    """Maximum number and age (seconds since the start) of archived segments per period; None: no limit."""

    number: int | None = None
    age_s: float | None = None


def expired_segments(views: Iterable[SegmentView], retention: Retention, now: float) -> list[str]:
    """Return the archived time segments that need not be kept at `now` (unix seconds), the oldest first.

    The LATEST_KEPT latest segments of each period are kept, even beyond SEGMENTS_KEPT_MAX.
    """
    live = sorted((view for view in views if view.state is not SegmentState.DROPPED), key=_view_order, reverse=True)
    by_period: dict[str | None, list[SegmentView]] = {}
    for view in live:
        if view.starts_at <= now:
            by_period.setdefault(period_of(view.name), []).append(view)
    oldest = now - retention.age_s if retention.age_s is not None else -inf
    kept_max = inf if retention.number is None else retention.number
    eligible, expired = [], set()
    for followed in (found for period, found in by_period.items() if period not in (None, NONE)):
        for place, view in enumerate(followed):
            if place >= LATEST_KEPT and view.state is SegmentState.ARCHIVED:
                eligible.append(view)
                if place > kept_max or view.starts_at < oldest:
                    expired.add(view.name)
    eligible.sort(key=_view_order)
    surplus = len(live) - len(expired) - SEGMENTS_KEPT_MAX
    left = [view.name for view in eligible if view.name not in expired]
    expired.update(left[: max(0, surplus)])
    return [view.name for view in eligible if view.name in expired]


def _view_order(view: SegmentView) -> tuple[float, str]:
    return segment_order(view.name)


def segment_order(name: str) -> tuple[float, str]:
    """Return the sort key: segments without a start first, then the oldest."""
    return starts_at(name), name


def total_stats(views: Sequence[SegmentView], leased: int) -> FrontierStats:
    """`leased` is the number of leased URLs, which `views` count as queued."""
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
