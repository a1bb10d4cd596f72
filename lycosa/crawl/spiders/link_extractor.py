"""Which links of a page a spider wants: `LinkExtractor`, with the arguments of Scrapy's.

    LinkExtractor(allow=r"/item/\\d+", restrict_css="main").extract_links(response)  # -> [Link(url, text, ...), ...]

Two ways to the elements, one result: lexbor (`response.tree`), or parsel where XPath or a selector that lexbor does not
know asks for it. URLs come out canonical (`core.url`), the fragment kept beside them; only what can be crawled does.

A site repeats its navigation on every page, so an extractor remembers what it decided about a URL.
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
from lycosa.crawl.spiders.response import Response
from lycosa.html.links import LINKS_MAX, join, resolver

VERDICTS_MAX = 16_384
"""URLs whose verdict an extractor remembers."""

LINK_TEXT_MAX = 10_000
"""Characters kept of the text of a link."""

_EXTENSIONS = (
    "7z 7zip bz2 gz rar tar tar.gz tgz xz zip zst "
    "ai avif bmp cdr drw dxf eps gif ico jpeg jpg mng pct png ps psd psp pst svg tif tiff webp "
    "aac aiff au flac m4a mid mp3 ogg opus ra wav wma "
    "3gp asf asx avi flv m4v mkv mov mp4 mpeg mpg qt rm swf webm wmv "
    "doc docb docm docx dotm dotx odg odp ods odt potm potx pps ppt pptm pptx xls xlsm xlsx xltm xltx "
    "apk bat bin cpl css deb dmg eot exe hta iso jar js msi msp otf pdf py rb rpm rss sh ttf wasm woff woff2"
)
IGNORED_EXTENSIONS = _EXTENSIONS.split()
"""Extensions of what hardly ever holds links."""

Regexes = str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None
Strings = str | Iterable[str] | None

_HTML_BLANKS = " \t\n\r\f"
_BLANKS = "".join(map(chr, range(0x21)))  # C0 controls and space: what WHATWG strips at both ends of a URL
_XHTML = "{http://www.w3.org/1999/xhtml}"
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9-]*")
_GROUP_REFERENCE = re.compile(r"\\[1-9]|\(\?P[<=]|\(\?\(")


class Link:
    """A link: the canonical URL it leads to, its text, its fragment, and whether it says nofollow."""

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
    """Finds the links of a page that a spider wants. Raises `BadSpider` for what it cannot work with.

    `allow`, `deny`, `restrict_text`: regular expressions, searched in the URL and in the text of the link.
    `allow_domains`, `deny_domains`: hosts, with all below them. `deny_extensions`: by default `IGNORED_EXTENSIONS`.
    `restrict_css`, `restrict_xpaths`: the regions of the page to look at. `tags`, `attrs`: where links are, "*" for
    all, without `deny_tags` and `deny_attrs`. `process_value` gets each absolute URL as written and returns another, or
    None to leave it out; `strip` removes the blanks around it first. `unique`: each URL once, as it was found first.
    `canonicalize`: also sorts the query, so that one order counts.
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
        self._allow, self._deny = _searches(allow, "allow"), _searches(deny, "deny")
        self._text = _searches(restrict_text, "restrict_text")
        self._allow_domains, self._deny_domains = _domains(allow_domains), _domains(deny_domains)
        extensions = IGNORED_EXTENSIONS if deny_extensions is None else _listed(deny_extensions)
        self._extensions = tuple("." + each.lower().removeprefix(".") for each in extensions)
        self._places = _places(
            _listed(restrict_css), _listed(restrict_xpaths), _Names(tags, deny_tags), _Names(attrs, deny_attrs)
        )
        self._canonicalize = canonicalize
        self._unique = unique
        self._process_value = process_value
        self._strip = strip
        self._verdicts: dict[str, bool] = {}

    def extract_links(self, response: Response) -> list[Link]:
        """Return the links of a page, in the order of the page."""
        places = self._places
        base_url = places.base_url(response)
        resolve = self._processed(response.url, base_url) if self._process_value else _resolved(base_url)
        links: list[Link] = []
        settled: set[str] = set()  # values and URLs that need no second look
        for value, element, attributes in places.values(response):
            address, fragment = _split(value) if "#" in value else (value, "")
            if address in settled:
                continue
            url = resolve(address)
            if url is None or not self._passes(url):
                settled.add(address)
                continue
            if self._canonicalize:
                url = _with_sorted_query(url)
            text = places.text(element)[:LINK_TEXT_MAX]
            if url in settled or (self._text and not any(search(text) for search in self._text)):
                continue
            links.append(Link(url, text, fragment, _says_nofollow(attributes)))
            if len(links) == LINKS_MAX:
                break
            if self._unique:
                settled.update((address, url))
        return links

    def matches(self, url: str) -> bool:
        """Return whether `allow`, `deny` and the domains let a URL pass."""
        if self._allow_domains or self._deny_domains:
            hosts = _hosts(url)
            if self._allow_domains and self._allow_domains.isdisjoint(hosts):
                return False
            if not self._deny_domains.isdisjoint(hosts):
                return False
        if self._allow and not any(search(url) for search in self._allow):
            return False
        return not any(search(url) for search in self._deny)

    def _passes(self, url: str) -> bool:
        verdict = self._verdicts.get(url)
        if verdict is None:
            path = url.partition("?")[0].lower()
            verdict = not path.endswith(self._extensions) and self.matches(url)
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[url] = verdict
        return verdict

    def _processed(self, page_url: str, base_url: str) -> Callable[[str], str | None]:
        process = self._process_value
        assert process is not None

        def resolve(value: str) -> str | None:
            try:
                found = process(urljoin(base_url, value.strip(_HTML_BLANKS) if self._strip else value))
            except ValueError:  # of urljoin: not even half a URL
                return None
            return None if found is None else join(page_url, found)

        return resolve


