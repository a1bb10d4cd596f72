"""Parse the dates of HTTP header fields, strictly or as leniently as browsers do for cookies."""

from __future__ import annotations

import re
from datetime import UTC, datetime

HTTP_DATE = re.compile(
    r"\w{3}, \d\d \w{3} [1-9]\d{3} \d\d:\d\d:\d\d GMT"
    r"|\w{6,9}, \d\d-\w{3}-(?P<two_digits>\d\d) \d\d:\d\d:\d\d GMT"
    r"|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d [1-9]\d{3}",
    re.ASCII,
)
"""The three formats of an HTTP date (RFC 9110 §5.6.7): IMF-fixdate, RFC 850, asctime."""

YEAR_MIN = 1601
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DELIMITERS = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])")
_DAY = re.compile(r"([0-9]{1,2})(?![0-9])")
_YEAR = re.compile(r"([0-9]{2,4})(?![0-9])")


def http_date(value: str, now: float) -> float | None:
    """Return the unix seconds of an HTTP date (RFC 9110 §5.6.7); None for any other text."""
    found = HTTP_DATE.fullmatch(value)
    date = _parse(value) if found else None
    if date is None or found is None:
        return None
    if found["two_digits"]:
        # A date more than 50 years ahead is in the previous century (RFC 9110 §5.6.7).
        this = datetime.fromtimestamp(now, UTC).year
        year = this - this % 100 + int(found["two_digits"])
        try:
            date = date.replace(year=year - 100 if year > this + 50 else year)
        except ValueError:  # 29 February of 2100
            return None
    return date.timestamp()


def cookie_date(text: str) -> float | None:
    """Return the unix seconds of a date in any format that browsers accept (RFC 6265 §5.1.1); None for other text."""
    date = _parse(text)
    return None if date is None else date.timestamp()


def _parse(text: str) -> datetime | None:
    """Use each token for the first missing part that it fits: time, day, month, year."""
    time = day = month = year = None
    for token in _DELIMITERS.split(text):
        if time is None and (found := _TIME.match(token)):
            time = found
        elif day is None and (found := _DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.match(token)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    try:
        date = datetime(year, month, day, int(time[1]), int(time[2]), int(time[3]), tzinfo=UTC)
    except ValueError:  # 31 February, 25:00:00
        return None
    return date if year >= YEAR_MIN else None
