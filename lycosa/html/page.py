"""Parse a page, and extract its title, headings, visible text and language.

`extract_links` and `extract_page` only read the tree, so they may run in any order, and a spider still finds the script
elements.

Text nodes are joined with a space, so that the words of neighbouring blocks (`<td>Name</td><td>Age</td>`) stay apart.
Punctuation at the start of a node then moves to the word before it (`<a>here</a>, there`). A word split by inline
markup (`<b>J</b>ohn`) becomes two words. To tell inline from block elements, Python would have to visit each text
node. That costs more than all else in this module, and corrects a word or two per page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode

from lycosa.html.nesting import limit_nesting

TEXT_MAX = 1_000_000
"""Maximum length of the visible text of a page, in characters."""

HEADINGS_MAX = 200
HEADING_MAX = 500
TITLE_MAX = 1_000
"""Maximum number of headings of a page, and maximum length of a heading and of the title, in characters."""

HIDDEN_MAX = 1_000
"""Maximum number of elements (scripts, styles, ...) whose content is removed from the text."""

LANG_MAX = 35
"""Maximum length of a language tag, in characters (RFC 5646 §4.4.1)."""

_NODE = "\x1f"  # between text nodes; str.split() treats it as white space
_PUNCTUATION = re.compile(_NODE + r"(?=[.,;:!?)\]]{1,4}(?!\w))")
_LANG = re.compile(r"[a-zA-Z]{2,8}(?:-[a-zA-Z0-9]{1,8})*", re.ASCII)


class PageText(NamedTuple):
    """The text of a page. `text` is the visible text, white space collapsed; `lang` is lower case, "" if unknown."""

    title: str
    headings: list[str]
    text: str
    lang: str


class _SharedSelector:
    """One CSS engine for all pages.

    `any_matches` uses a separate engine: selectolax does not set `current_node` during that call, so `Tree.selector`
    would not see that the shared engine is in use.
    """

    def __init__(self) -> None:
        engine: Any = LexborCSSSelector()  # type: ignore[no-untyped-call]
        self.find, self.find_first = engine.find, engine.find_first
        self.engine = engine

    def any_matches(self, query: str, node: LexborNode) -> Any:
        other: Any = LexborCSSSelector()  # type: ignore[no-untyped-call]
        return other.any_matches(query, node)


_SHARED = _SharedSelector()
_ENGINE = _SHARED.engine
_TELLS_USE = hasattr(_ENGINE, "current_node")


class Tree(LexborHTMLParser):
    """selectolax's tree with a shared CSS engine: creating an engine takes 10 µs per page."""

    @property
    def selector(self) -> Any:
        """The shared engine, or a new engine while the shared one is in use.

        A search from a finalizer during another search of the same engine would crash. Nothing is called between the
        check and the return, so no other thread can run in between.
        """
        return _SHARED if _TELLS_USE and _ENGINE.current_node is None else LexborCSSSelector()  # type: ignore[no-untyped-call]


def parse_html(body: bytes, encoding: str) -> LexborHTMLParser:
    """Parse a page, decoded with `encoding` whatever its meta elements declare. Invalid bytes become U+FFFD.

    A page that nests too deeply is cut (`html.nesting`). Raises `LookupError` for an encoding that Python does not
    know, which `detect_encoding` never returns.
    """
    if encoding == "utf-8":  # most pages: valid bytes are not copied
        if not body.isascii():
            try:
                body.decode()
            except UnicodeDecodeError:
                body = body.decode("utf-8", "replace").encode()
    else:
        body = body.decode(encoding, "replace").encode("utf-8", "replace")
    return Tree(limit_nesting(body.removeprefix(b"\xef\xbb\xbf")))


def extract_page(tree: LexborHTMLParser, content_language: str = "") -> PageText:
    """Return the text of a page. `content_language` is the HTTP header, used if the page names no language."""
    headings: list[str] = []
    text = ""
    body = tree.body
    if body is not None:
        # One traversal is faster than a selector with twelve names.
        found = [node for node in body.traverse() if node.tag_id in _READ]
        headings = list(_headings(found))
        text = _visible(body, found)
    return PageText(_title(tree, headings), headings, text, _lang(tree, content_language))


def _clean(text: str) -> str:
    if _NODE in text:
        text = _PUNCTUATION.sub("", text)
    return " ".join(text.split())


def _headings(found: Iterable[LexborNode]) -> Iterator[str]:
    count = 0
    for node in found:
        if count < HEADINGS_MAX and node.tag_id in _HEADING_TAGS:
            text = _clean(node.text(separator=_NODE))[:HEADING_MAX]
            if text:
                count += 1
                yield text


def _visible(body: LexborNode, found: Iterable[LexborNode]) -> str:
    text = body.text(separator=_NODE)
    hidden = [node for node in found if node.tag_id in _HIDDEN_TAGS]
    if hidden:
        text = _without(text, hidden[:HIDDEN_MAX])
    return _clean(text[: 2 * TEXT_MAX])[:TEXT_MAX]  # cut first: cleaning a huge text is slow


def _without(text: str, hidden: Iterable[LexborNode]) -> str:
    kept = []
    at = 0
    text = f"{_NODE}{text}{_NODE}"
    for node in hidden:
        content = node.text(separator=_NODE)
        if content:
            start = text.find(f"{_NODE}{content}{_NODE}", at)
            if start >= 0:  # otherwise the node is inside the previous one
                kept.append(text[at : start + 1])
                at = start + 1 + len(content)
    kept.append(text[at:])
    return "".join(kept)


def _title(tree: LexborHTMLParser, headings: list[str]) -> str:
    node = (tree.head and tree.head.css_first("title")) or tree.css_first("title:not(svg title)")
    title = _clean(node.text()[: 2 * TITLE_MAX]) if node is not None else ""
    if not title:
        meta = tree.css_first('meta[property="og:title"]')
        title = _clean((meta.attributes.get("content") or "")[: 2 * TITLE_MAX]) if meta is not None else ""
    if not title and headings:
        first = tree.css_first("h1")
        title = _clean(first.text(separator=_NODE)[: 2 * TITLE_MAX]) if first is not None else headings[0]
    return title[:TITLE_MAX]


def _lang(tree: LexborHTMLParser, content_language: str) -> str:
    root = tree.root
    attributes = root.attributes if root is not None else {}
    for value in (attributes.get("lang"), attributes.get("xml:lang"), content_language.partition(",")[0]):
        tag = (value or "").strip().replace("_", "-")
        if len(tag) <= LANG_MAX and _LANG.fullmatch(tag):
            return tag.lower()
    return ""


def _tag_ids(names: str) -> frozenset[int]:
    return frozenset(LexborHTMLParser("").create_node(name).tag_id for name in names.split())


_HEADING_TAGS = _tag_ids("h1 h2 h3 h4 h5 h6")
_HIDDEN_TAGS = _tag_ids("script style noscript iframe noframes noembed")
_READ = _HEADING_TAGS | _HIDDEN_TAGS
