"""What tells an item apart from all others of a crawl."""

from __future__ import annotations

from typing import NamedTuple


class ItemKey(NamedTuple):
    """The item of this `number` (from 0) of a page. It is the same when the page is fetched again.

    `fingerprint` is that of the page's request (64 bits), `segment` the part of the crawl it is in. `repeatable` says
    that the page is fetched as often as it is asked for: each time its items are new ones.
    """

    url: str
    fingerprint: int
    number: int = 0
    segment: str = ""
    repeatable: bool = False

    def text(self, crawl: str) -> str:
        """Return the key as it stands in a stream."""
        segment = f"{self.segment}/" if self.segment else ""
        return f"{crawl}/{segment}{self.fingerprint:016x}/{self.number}"