class _Names:
    """Names of elements or of attributes: those listed, all where "*" is, less those denied."""

    def __init__(self, allowed: Strings, denied: Strings) -> None:
        self.allowed = {each.lower() for each in _listed(allowed)}
        self.denied = {each.lower() for each in _listed(denied)}

    def __contains__(self, name: object) -> bool:
        return name not in self.denied and (name in self.allowed or "*" in self.allowed)

    @property
    def only(self) -> str:
        """The one name there is; "" when there are more."""
        (name, *more) = self.allowed or {""}
        return "" if more or name == "*" or self.denied else name

    @property
    def are_plain(self) -> bool:
        """Whether a selector can say all there is to say."""
        return bool(self.allowed) and not self.denied and all(map(_PLAIN_NAME.fullmatch, self.allowed))


def _selector(tags: _Names, attrs: _Names) -> str:
    """Return a CSS selector that leaves out no element that is wanted, and names none twice."""
    if tags.are_plain and attrs.only and attrs.are_plain:
        return ",".join(f"{tag}[{attrs.only}]" for tag in sorted(tags.allowed))  # quicker than :is()
    by_tag = f":is({','.join(sorted(tags.allowed))})" if tags.are_plain else ""
    by_attr = f":is({','.join(f'[{attr}]' for attr in sorted(attrs.allowed))})" if attrs.are_plain else ""
    return by_tag + by_attr or "*"


class _InTree:
    """The values in the regions that CSS selects, by lexbor."""

    text = staticmethod(LexborNode.text)

    def __init__(self, regions: Sequence[str], tags: _Names, attrs: _Names) -> None:
        self._regions = regions
        self._selector = _selector(tags, attrs)
        self._tags, self._attrs = tags, attrs

    def base_url(self, response: Response) -> str:
        """Return the URL that the links of the page are relative to."""
        base = response.tree.css_first("base[href]")
        return _base_url(response.url, base.attributes.get("href") if base else None)

    def values(self, response: Response) -> Iterator[_Value]:
        """Yield each value that may be a link, its element, and the attributes of that."""
        tree, selector = response.tree, self._selector
        regions: list[Any] = [node for css in self._regions for node in tree.css(css)] if self._regions else [tree]
        elements = (node for region in regions for node in region.css(selector))
        if self._attrs.only and self._tags.are_plain:  # the selector has left nothing to choose
            name = self._attrs.only
            for node in elements:
                attributes = node.attributes
                if name in attributes:  # SVG's xlink:href is selected as href, too
                    yield attributes[name] or "", node, attributes
        else:
            for node in elements:
                if node.tag in self._tags:
                    yield from _chosen(self._attrs, node, node.attributes)


