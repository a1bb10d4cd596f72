"""Parse sitemaps (sitemaps.org), sitemap indexes, lists of URLs, RSS and Atom feeds. No input raises.

This is a lexer for the dozen elements that matter, in linear time. It expands no entities, and reads sitemaps that are
not well-formed (a bare `&`, missing end tags, a truncated file). lxml's `iterparse` with `recover` takes 2 to 3 times
as long, removes `&b=` from a URL with a bare `&`, stops at a nesting depth of 256, and returns half a URL at the end of
a truncated file.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec

from lycosa.core.url import URL_MAX
from lycosa.html.charset import detect_encoding
from lycosa.html.links import join

SITEMAP_BYTES_MAX = 52_428_800
"""The limit of sitemaps.org, in bytes after decompression."""

ENTRIES_MAX = 50_000
"""The limit of sitemaps.org."""

TAGS_MAX = 2_000_000
"""Limits the time to a few seconds."""

ALTERNATES_MAX = 500

ROBOTS_SITEMAPS_MAX = 1_000

ROOT_WITHIN = 65_536
"""The root element must begin within this many bytes."""

VALUE_MAX = 100
"""Maximum characters of a date, a frequency or a priority."""

TEXT_BYTES_MAX = 6 * URL_MAX
"""Maximum bytes of an element's text before unescaping."""

Kind = Literal["urlset", "index", "feed", "text", ""]


