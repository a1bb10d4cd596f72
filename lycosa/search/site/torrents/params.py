"""The parameters of a search: read from requests, checked, and written to links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from lycosa.core.errors import BadQuery
from lycosa.search.core.query import OFFSET_MAX
from lycosa.search.torrents import SORTS, TorrentRequest

PAGE_SIZE = 20
PAGE_MAX = OFFSET_MAX // PAGE_SIZE
FIELDS = ("type", "lang", "size", "files", "seeders", "age", "date", "year")
"""The filters of forms, links and the API, named as in the query language."""
VALUE_MAX = 100
API_LIMIT_MAX = 100
ORDERS = ("", "asc", "desc")
INFOHASH_DIGITS = {40, 64}


class SearchParams(NamedTuple):
    """The search that a visitor requested."""

    text: str
    fields: Mapping[str, str]
    sort: str
    ascending: bool
    page: int

    def request(self, limit: int = PAGE_SIZE) -> TorrentRequest:
        """Return the request for the page. `limit` is the number of results on each page. Raises `BadQuery`."""
        offset = (self.page - 1) * limit
        if offset > OFFSET_MAX:
            raise _no_page(str(self.page), OFFSET_MAX // limit + 1)
        return TorrentRequest(self.text, self.fields, self.sort, self.ascending, limit, offset)

    def query(self, **changes: str | int) -> str:
        """Return the parameters for a link, with these changes; "" removes a parameter. Without `page`, the link leads
        to page 1."""
        values: dict[str, str | int] = {"q": self.text, **self.fields}
        values |= {"sort": self.sort, "order": "asc" if self.ascending else ""}
        return urlencode({name: value for name, value in {**values, **changes}.items() if value != ""})

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.fields)


def search_params(values: QueryParams) -> SearchParams:
    """Read the parameters. Raises `BadQuery` if one is invalid."""
    fields = {name: _short(name, values[name].strip()) for name in FIELDS if values.get(name, "").strip()}
    sort = values.get("sort", "")
    if sort not in {"", *SORTS}:
        raise BadQuery("sort {value!r} is unknown: use one of {known}", value=sort[:20], known=", ".join(SORTS))
    order = values.get("order", "")
    if order not in ORDERS:
        raise BadQuery("order {value!r} is unknown: use asc or desc", value=order[:20])
    return SearchParams(values.get("q", "").strip(), fields, sort, order == "asc", _page(values))


def number(values: QueryParams, name: str, default: int, most: int) -> int:
    """Read a whole number of at most `most`. Raises `BadQuery`."""
    text = values.get(name, "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
        raise BadQuery(
            "{name} {value!r} is out of range: write a whole number up to {most}",
            name=name,
            value=text[:20],
            most=most,
        )
    return int(text)


def infohash_of(text: str) -> bytes | None:
    """Parse 40 or 64 hexadecimal digits; None for any other text."""
    if len(text) not in INFOHASH_DIGITS or not (text.isascii() and text.isalnum()):
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _page(values: QueryParams) -> int:
    try:
        return max(number(values, "page", 1, PAGE_MAX), 1)
    except BadQuery:
        raise _no_page(values["page"], PAGE_MAX) from None


def _no_page(page: str, most: int) -> BadQuery:
    return BadQuery(
        "page {value!r} does not exist: a search shows up to {most:,} pages; narrow it with more words or filters",
        value=page[:20],
        most=most,
    )


def _short(name: str, value: str) -> str:
    if len(value) > VALUE_MAX:
        raise BadQuery("{name} has {count} characters: use at most {most}", name=name, count=len(value), most=VALUE_MAX)
    return value
