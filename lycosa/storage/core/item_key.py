"""The key of an item, unique in its crawl."""

from __future__ import annotations

from typing import NamedTuple


class ItemKey(NamedTuple):
    """Item `number` (from 0) of a page. A page that is fetched again yields the same keys.

    `fingerprint` is the 64-bit fingerprint of the page's request; `segment` is the segment of this request, or "". A
    `repeatable` page (dont_filter) is fetched on every request, and its items count as new each time.
    """

    url: str
    fingerprint: int
    number: int = 0
    segment: str = ""
    repeatable: bool = False

    def text(self, crawl: str) -> str:
        segment = f"{self.segment}/" if self.segment else ""
        return f"{crawl}/{segment}{self.fingerprint:016x}/{self.number}"
