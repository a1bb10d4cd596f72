"""The query language for torrents: the language of `search.core.query`, and filters anywhere in the query.

    type:video lang:zh         size:>1GB  size:500MB..2GB  files:<=20  seeders:>0  year:1999  season:2 episode:5
    date:2026-11 date:>=2026-11-05 date:2026-01-01..2026-03-31  age:<7 (days, to whole hours)

`size:1GB` means at least 1 GB. An invalid filter, such as size:big, is searched as words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lycosa.core.errors import BadQuery
from lycosa.core.units import parse_size
from lycosa.search.core.query import QUERY_MAX, SearchQuery, parse_query
from lycosa.search.core.release_names import one_spelling
from lycosa.search.core.request import ValueFilter
from lycosa.search.core.schema import NUMBER_MAX
from lycosa.search.core.torrent_text import torrent_words

DAY_S, HOUR_S = 86_400, 3_600
NUMBER_CHARS_MAX = 16
NUMBERS = {
    "size": "size",
    "files": "files_count",
    "seeders": "seeders",
    "year": "year",
    "season": "season",
    "episode": "episode",
    "resolution": "resolution",
    "date": "found",
    "age": "found",
}
KEYWORDS = {"cat": "category", "type": "type", "lang": "language", "language": "language"}

MISTAKES_MAX = 3
INVALID = "{name} {value!r} is not a valid filter: write "
EXAMPLES = {
    "size": "size:>1GB or size:500MB..2GB",
    "files": "files:<=20",
    "seeders": "seeders:>0",
    "year": "year:1999",
    "season": "season:2",
    "episode": "episode:5",
    "resolution": "resolution:1080",
    "cat": "cat:2040",
    "date": "date:2026-11 or date:>=2026-11-05",
    "age": "age:<7, in days",
    "type": "type:video",
    "lang": "lang:zh",
    "language": "language:zh",
}

_FILTER = re.compile(rf"(?<!\S)(?P<field>{'|'.join([*NUMBERS, *KEYWORDS])}):(?P<value>[^\s\"]+)", re.IGNORECASE)
_EXCLUSION = re.compile(r"(\s-)")
_SITE = re.compile(r"(?<!\S)(-?)site:", re.IGNORECASE)
_RANGE = re.compile(r"(?P<sign>[<>]=?)?(?P<low>[^<>=.]*(?:\.\d[^<>=.]*)?)(?:(?P<dots>\.\.)(?P<high>.*))?")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_VALUES = re.compile(r"[a-z0-9]{2,12}(?:,[a-z0-9]{2,12})*", re.IGNORECASE)


class TorrentQuery(NamedTuple):
    """A parsed query. `query` is None if the text is empty or has only filters: then these alone select torrents.

    `mistakes` says what is wrong with the first MISTAKES_MAX invalid filters, which are searched as words.
    """

    query: SearchQuery | None
    filters: tuple[ValueFilter, ...] = ()
    mistakes: tuple[BadQuery, ...] = ()


def parse_torrent_query(text: str, now: float, fields: Mapping[str, str] | None = None) -> TorrentQuery:
    """Parse a query. `fields` has further filters: it maps their names in the query language to their values.

    Raises `BadQuery` if the text is too long, if `parse_query` refuses the words, or if a value in `fields` is invalid.
    """
    if len(text) > QUERY_MAX:
        raise BadQuery("the query has {count} characters: use at most {most}", count=len(text), most=QUERY_MAX)
    filters: list[ValueFilter] = []
    mistakes: list[BadQuery] = []

    def take(found: re.Match[str]) -> str:
        name = found["field"].lower()
        made = _filter(name, found["value"], now)
        if made is None:
            mistakes.append(_invalid(name, found["value"]))
            return found[0]
        filters.append(made)
        return " "

    rest = _SITE.sub(r"\1", _FILTER.sub(take, text)).strip()
    for name, value in (fields or {}).items():
        if value.strip():
            filters.append(_required(name, value.strip(), now))
    filters = _intersected(filters)
    if not rest and (filters or not text.strip()):
        return TorrentQuery(None, tuple(filters))
    # Unify spellings before the query is split: "web dl" is one word. But in "web -dl", the second word is excluded.
    rest = "".join(one_spelling(part) for part in _EXCLUSION.split(rest))
    return TorrentQuery(parse_query(rest, torrent_words), tuple(filters), tuple(mistakes[:MISTAKES_MAX]))


def _intersected(filters: Sequence[ValueFilter]) -> list[ValueFilter]:
    """Intersect the ranges of each number: otherwise an index would read the number once for each range."""
    joined: dict[str | int, ValueFilter] = {}
    for place, each in enumerate(filters):
        if each.values:
            joined[place] = each
            continue
        before = joined.get(each.field, each)
        low = max((bound for bound in (before.low, each.low) if bound is not None), default=None)
        high = min((bound for bound in (before.high, each.high) if bound is not None), default=None)
        joined[each.field] = ValueFilter(each.field, low, high)
    return [*joined.values()]


def _required(name: str, value: str, now: float) -> ValueFilter:
    made = _filter(name, value, now)
    if made is None:
        raise _invalid(name, value)
    return made


def _invalid(name: str, value: str) -> BadQuery:
    return BadQuery(INVALID + EXAMPLES[name], name=name, value=value[:40])


def _filter(name: str, value: str, now: float) -> ValueFilter | None:
    if name in KEYWORDS:
        values = tuple(dict.fromkeys(value.lower().split(",")))
        return ValueFilter(KEYWORDS[name], values=values) if _VALUES.fullmatch(value) else None
    field = NUMBERS[name]
    found = _RANGE.fullmatch(value)
    if found is None:
        return None
    read = _READERS.get(name, _number)
    low, high = read(found["low"], now), read(found["high"] or "", now)
    if found["dots"]:
        if found["sign"] or not (low or high) or (found["low"] and not low) or (found["high"] and not high):
            return None
        if name == "age":
            low, high = high, low
        return ValueFilter(field, low[0] if low else None, high[1] if high else None)
    if low is None:
        return None
    sign = found["sign"] or (">=" if name == "size" else "")
    if name == "age":  # an older torrent has a smaller time
        sign = {"": ">=", "<": ">=", "<=": ">=", ">": "<", ">=": "<"}[sign]
    return _signed(field, sign, low)


def _signed(field: str, sign: str, bounds: tuple[int, int]) -> ValueFilter:
    low, high = bounds
    if not sign:
        return ValueFilter(field, low, high)
    if sign.startswith(">"):
        return ValueFilter(field, low if sign == ">=" else min(high + 1, NUMBER_MAX))
    return ValueFilter(field, None, max(high if sign == "<=" else low - 1, 0))


def _number(text: str, _now: float) -> tuple[int, int] | None:
    return (int(text), int(text)) if text.isascii() and text.isdigit() and len(text) < NUMBER_CHARS_MAX else None


def _size(text: str, _now: float) -> tuple[int, int] | None:
    size = parse_size(text) if len(text) < NUMBER_CHARS_MAX else None
    return None if size is None else (min(size, NUMBER_MAX), min(size, NUMBER_MAX))


def _age(text: str, now: float) -> tuple[int, int] | None:
    days = _number(text, now)
    if days is None:
        return None
    hour = max(int(now) - days[0] * DAY_S, 0) // HOUR_S * HOUR_S  # indexes find whole hours faster
    return hour, hour + HOUR_S - 1


def _date(text: str, _now: float) -> tuple[int, int] | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = (int(part) if part else 0 for part in found.groups())
    try:
        start = datetime(year, month or 1, day or 1, tzinfo=UTC)
        if day:
            end = start + timedelta(days=1)
        else:
            end = datetime(year + (not month or month == 12), month % 12 + 1 if month else 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    if start.year < 1970:
        return None
    return int(start.timestamp()), int(end.timestamp()) - 1


_READERS: dict[str, Callable[[str, float], tuple[int, int] | None]] = {"size": _size, "date": _date, "age": _age}
