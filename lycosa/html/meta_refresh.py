"""Find the meta refresh of a page: `<meta http-equiv=refresh content="5; url=...">`, as in the HTML standard.

Only the first SEARCHED_BYTES of a page are searched. The search starts from the q of `http-equiv`, a rare letter, so
it takes 0.4 µs for nearly all pages. A refresh inside a comment or an element of `ignore_tags` is ignored, as in a
browser that runs scripts. The end tag ends such an element, even if a quote in it is still open.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser

from lycosa.core.url import join
from lycosa.html.page import parse_html

SEARCHED_BYTES = 4096
"""Number of bytes at the start of a page that are searched (as in Scrapy)."""

VALUE_WITHIN = 32
"""`refresh` must end within this number of bytes after the q of `http-equiv`."""

IGNORE_TAGS = ("script", "noscript")
DELAY_DIGITS_MAX = 9
METAS_MAX = 100

_CONTENT = re.compile(
    r"[\t\n\f\r ]*(?:([0-9]+)[0-9.]*|\.[0-9.]*)[\t\n\f\r ]*(?:[;,]|(?<=[\t\n\f\r ]))[\t\n\f\r ]*"
    r"(?:url[\t\n\f\r ]*=[\t\n\f\r ]*)?(?:\"([^\"]*)|'([^']*)|(.*))",
    re.IGNORECASE | re.DOTALL,
)


class Refresh(NamedTuple):
    """The page loads the canonical `url` after `delay_s` seconds."""

    delay_s: int
    url: str


def may_refresh(body: bytes) -> bool:
    """Return whether the start of a page has `http-equiv`, and `refresh` soon after it (see VALUE_WITHIN)."""
    find = body.find
    for letter in (b"q", b"Q"):  # rare in pages, and found faster than a word
        at = find(letter, 0, SEARCHED_BYTES)
        while at >= 0:
            if (
                body[at - 6 : at + 4].lower() == b"http-equiv"
                and b"refresh" in body[at + 4 : at + VALUE_WITHIN].lower()
            ):
                return True
            at = find(letter, at + 1, SEARCHED_BYTES)
    return False


def meta_refresh(
    body: bytes, encoding: str, base_url: str, ignore_tags: Collection[str] = IGNORE_TAGS
) -> Refresh | None:
    """Return the first meta refresh of a page.

    None if there is none, if it has no URL (it only reloads the page), or if its URL cannot be fetched. Raises
    `LookupError` for an encoding that Python does not know.
    """
    if not may_refresh(body):
        return None
    tree = parse_html(_ignored(*ignore_tags).sub(b"", body[:SEARCHED_BYTES]), encoding)
    for node in tree.css("meta[http-equiv][content]")[:METAS_MAX]:
        attributes = node.attributes
        if (attributes.get("http-equiv") or "").lower() != "refresh":
            continue
        if refresh := parse_content(attributes.get("content") or ""):
            delay_s, href = refresh
            url = join(_base(tree, base_url), href) if href else None
            return Refresh(delay_s, url) if url else None
    return None


def parse_content(content: str) -> tuple[int, str] | None:
    """Return the delay in seconds and the raw URL (may be "") of a refresh; None for other text."""
    found = _CONTENT.match(content)
    if found is None:
        return None
    return int((found[1] or "0")[:DELAY_DIGITS_MAX]), (found[2] or found[3] or found[4] or "").strip()


def _base(tree: LexborHTMLParser, url: str) -> str:
    base = tree.css_first("base[href]")
    href = base.attributes.get("href") if base else None
    return (join(url, href) if href else None) or url


@lru_cache(16)
def _ignored(*tags: str) -> re.Pattern[bytes]:
    """Match comments and elements with these tags, even if they are not closed."""
    names = "|".join(map(re.escape, tags)) or "(?!)"
    pattern = rf"<!--.*?(?:-->|\Z)|<({names})(?=[\s/>]).*?(?:</\1(?=[\s/>])[^>]*(?:>|\Z)|\Z)"
    return re.compile(pattern.encode(), re.DOTALL | re.IGNORECASE)
