"""Extract the links of a page.

Links are the href of `a` and `area`, the src of `iframe` and `frame`, the href of `link rel=next|canonical|alternate`,
and the URL of a meta refresh. They are resolved as in browsers (WHATWG), against the first `<base href>` if there is
one. Comments, scripts, templates and URLs that cannot be crawled (`mailto:`, invalid, too long) are ignored.

Hrefs are deduplicated without their fragments. Resolved hrefs are cached: the pages of a site repeat its navigation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser

from lycosa.core.url import URL_MAX, canonicalize, fingerprint, host_key, join
from lycosa.html.meta_refresh import parse_content
from lycosa.html.page import parse_html

__all__ = ["LINKS_MAX", "PageLink", "extract_links", "join", "resolver"]

LINKS_MAX = 50_000
"""Maximum number of links of one page; further ones are ignored."""

ELEMENTS_MAX = 200_000
"""Maximum number of elements with an href, src or content attribute that are examined per page."""

RESOLVED_MAX = 16_384
"""Maximum number of resolved hrefs in the cache."""

CACHED_LENGTH_MAX = 256
"""Maximum length of a cached href and of its base URL, in characters. It limits the cache to 60 MB of memory."""

_CANDIDATES = "[href],[src],[content]"
_BLANK = "".join(map(chr, range(0x21)))  # C0 controls and space, which WHATWG strips at both ends
_SCHEMES_IGNORED = frozenset({"javascript", "mailto", "data", "tel"})
_FOLLOWED_RELS = frozenset({"next", "canonical", "alternate"})


class PageLink(NamedTuple):
    """A link of a page: the canonical URL, the fingerprint of a GET for it, and its host key.

    `nofollow`: all elements with this URL have rel=nofollow, or the whole page is nofollow.
    """

    url: str
    fingerprint: int
    host: str
    nofollow: bool


def extract_links(html: bytes | LexborHTMLParser, base_url: str, encoding: str = "utf-8") -> list[PageLink]:
    """Return the links of a page, unique by URL and in document order. A link to the page itself counts.

    `base_url` is the URL of the page (after redirects). Raises `BadUrl` if it is invalid.
    """
    tree = html if isinstance(html, LexborHTMLParser) else parse_html(html, encoding)
    hrefs = _RawLinks(tree)
    base_url = canonicalize(base_url)
    if hrefs.base is not None:
        base_url = join(base_url, hrefs.base) or base_url
    return _resolved(hrefs.found, base_url, hrefs.nofollow)


class _RawLinks:
    """`found` maps each href, without its fragment, to whether it is nofollow."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        self.found: dict[str, bool] = {}
        self.base: str | None = None
        self.nofollow = False
        found = self.found
        for node in tree.css(_CANDIDATES)[:ELEMENTS_MAX]:
            tag = node.tag_id
            if tag in _ANCHORS:
                attributes = node.attributes
                href = attributes.get("href")
                if href is None:
                    if "href" not in attributes:  # the selector also matches SVG's xlink:href
                        continue
                    href = ""
                if "#" in href:  # `_unfragmented`, inlined for the most frequent case
                    href = "" if href[0] == "#" else _unfragmented(href)
                if "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower().split():
                    found.setdefault(href, True)
                else:
                    found[href] = False  # one element without nofollow is enough to follow the link
            elif tag in _RARE:
                self._add_rare(tag, node.attributes)

    def _add_rare(self, tag: int, attributes: Mapping[str, str | None]) -> None:
        href = None
        if tag == _LINK:
            rels = (attributes.get("rel") or "").lower().split()
            if not _FOLLOWED_RELS.isdisjoint(rels) and "stylesheet" not in rels:
                href = attributes.get("href")
        elif tag in _FRAMES:
            href = attributes.get("src")
        elif tag == _BASE:
            if self.base is None:
                self.base = attributes.get("href")
        else:
            href = self._meta(attributes)
        if href:
            self.found[_unfragmented(href)] = False

    def _meta(self, attributes: Mapping[str, str | None]) -> str | None:
        content = attributes.get("content") or ""
        if (attributes.get("http-equiv") or "").lower() == "refresh":
            refresh = parse_content(content[: 2 * URL_MAX])
            return refresh[1] if refresh else None
        if (attributes.get("name") or "").lower() == "robots":
            directives = content.lower().replace(",", " ").split()
            self.nofollow = self.nofollow or "nofollow" in directives or "none" in directives
        return None


def _unfragmented(href: str) -> str:
    """Drop the fragment, but keep a '#' after a blank.

    Without the '#' the blank would be stripped from the end of the href instead of being escaped.
    """
    before = href.partition("#")[0]
    return before + "#" if before and before[-1] <= " " and "#" in href else before


def _resolved(hrefs: Mapping[str, bool], base_url: str, nofollow: bool) -> list[PageLink]:
    resolve = resolver(base_url)
    links: dict[str, PageLink] = {}
    for raw, marked in hrefs.items():
        link = resolve(raw.strip(_BLANK) if raw and (raw[0] <= " " or raw[-1] <= " ") else raw)
        if link is None:
            continue
        if len(links) >= LINKS_MAX:
            break
        if not (marked or nofollow):
            links[link.url] = link
        elif link.url not in links:
            links[link.url] = link._replace(nofollow=True)
    return list(links.values())


def resolver(base_url: str) -> Callable[[str], PageLink | None]:
    """Return a function that resolves an href (stripped of blanks) to a link, or to None if it cannot be crawled.

    `base_url` must be canonical.
    """
    origin = base_url[: base_url.index("/", 8)]
    directory = base_url[: base_url.rindex("/", 0, base_url.find("?") if "?" in base_url else None) + 1]
    if len(directory) > CACHED_LENGTH_MAX:
        return partial(_resolve.__wrapped__, base_url)
    return partial(_resolve_in, base_url, origin, directory)


def _resolve_in(base_url: str, origin: str, directory: str, href: str) -> PageLink | None:
    """Use as cache key only the part of the base URL that affects the result."""
    if not href or href[0] in "?#" or len(href) > CACHED_LENGTH_MAX:
        return _resolve.__wrapped__(base_url, href)
    if href[0] == "/":
        return _resolve(origin, href)
    if ":" not in href:
        return _resolve(directory, href)
    if href.startswith(("http://", "https://")):
        return _resolve("http://a/", href)  # the base of an absolute URL does not matter
    if href.partition(":")[0].lower() in _SCHEMES_IGNORED:
        return None
    return _resolve.__wrapped__(base_url, href)  # "https:page" is relative to an https page


@lru_cache(RESOLVED_MAX)
def _resolve(base_url: str, href: str) -> PageLink | None:
    url = join(base_url, href)
    return None if url is None else PageLink(url, fingerprint("GET", url), host_key(url), False)


def _tag_id(name: str) -> int:
    return LexborHTMLParser("").create_node(name).tag_id


_LINK, _BASE, _META = _tag_id("link"), _tag_id("base"), _tag_id("meta")
_ANCHORS = frozenset({_tag_id("a"), _tag_id("area")})
_FRAMES = frozenset({_tag_id("iframe"), _tag_id("frame")})
_RARE = _FRAMES | {_LINK, _BASE, _META}
