"""Dates of HTTP header fields: strict as HTTP writes them, lenient as browsers read cookies (C5)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.dates import HTTP_DATE, cookie_date, http_date

NOW = 1_784_111_777.0  # Wed, 15 Jul 2026 10:36:17 GMT


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 2015 07:28:09 GMT",
        "Wednesday, 21-Oct-15 07:28:09 GMT",
        "Wed Oct 21 07:28:09 2015",
        "21 oct 2015 07:28:09",
        "07:28:9 2015 21 October",
        "Wed, 21 Oct 2015 7:28:09 -0700 (whatever)",
        "Wed,21/Oct/2015\t07:28:09",
        "21 Oct 15 2016 07:28:09 08:00:00 22 Nov",
        "21th Oct 2015 07:28:09",
    ],
)
def test_cookie_dates_in_every_format(text: str):
    assert cookie_date(text) == datetime(2015, 10, 21, 7, 28, 9, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "year"), [("69", 2069), ("70", 1970), ("99", 1999), ("00", 2000), ("1601", 1601), ("9999", 9999)]
)
def test_two_digit_years_of_cookie_dates(text: str, year: int):
    assert cookie_date(f"1 Jan {text} 00:00:00") == datetime(year, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "21 Oct 2015",
        "21 2015 07:28:00",
        "Oct 2015 07:28:00",
        "21 Oct 07:28:00",
        "31 Feb 2015 07:28:00",
        "0 Oct 2015 07:28:00",
        "21 Oct 1600 07:28:00",
        "21 Oct 2015 24:00:00",
        "21 Oct 2015 07:60:00",
        "21 Oct 2015 07:28",
        "21 Oct 20155 07:28:00",
        "\u0662\u0661 Oct 2015 07:28:00",
    ],
)
def test_text_that_is_no_cookie_date(text: str):
    assert cookie_date(text) is None


@pytest.mark.parametrize(
    "date", ["Wed, 15 Jul 2026 10:36:17 GMT", "Wednesday, 15-Jul-26 10:36:17 GMT", "Wed Jul 15 10:36:17 2026"]
)
def test_http_dates_in_their_three_formats(date):
    assert http_date(date, NOW) == NOW


@pytest.mark.parametrize(("digits", "year"), [("94", 1994), ("26", 2026), ("76", 2076), ("77", 1977), ("00", 2000)])
def test_two_digit_years_are_at_most_50_years_ahead(digits, year):
    assert http_date(f"Sunday, 01-Jan-{digits} 00:00:00 GMT", NOW) == datetime(year, 1, 1, tzinfo=UTC).timestamp()


def test_29_february_is_no_date_if_its_two_digit_year_is_no_leap_year():
    assert http_date("Sunday, 29-Feb-00 00:00:00 GMT", NOW) == datetime(2000, 2, 29, tzinfo=UTC).timestamp()
    assert http_date("Sunday, 29-Feb-00 00:00:00 GMT", datetime(2100, 1, 1, tzinfo=UTC).timestamp()) is None


@given(st.floats(0, 4e9).map(int))
def test_formatted_http_dates_are_parsed_back(seconds):
    assert http_date(formatdate(seconds, usegmt=True), NOW) == seconds


@given(st.from_regex(HTTP_DATE, fullmatch=True) | st.text(max_size=40))
def test_no_text_raises(text):
    assert http_date(text, NOW) is None or HTTP_DATE.fullmatch(text)
    assert cookie_date(text) is None or cookie_date(text) >= -2e10
