"""LinkExtractor: selects the links of a page, with the arguments of Scrapy's class.

    LinkExtractor(allow=r"/item/\\d+", restrict_css="main").extract_links(response)  # -> [Link(url, text, ...), ...]

lexbor (`response.tree`) finds the elements. parsel finds them if there is an XPath, or CSS that lexbor does not
support. URLs are canonical (`core.url`); those that cannot be crawled are skipped. An extractor caches whether it
allows a URL, because a site repeats its navigation on every page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from lycosa.core.errors import BadSpider
from lycosa.core.public import public
from lycosa.core.url import canonicalize
from lycosa.crawl.spiders.callbacks import compile_regex
from lycosa.crawl.spiders.response import Response
from lycosa.html.links import LINKS_MAX, join, resolver

VERDICTS_MAX = 16_384

LINK_TEXT_MAX = 10_000

_EXTENSIONS = (
    "7z 7zip bz2 gz rar tar tar.gz tgz xz zip zst "
    "ai avif bmp cdr drw dxf eps gif ico jpeg jpg mng pct png ps psd psp pst svg tif tiff webp "
    "aac aiff au flac m4a mid mp3 ogg opus ra wav wma "
    "3gp asf asx avi flv m4v mkv mov mp4 mpeg mpg qt rm swf webm wmv "
    "doc docb docm docx dotm dotx odg odp ods odt potm potx pps ppt pptm pptx xls xlsm xlsx xltm xltx "
    "apk bat bin cpl css deb dmg eot exe hta iso jar js msi msp otf pdf py rb rpm rss sh ttf wasm woff woff2"
)
IGNORED_EXTENSIONS = _EXTENSIONS.split()
"""Extensions of files that hardly ever contain links."""

Regexes = str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None
Strings = str | Iterable[str] | None

_HTML_BLANKS = " \t\n\r\f"
_URL_BLANKS = "".join(map(chr, range(0x21)))  # C0 controls and space, which the URL standard strips at both ends
_XHTML = "{http://www.w3.org/1999/xhtml}"
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9-]*")
_GROUP_REFERENCE = re.compile(r"\\[1-9]|\(\?P[<=]|\(\?\(")


class Link:
    """`url` is canonical. `nofollow`: whether the link has rel=nofollow."""

    __slots__ = ("fragment", "nofollow", "text", "url")

    def __init__(self, url: str, text: str = "", fragment: str = "", nofollow: bool = False) -> None:
        self.url = url
        self.text = text
        self.fragment = fragment
        self.nofollow = nofollow

    def _fields(self) -> tuple[str, str, str, bool]:
        return self.url, self.text, self.fragment, self.nofollow

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Link) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"Link({self.url!r}, {self.text!r}, fragment={self.fragment!r}, nofollow={self.nofollow})"


@public
class LinkExtractor:
    """Extracts links from pages. Raises `BadSpider` for invalid arguments.

    `allow` and `deny` are regular expressions that are searched in the URL, `restrict_text` in the text of the link.
    `allow_domains` and `deny_domains` include subdomains. `deny_extensions` defaults to `IGNORED_EXTENSIONS`.
    `restrict_css` and `restrict_xpaths` select the regions of the page to search. `tags` and `attrs` name the elements
    and attributes that contain links, "*" for all; `deny_tags` and `deny_attrs` are exceptions. `process_value` takes
    the absolute URL and returns another, or None to skip the link; with `strip`, whitespace around the value is removed
    first. `unique` keeps only the first link to each URL. `canonicalize` also sorts the query.
    """

    def __init__(
        self,
        allow: Regexes = (),
        deny: Regexes = (),
        allow_domains: Strings = (),
        deny_domains: Strings = (),
        restrict_xpaths: Strings = (),
        tags: Strings = ("a", "area"),
        attrs: Strings = ("href",),
        canonicalize: bool = False,
        unique: bool = True,
        process_value: Callable[[str], str | None] | None = None,
        deny_extensions: Strings = None,
        restrict_css: Strings = (),
        strip: bool = True,
        restrict_text: Regexes = None,
        deny_tags: Strings = (),
        deny_attrs: Strings = (),
    ) -> None:
        self._allow, self._deny = _compile(allow, "allow"), _compile(deny, "deny")
        self._text = _compile(restrict_text, "restrict_text")
        self._allow_domains, self._deny_domains = _domains(allow_domains), _domains(deny_domains)
        extensions = IGNORED_EXTENSIONS if deny_extensions is None else _as_list(deny_extensions)
        self._extensions = tuple("." + each.lower().removeprefix(".") for each in extensions)
        self._places = _make_search(  # pickles of earlier versions use this name
            _as_list(restrict_css),
            _as_list(restrict_xpaths),
            _NameFilter(tags, deny_tags),
            _NameFilter(attrs, deny_attrs),
        )
        self._canonicalize = canonicalize
        self._unique = unique
        self._process_value = process_value
        self._strip = strip
        self._verdicts: dict[str, bool] = {}

    def extract_links(self, response: Response) -> list[Link]:
        """Return the links in the order of the page."""
        search = self._places
        base_url = search.base_url(response)
        resolve = self._processing_resolver(response.url, base_url) if self._process_value else _link_resolver(base_url)
        links: list[Link] = []
        done: set[str] = set()  # values and URLs that were refused or, with `unique`, extracted
        for value, element, attributes in search.values(response):
            address, fragment = _split_fragment(value) if "#" in value else (value, "")
            if address in done:
                continue
            url = resolve(address)
            if url is None or not self._is_allowed(url):
                done.add(address)
                continue
            if self._canonicalize:
                url = _with_sorted_query(url)
            text = search.text(element)[:LINK_TEXT_MAX]
            if url in done or (self._text and not any(regex(text) for regex in self._text)):
                continue
            links.append(Link(url, text, fragment, _has_nofollow(attributes)))
            if len(links) == LINKS_MAX:
                break
            if self._unique:
                done.update((address, url))
        return links

    def matches(self, url: str) -> bool:
        if self._allow_domains or self._deny_domains:
            domains = _domains_of(url)
            if self._allow_domains and self._allow_domains.isdisjoint(domains):
                return False
            if not self._deny_domains.isdisjoint(domains):
                return False
        if self._allow and not any(search(url) for search in self._allow):
            return False
        return not any(search(url) for search in self._deny)

    def _is_allowed(self, url: str) -> bool:
        verdict = self._verdicts.get(url)
        if verdict is None:
            path = url.partition("?")[0].lower()
            verdict = not path.endswith(self._extensions) and self.matches(url)
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[url] = verdict
        return verdict

    def _processing_resolver(self, page_url: str, base_url: str) -> Callable[[str], str | None]:
        process = self._process_value
        assert process is not None

        def resolve(value: str) -> str | None:
            try:
                processed = process(urljoin(base_url, value.strip(_HTML_BLANKS) if self._strip else value))
            except ValueError:  # urljoin cannot parse it
                return None
            return None if processed is None else join(page_url, processed)

        return resolve


class _NameFilter:
    """A set of names of elements or attributes: `allowed` ("*" for all) minus `denied`."""

    def __init__(self, allowed: Strings, denied: Strings) -> None:
        self.allowed = {name.lower() for name in _as_list(allowed)}
        self.denied = {name.lower() for name in _as_list(denied)}

    def __contains__(self, name: object) -> bool:
        return name not in self.denied and (name in self.allowed or "*" in self.allowed)

    @property
    def only(self) -> str:
        """The only allowed name, or ""."""
        (name, *more) = self.allowed or {""}
        return "" if more or name == "*" or self.denied else name

    @property
    def are_plain(self) -> bool:
        """Whether a CSS selector can express the filter."""
        return bool(self.allowed) and not self.denied and all(map(_PLAIN_NAME.fullmatch, self.allowed))


def _selector(tags: _NameFilter, attrs: _NameFilter) -> str:
    """Return a CSS selector for the elements that pass the filters, and maybe others. It selects no element twice."""
    if tags.are_plain and attrs.only and attrs.are_plain:
        return ",".join(f"{tag}[{attrs.only}]" for tag in sorted(tags.allowed))  # faster than :is()
    by_tag = f":is({','.join(sorted(tags.allowed))})" if tags.are_plain else ""
    by_attr = f":is({','.join(f'[{attr}]' for attr in sorted(attrs.allowed))})" if attrs.are_plain else ""
    return by_tag + by_attr or "*"


class _LexborSearch:
    text = staticmethod(LexborNode.text)

    def __init__(self, regions: Sequence[str], tags: _NameFilter, attrs: _NameFilter) -> None:
        self._regions = regions
        self._selector = _selector(tags, attrs)
        self._tags, self._attrs = tags, attrs

    def base_url(self, response: Response) -> str:
        base = response.tree.css_first("base[href]")
        return _base_url(response.url, base.attributes.get("href") if base else None)

    def values(self, response: Response) -> Iterator[_Value]:
        """Yield (value, element, attributes of the element) for each value that may be a link."""
        tree, selector = response.tree, self._selector
        regions: list[Any] = [node for css in self._regions for node in tree.css(css)] if self._regions else [tree]
        elements = (node for region in regions for node in region.css(selector))
        if self._attrs.only and self._tags.are_plain:  # the selector is exact: no filter needed
            name = self._attrs.only
            for node in elements:
                attributes = node.attributes
                if name in attributes:  # lexbor's [href] also selects SVG's xlink:href
                    yield attributes[name] or "", node, attributes
        else:
            for node in elements:
                if node.tag in self._tags:
                    yield from _matching(self._attrs, node, node.attributes)


class _XPathSearch:
    """Raises `BadSpider` if a selector of a region selects text or attributes."""

    def __init__(self, regions: Sequence[str], tags: _NameFilter, attrs: _NameFilter) -> None:
        self._regions = regions
        self._tags, self._attrs = tags, attrs

    def text(self, element: Any) -> str:
        return str(element.xpath("string()"))

    def base_url(self, response: Response) -> str:
        return _base_url(response.url, response.xpath("//base/@href").get())

    def values(self, response: Response) -> Iterator[_Value]:
        for xpath in self._regions:
            for region in response.xpath(xpath):
                if not hasattr(region.root, "iter"):
                    raise BadSpider(
                        f"{xpath!r} (restrict_xpaths or restrict_css) selects text: select elements, without /@..., "
                        "/text(), ::attr() or ::text"
                    )
                for element in region.root.iter("*"):
                    if element.tag.removeprefix(_XHTML) in self._tags:
                        yield from _matching(self._attrs, element, element.attrib)


_Value = tuple[str, Any, Mapping[str, str | None]]


def _matching(names: _NameFilter, element: Any, attributes: Mapping[str, str | None]) -> Iterator[_Value]:
    for name, value in attributes.items():
        if name in names:
            yield value or "", element, attributes


def _make_search(
    css: list[str], xpaths: list[str], tags: _NameFilter, attrs: _NameFilter
) -> _LexborSearch | _XPathSearch:
    """Use lexbor if it supports all selectors. Raises `BadSpider` for invalid selectors."""
    if not xpaths and all(map(_is_known_to_lexbor, css)):
        return _LexborSearch(css, tags, attrs)
    for xpath in xpaths:
        _check_xpath(xpath)
    return _XPathSearch([*xpaths, *map(_css_to_xpath, css)], tags, attrs)


def _is_known_to_lexbor(css: str) -> bool:
    try:
        LexborHTMLParser("").css(css)
    except SelectolaxError:
        return False
    return True


def _css_to_xpath(css: str) -> str:
    from parsel.csstranslator import HTMLTranslator

    try:
        return HTMLTranslator().css_to_xpath(css)
    except (ValueError, SyntaxError) as error:
        raise BadSpider(f"restrict_css of a LinkExtractor: {css!r} is not a CSS selector: {error}") from error


def _check_xpath(xpath: str) -> None:
    from parsel import Selector

    try:
        Selector("<p>").xpath(xpath)
    except ValueError as error:
        raise BadSpider(f"restrict_xpaths of a LinkExtractor: {error}") from error


def _base_url(page_url: str, href: str | None) -> str:
    page_url = canonicalize(page_url)
    return (join(page_url, href) if href else None) or page_url


def _link_resolver(base_url: str) -> Callable[[str], str | None]:
    resolve = resolver(base_url)

    def url_of(value: str) -> str | None:
        if value and (value[0] <= " " or value[-1] <= " "):
            value = value.strip(_URL_BLANKS)
        link = resolve(value)
        return None if link is None else link.url

    return url_of


def _split_fragment(value: str) -> tuple[str, str]:
    address, _, fragment = value.partition("#")
    # Keep a "#" after a blank: at the end of the URL the blank would be stripped, but it must be escaped.
    return (address + "#" if address and address[-1] <= " " else address), fragment.rstrip(_URL_BLANKS)


def _with_sorted_query(url: str) -> str:
    address, mark, query = url.partition("?")
    return address + mark + "&".join(sorted(query.split("&"))) if "&" in query else url


def _has_nofollow(attributes: Mapping[str, str | None]) -> bool:
    return "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower().split()


def _domains_of(url: str) -> list[str]:
    """Return the host of a URL and its parent domains; if the URL has a port, also each with the port."""
    authority = url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2].lower()
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    host = host if colon else authority
    labels = host.split(".")
    domains = [".".join(labels[n:]) for n in range(len(labels))]
    return [*domains, *(f"{domain}:{port}" for domain in domains)] if colon else domains


def _domains(domains: Strings) -> frozenset[str]:
    return frozenset(domain.strip().removeprefix(".").lower() for domain in _as_list(domains))


def _compile(regexes: Regexes, name: str) -> list[Callable[[str], object]]:
    """Return `search` functions. Expressions that have neither flags nor group references are joined, for speed."""
    listed = [regexes] if isinstance(regexes, (str, re.Pattern)) else list(regexes or ())
    compiled = [compile_regex(each, f"{name} of a LinkExtractor") for each in listed]
    simple = [each for each in compiled if each.flags == re.UNICODE and not _GROUP_REFERENCE.search(each.pattern)]
    if len(simple) < 2:
        return [each.search for each in compiled]
    joined = re.compile("|".join(f"(?:{each.pattern})" for each in simple))
    return [joined.search, *(each.search for each in compiled if each not in simple)]


def _as_list(strings: Strings) -> list[str]:
    return [strings] if isinstance(strings, str) and strings else list(strings or ())