class SitemapEntry(msgspec.Struct):
    """An entry of a sitemap. `loc` and `alternates` are as written: they may be relative or invalid.

    `modified` is the date as written, `lastmod` its unix time; `changefreq` is "" and `priority` None if missing. As
    with Scrapy's entries, `entry["lastmod"]` is the date as written, and a `sitemap_filter` may set it. `empty` has the
    names of elements without text.
    """

    loc: str
    modified: str = ""
    changefreq: str = ""
    priority: float | None = None
    alternates: tuple[str, ...] = ()
    empty: frozenset[str] = frozenset()

    @property
    def lastmod(self) -> float | None:
        """When the page was changed, in unix seconds; None if no full date is known.

        A date without a time of day counts as the start of that day (UTC).
        """
        return timestamp(self.modified)

    def __getitem__(self, name: str) -> Any:
        found = getattr(self, _KEYS[name])
        if found not in (None, "", ()):
            return found
        if name in self.empty:
            return ""
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, _KEYS[name], value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field by its name in Scrapy."""
        try:
            return self[name]
        except KeyError:
            return default


_KEYS = {
    "loc": "loc",
    "lastmod": "modified",
    "changefreq": "changefreq",
    "priority": "priority",
    "alternate": "alternates",
}


class Sitemap(NamedTuple):
    """The entries of a sitemap. `kind` is "" for other content; `cut`: whether bytes or entries were cut off."""

    kind: Kind
    entries: list[SitemapEntry]
    cut: bool = False


def parse_sitemap(body: bytes) -> Sitemap:
    """Parse a sitemap, an index of sitemaps, a feed or a list of URLs, optionally compressed by gzip."""
    body, cut = gunzip(body)
    encoding = detect_encoding(body, "")
    if encoding != "utf-8":
        body = body.decode(encoding, "replace").encode("utf-8", "replace")
    kind = _kind(body)
    if kind == "":
        return Sitemap(kind, [])
    entries = _lines(body, cut) if kind == "text" else _elements(body, kind)
    found = list(islice(entries, ENTRIES_MAX + 1))  # one more, to know whether any is cut off
    return Sitemap(kind, found[:ENTRIES_MAX], cut or len(found) > ENTRIES_MAX)


def gunzip(body: bytes, bytes_max: int = SITEMAP_BYTES_MAX) -> tuple[bytes, bool]:
    """Return at most `bytes_max` decompressed bytes, and whether there were more.

    A damaged file is decompressed up to the damage. A body that is not gzip is only cut to `bytes_max`.
    """
    if not body.startswith(b"\x1f\x8b"):
        return body[:bytes_max], len(body) > bytes_max
    found = bytearray()
    member = zlib.decompressobj(wbits=_GZIP)
    at = 0
    while at < len(body) and len(found) <= bytes_max:
        if member.eof:  # a file may consist of several members (RFC 1952 §2.2)
            member = zlib.decompressobj(wbits=_GZIP)
        piece = body[at : at + _PIECE]
        try:
            found += member.decompress(piece, bytes_max + 1 - len(found))
        except zlib.error:
            break
        at += len(piece) - len(member.unused_data)
    return bytes(found[:bytes_max]), len(found) > bytes_max


def sitemaps_in_robots(body: bytes, url: str) -> list[str]:
    """Return the canonical URLs of the Sitemap lines in the robots.txt at this URL."""
    found = (_SITEMAP_LINE.findall(body[:SITEMAP_BYTES_MAX]))[:ROBOTS_SITEMAPS_MAX]
    joined = (join(url, each.decode("utf-8", "replace")) for each in found)
    return list(dict.fromkeys(each for each in joined if each is not None))


def timestamp(date: str) -> float | None:
    """Return the unix seconds of a W3C date (ISO 8601) or a mail date (RFC 5322); None for other text.

    A date without a time zone is in UTC.
    """
    parse = datetime.fromisoformat if date[:4].isdigit() else parsedate_to_datetime
    try:
        when = parse(date)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_GZIP = 31  # window bits, with the header of gzip
_PIECE = 16_384
_PREFIX = rb"((?:[A-Za-z_][\w.-]*+:)?)"
_SKIPPED = rb"!--.*?(?:-->|\Z)|!\[CDATA\[.*?(?:\]\]>|\Z)|\?.*?(?:\?>|\Z)"
_ROOT = re.compile(
    rb"<(?:" + _SKIPPED + rb"|" + _PREFIX + rb"(urlset|sitemapindex|rss|RDF|feed|(?i:html))\b)", re.DOTALL
)
_KINDS: dict[bytes, Kind] = {b"urlset": "urlset", b"sitemapindex": "index"}
_NAMES = rb"(url|sitemap|item|entry|loc|link|lastmod|updated|published|pubDate|date|changefreq|priority|guid)"
_ELEMENT = re.compile(rb"<(?:" + _SKIPPED + rb"|(/?)" + _PREFIX + _NAMES + rb"((?:[\s/][^<>]*+)?)>)", re.DOTALL)
_USUAL = re.compile(  # a complete entry of the usual form: four times faster than lexing its tags
    rb"\s*+<url>\s*+<loc>([^<\s]{1,%d}+)</loc>\s*+"
    rb"(?:<lastmod>([^<&\s]{1,99}+)</lastmod>\s*+)?(?:<changefreq>([^<&\s]{1,99}+)</changefreq>\s*+)?"
    rb"(?:<priority>([^<&\s]{1,99}+)</priority>\s*+)?</url>" % URL_MAX
)
_ATTRIBUTE = re.compile(rb"\b(href|rel|isPermaLink)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_REFERENCE = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#(?:([0-9]{1,7})|[xX]([0-9a-fA-F]{1,6})));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_SITEMAP_LINE = re.compile(rb"^[ \t]*sitemap[ \t]*:[ \t]*([^\s#]+)", re.IGNORECASE | re.MULTILINE)
_URL_LINE = re.compile(rb"^[ \t]*(https?://\S++)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_MARK = b"\xef\xbb\xbf"

_SITEMAP_ENTRIES = frozenset({b"url", b"sitemap"})
_FEED_ENTRIES = frozenset({b"item", b"entry"})
_DATES = frozenset({b"lastmod", b"updated", b"pubDate"})
_OTHER_DATES = frozenset({b"published", b"date"})  # used if there is none of _DATES


def _kind(body: bytes) -> Kind:
    start = body.removeprefix(_MARK)[:ROOT_WITHIN].lstrip()
    if not start.startswith(b"<"):
        return "text" if _URL_LINE.match(start) else ""
    for found in _ROOT.finditer(start):
        if found[2]:
            return "" if found[2].lower() == b"html" else _KINDS.get(found[2], "feed")
    return ""


def _lines(body: bytes, cut: bool) -> Iterator[SitemapEntry]:
    if cut:  # the last line may be half a URL
        body = body[: body.rfind(b"\n") + 1]
    for line in _URL_LINE.finditer(body.removeprefix(_MARK)):
        if len(line[1]) <= URL_MAX:
            yield SitemapEntry(line[1].decode("utf-8", "replace"))


def _elements(body: bytes, kind: Kind) -> Iterator[SitemapEntry]:
    """An entry without an end tag ends where the next one begins."""
    names = _FEED_ENTRIES if kind == "feed" else _SITEMAP_ENTRIES
    draft: _EntryDraft | None = None
    at = 0
    for _ in range(TAGS_MAX):
        if draft is None and (usual := _USUAL.match(body, at)):  # inside an entry, _USUAL might match a nested one
            at = usual.end()
            yield _usual_entry(usual)
            continue
        tag = _ELEMENT.search(body, at)
        if tag is None:
            break
        at = tag.end()
        closing, prefix, name, attributes = tag.groups()
        if name is None or (draft is not None and name in names and prefix != draft.prefix):
            continue
        if name in names:
            if draft is not None and (entry := draft.entry()):
                yield entry
            draft = None if closing or attributes.endswith(b"/") else _EntryDraft(prefix, kind == "feed")
        elif draft is not None and not closing:
            draft.add(name, prefix == draft.prefix, attributes, body, at)
    if draft is not None and (entry := draft.entry()):
        yield entry


def _usual_entry(found: re.Match[bytes]) -> SitemapEntry:
    loc, date, frequency, priority = map(_unescaped, found.groups(b""))
    return SitemapEntry(loc, date, frequency, _number(priority))


class _EntryDraft:
    """An entry that is being read. Elements with its namespace prefix are its `own`; most others are ignored."""

    __slots__ = ("alternates", "empty", "feed", "fields", "prefix")

    def __init__(self, prefix: bytes, feed: bool) -> None:
        self.prefix = prefix
        self.feed = feed
        self.fields: dict[str, str] = {}
        self.alternates: list[str] = []
        self.empty: set[str] = set()

    def add(self, name: bytes, own: bool, attributes: bytes, body: bytes, at: int) -> None:
        """Add an element whose start tag ends at `at`. The first of equal names counts."""
        if name == b"link":
            self._add_link(own, attributes, body, at)
        elif name in _OTHER_DATES:
            self._keep("other date", _text(attributes, body, at), VALUE_MAX)
        elif own and name in _DATES:
            self._keep("date", _text(attributes, body, at), VALUE_MAX)
        elif own and name == b"loc":
            self._keep("loc", _text(attributes, body, at), URL_MAX)
        elif own and name == b"guid":
            if _attributes(attributes).get(b"isPermaLink") != "false":
                self._keep("guid", _text(attributes, body, at), URL_MAX)
        elif own:
            self._keep(name.decode(), _text(attributes, body, at), VALUE_MAX)

    def _add_link(self, own: bool, attributes: bytes, body: bytes, at: int) -> None:
        found = _attributes(attributes)
        href = found.get(b"href", "").strip()
        if not self.feed:
            if href and len(href) <= URL_MAX and len(self.alternates) < ALTERNATES_MAX:
                self.alternates.append(href)
        elif own and found.get(b"rel", "alternate") == "alternate":
            self._keep("loc", href or _text(attributes, body, at), URL_MAX)

    def _keep(self, name: str, value: str, length_max: int) -> None:
        if not value:
            self.empty.add("lastmod" if name == "date" else name)
        elif len(value) <= length_max:
            self.fields.setdefault(name, value)

    def entry(self) -> SitemapEntry | None:
        """Return None for an entry without a URL."""
        fields = self.fields
        guid = fields.get("guid", "")
        loc = fields.get("loc") or (guid if guid.startswith(("http://", "https://")) else "")
        if not loc:
            return None
        date = fields.get("date") or fields.get("other date", "")
        return SitemapEntry(
            loc,
            date,
            fields.get("changefreq", ""),
            _number(fields.get("priority", "")),
            tuple(self.alternates),
            frozenset(self.empty),
        )


def _text(attributes: bytes, body: bytes, at: int) -> str:
    """Return the text from `at` to the next tag; "" if the body ends before it."""
    if attributes.endswith(b"/"):
        return ""
    pieces = []
    end_max = at + TEXT_BYTES_MAX
    while (end := body.find(b"<", at, end_max)) >= 0:  # comments and CDATA sections may be in between
        pieces.append(_unescaped(body[at:end]))
        closing = _CLOSINGS.get(body[end : end + 4])
        if closing is None:
            return "".join(pieces).strip()
        at = body.find(closing, end + 4, end_max)
        if at < 0:
            return ""
        if closing == b"]]>":
            pieces.append(body[end + 9 : at].decode("utf-8", "replace"))
        at += 3
    return ""


_CLOSINGS = {b"<!--": b"-->", b"<![C": b"]]>"}


def _attributes(raw: bytes) -> dict[bytes, str]:
    return {name: _unescaped(double or single) for name, double, single in _ATTRIBUTE.findall(raw)}


def _unescaped(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return _NAMED[found[1]]
    code = int(found[2]) if found[2] else int(found[3], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
