"""Uses terms to find the documents in a range of numbers, in a tantivy index.

A tantivy query for a range of numbers reads the numbers of all documents, even if very few are in the range, or if few
have the words of the query. So each document also has these terms:

- the day and the hour of its time (`Schema.time`), for filters by time
- for sorting, the step of each number in `Schema.stepped`, a small range of values (see `step_of`): to find the
  documents with the highest numbers, the terms of a few steps are enough
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tantivy
from tantivy import FieldType, Occur, Query

from lycosa.search.core.request import ValueFilter
from lycosa.search.core.schema import Schema
from lycosa.search.core.torrent_query import DAY_S, HOUR_S

DAYS, STEPS = "day", "step"
"""The fields of the terms."""
DAY_HOURS = DAY_S // HOUR_S
DAY_MAX = 0xFFFF
"""The last day (in 2149). It also has the documents with later times."""
TERMS_MAX = 500
"""Maximum number of days and hours of a query. A longer range is searched by its numbers."""
TERM_COST = 8_000
"""Looking up a term takes as long as reading the numbers of this many documents."""


class Days:
    """The days of the documents in one commit of the index, and the number of documents of each."""

    def __init__(self, fields: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self._fields = fields
        self._counts = {int(term[1:], 16): count for term, count in searcher.terms_with_prefix(DAYS, "d")}
        self._terms_max = min(TERMS_MAX, searcher.num_docs // TERM_COST)

    def most(self, wanted: ValueFilter) -> int:
        """Return an upper bound for the number of documents in the range."""
        return sum(self._counts[day] for day in self._within(wanted))

    def query(self, wanted: ValueFilter) -> Query | None:
        """Return a query for the documents in the range.

        None if the range needs too many terms, does not consist of whole hours, or begins or ends after the start of
        the last day.
        """
        days = self._within(wanted)
        if len(days) > self._terms_max or not _has_whole_hours(wanted):
            return None
        terms: list[str] = []
        for day in days:
            hours = range(day * DAY_HOURS, (day + 1) * DAY_HOURS)
            chosen = [_hour_term(hour) for hour in hours if _contains(wanted, hour * HOUR_S)]
            terms += [_day_term(day)] if len(chosen) == DAY_HOURS else chosen
        return any_of(self._fields, DAYS, terms) if len(terms) <= self._terms_max else None

    def _within(self, wanted: ValueFilter) -> list[int]:
        first = _day(wanted.low or 0)
        last = DAY_MAX if wanted.high is None else _day(wanted.high)
        return [day for day in self._counts if first <= day <= last]


class Steps:
    """The steps of the numbers in one commit of the index, and the number of documents of each."""

    def __init__(self, fields: tantivy.Schema, searcher: tantivy.Searcher, schema: Schema) -> None:
        self._fields = fields
        self._counts = {name: _step_counts(searcher, f"{name} ") for name in schema.stepped}

    def query(self, bound: ValueFilter, limit: int) -> Query | None:
        """Return a query for the documents in the range, and for some others. None if there are more than `limit`."""
        counts = self._counts[bound.field]
        low = 0 if bound.low is None else step_of(bound.low)
        chosen = [step for step in counts if low <= step and (bound.high is None or step <= step_of(bound.high))]
        if sum(counts[step] for step in chosen) > limit:
            return None
        return any_of(self._fields, STEPS, (f"{bound.field} {step}" for step in chosen))


def any_of(fields: tantivy.Schema, field: str, terms: Iterable[str]) -> Query:
    """Return a query for the documents that have any of these terms. It does not affect the order of results."""
    found = [(Occur.Should, Query.term_query(fields, field, term, "basic")) for term in terms]
    return Query.const_score_query(Query.boolean_query(found) if found else Query.empty_query(), 0.0)


def terms_of(numbers: Mapping[str, int], schema: Schema) -> dict[str, list[str]]:
    """Return the terms of a document with these numbers, by field."""
    time = numbers.get(schema.time)
    days = [] if time is None else [_day_term(_day(time)), _hour_term(time // HOUR_S)]
    return {DAYS: days, STEPS: [f"{name} {step_of(numbers[name])}" for name in schema.stepped if name in numbers]}


def whole_hours(wanted: ValueFilter) -> ValueFilter:
    """Widen a range to whole hours."""
    low = None if wanted.low is None else wanted.low // HOUR_S * HOUR_S
    high = None if wanted.high is None else (wanted.high // HOUR_S + 1) * HOUR_S - 1
    return wanted._replace(low=low, high=high)


def step_of(number: int) -> int:
    """Return the step of a number: the number of its bits, and the two bits after the first.

    From 4 on, numbers of one step differ by less than a quarter.
    """
    bits = number.bit_length()
    return number if bits < 3 else bits * 4 + (number >> (bits - 3) & 3)


def range_query(fields: tantivy.Schema, wanted: ValueFilter) -> Query:
    """Return the query for a range of numbers. It does not affect the order of results."""
    found = Query.range_query(fields, wanted.field, FieldType.Unsigned, wanted.low or 0, wanted.high)
    return Query.const_score_query(found, 0.0)


def _step_counts(searcher: tantivy.Searcher, prefix: str) -> dict[int, int]:
    return {int(term.removeprefix(prefix)): count for term, count in searcher.terms_with_prefix(STEPS, prefix)}


def _day(time: int) -> int:
    return min(time // DAY_S, DAY_MAX)


def _day_term(day: int) -> str:
    return f"d{day:x}"


def _hour_term(hour: int) -> str:
    return f"h{hour:x}"


def _has_whole_hours(wanted: ValueFilter) -> bool:
    last = DAY_MAX * DAY_S  # later documents have hours, but no days of their own
    return wanted == whole_hours(wanted) and (wanted.low or 0) <= last and (wanted.high is None or wanted.high < last)


def _contains(wanted: ValueFilter, time: int) -> bool:
    return (wanted.low or 0) <= time and (wanted.high is None or time <= wanted.high)