class _InDocument:
    """The values in the regions that XPath selects, by parsel. Raises `BadSpider` for what selects no elements."""

    def __init__(self, regions: Sequence[str], tags: _Names, attrs: _Names) -> None:
        self._regions = regions
        self._tags, self._attrs = tags, attrs

    def text(self, element: Any) -> str:
        """Return the text of an element."""
        return str(element.xpath("string()"))

    def base_url(self, response: Response) -> str:
        """Return the URL that the links of the page are relative to."""
        return _base_url(response.url, response.xpath("//base/@href").get())

    def values(self, response: Response) -> Iterator[_Value]:
        """Yield each value that may be a link, its element, and the attributes of that."""
        for xpath in self._regions:
            for region in response.xpath(xpath):
                if not hasattr(region.root, "iter"):
                    raise BadSpider(
                        f"restrict_xpaths {xpath!r} selects text: select elements, without /@... or /text()"
                    )
                for element in region.root.iter("*"):
                    if element.tag.removeprefix(_XHTML) in self._tags:
                        yield from _chosen(self._attrs, element, element.attrib)


_Value = tuple[str, Any, Mapping[str, str | None]]


def _chosen(names: _Names, element: Any, attributes: Mapping[str, str | None]) -> Iterator[_Value]:
    for name, value in attributes.items():
        if name in names:
            yield value or "", element, attributes


def _places(css: list[str], xpaths: list[str], tags: _Names, attrs: _Names) -> _InTree | _InDocument:
    """Choose lexbor where it understands all there is to select. Raises `BadSpider` for bad selectors."""
    unknown = [each for each in css if not _lexbor_knows(each)]
    translated = {each: _translated(each) for each in (css if xpaths else unknown)}
    for xpath in xpaths:
        _check_xpath(xpath)
    if not xpaths and not unknown:
        return _InTree(css, tags, attrs)
    return _InDocument([*xpaths, *(translated.get(each) or _translated(each) for each in css)], tags, attrs)


def _lexbor_knows(css: str) -> bool:
    try:
        LexborHTMLParser("").css(css)
    except SelectolaxError:
        return False
    return True


def _translated(css: str) -> str:
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


def _resolved(base_url: str) -> Callable[[str], str | None]:
    resolve = resolver(base_url)

    def url_of(value: str) -> str | None:
        if value and (value[0] <= " " or value[-1] <= " "):
            value = value.strip(_BLANKS)
        link = resolve(value)
        return None if link is None else link.url

    return url_of


def _split(value: str) -> tuple[str, str]:
    """Split off the fragment. After a blank the '#' stays, for without it the blank would be stripped, not escaped."""
    address, _, fragment = value.partition("#")
    return (address + "#" if address and address[-1] <= " " else address), fragment.rstrip(_BLANKS)


def _with_sorted_query(url: str) -> str:
    address, mark, query = url.partition("?")
    return address + mark + "&".join(sorted(query.split("&"))) if "&" in query else url


def _says_nofollow(attributes: Mapping[str, str | None]) -> bool:
    return "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower().split()


def _hosts(url: str) -> list[str]:
    """Return the host of a URL and every domain it is in, each also with the port if there is one."""
    authority = url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2].lower()
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    host = host if colon else authority
    labels = host.split(".")
    domains = [".".join(labels[n:]) for n in range(len(labels))]
    return [*domains, *(f"{domain}:{port}" for domain in domains)] if colon else domains


def _domains(domains: Strings) -> frozenset[str]:
    return frozenset(each.strip().removeprefix(".").lower() for each in _listed(domains))


def _searches(regexes: Regexes, name: str) -> list[Callable[[str], object]]:
    """Compile what is given; regular expressions that can be are joined to one. Raises `BadSpider`."""
    given = [regexes] if isinstance(regexes, (str, re.Pattern)) else list(regexes or ())
    compiled = [_compiled(each, name) for each in given]
    simple = [each for each in compiled if each.flags == re.UNICODE and not _GROUP_REFERENCE.search(each.pattern)]
    if len(simple) < 2:
        return [each.search for each in compiled]
    joined = re.compile("|".join(f"(?:{each.pattern})" for each in simple))
    return [joined.search, *(each.search for each in compiled if each not in simple)]


def _compiled(regex: Any, name: str) -> re.Pattern[str]:
    if isinstance(regex, re.Pattern):
        return regex
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise BadSpider(f"{name} of a LinkExtractor: {regex!r} is not a regular expression: {error}") from error


def _listed(given: Strings) -> list[str]:
    return [given] if isinstance(given, str) and given else list(given or ())
