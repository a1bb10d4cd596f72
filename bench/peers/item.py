"""Shared by all peers: command-line arguments, the scope of the crawl, and the item.

    python bench/peers/PEER.py ITEMS START_URL...

ITEMS is the file of JSON lines to write. A page is in scope when its URL begins with a start URL up to its last slash
and ends in `.html`. The fields are read off the lxml tree that the peer has parsed anyway, by compiled XPath and not by
selectors. This is quicker than what users of the peers write, and the same code for all, so that only the peers differ.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import Any, NamedTuple

from lxml import etree

CONCURRENCY = 64
TIMEOUT_S = 30

_HEADINGS = etree.XPath("//body//*[self::h1 or self::h2 or self::h3 or self::h4 or self::h5 or self::h6]")
_TEXT = etree.XPath(
    "//body//text()[not(parent::script or parent::style or parent::noscript or parent::iframe)]", smart_strings=False
)
_TITLE = etree.XPath("string(//head/title)", smart_strings=False)


class Job(NamedTuple):
    """What one run has to do. `allowed` matches the URLs in scope, with or without a fragment."""

    items: str
    starts: list[str]
    allowed: re.Pattern[str]


def job() -> Job:
    """Read the command line."""
    items, *starts = sys.argv[1:]
    folders = "|".join(re.escape(start[: start.rindex("/") + 1]) for start in starts)
    return Job(items, starts, re.compile(rf"(?:{folders})[^?#]*\.html(?:#.*)?$"))


def page_fields(root: Any) -> dict[str, Any]:
    """Return the fields that are read off the page."""
    return {
        "title": " ".join(_TITLE(root).split()),
        "headings": [" ".join("".join(each.itertext()).split()) for each in _HEADINGS(root)],
        "text": " ".join(" ".join(_TEXT(root)).split()),
        "lang": (root.get("lang") or "").lower(),
    }


def now() -> str:
    """Return the time as the items have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
