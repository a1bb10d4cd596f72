"""The item of a crawl without a spider."""

from __future__ import annotations

import msgspec

from lycosa.core.public import public


@public
class PageItem(msgspec.Struct):
    """One item for each 2xx response of an allowed content type. `out_links` is a count, `fetched_at` ISO 8601 in UTC,
    `fingerprint` 16 hexadecimal digits."""

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
