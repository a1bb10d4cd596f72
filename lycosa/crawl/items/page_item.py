"""The item for each page of a crawl without a user's spider."""

from __future__ import annotations

import msgspec

from lycosa.core.public import public


@public
class PageItem(msgspec.Struct):
    """The item of a 2xx response with an allowed content type.

    `out_links` is the number of links, `fetched_at` is in UTC (ISO 8601), `fingerprint` has 16 hexadecimal digits.
    """

    url: str
    final_url: str
    status: int
    content_type: str
    title: str
    headings: list[str]
    text: str
    lang: str
    out_links: int
    fetched_at: str
    depth: int
    fingerprint: str
