"""The signals of a crawl: `crawler.signals.connect(receiver, signals.item_scraped)`."""

from __future__ import annotations

from lycosa.crawl.events.signals import SIGNALS, Signal

__all__ = ["Signal", *sorted(SIGNALS)]  # noqa: PLE0604  the names are strings

globals().update(SIGNALS)
