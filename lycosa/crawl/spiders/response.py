"""The response that callbacks receive. Its text, tree and selector are computed once, on first use."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lycosa.core.errors import BadSpider, BadUrl
from lycosa.core.headers import Headers
from lycosa.core.public import public
from lycosa.frontier.core.model import UrlRecord
from lycosa.html.charset import detect_encoding
from lycosa.html.links import join
from lycosa.html.page import parse_html
from lycosa.http.core import model
from lycosa.http.core.request import HeadersLike, Request

if TYPE_CHECKING:  # parsel is slow to import: only the first selector loads it
    from parsel import Selector, SelectorList
    from selectolax.lexbor import LexborHTMLParser

DATALOSS = "dataloss"


@public
class Response:
    """A response and its request. `url` is the final URL, after redirects; `fetched_at` is in unix seconds.

    `flags` are words such as "cached" that middlewares add, or "dataloss" for an incomplete body. `raw` is the
    fetcher's response.
    """

    contacted = True
    """Whether the host received the request. False for a response that a middleware made."""

    def __init__(
        self,
        url: str,
        status: int = 200,
        headers: HeadersLike | Headers | None = None,
        body: bytes | str = b"",
        flags: Iterable[str] = (),
        request: Request | None = None,
        *,
        ip_address: str = "",
        protocol: str = "",
        encoding: str = "",
        fetched_at: float = 0.0,
    ) -> None:
        fields = headers if isinstance(headers, Headers) else Headers.of(_header_pairs(headers or {}))
        content = body.encode(encoding or "utf-8") if isinstance(body, str) else body
        self.raw = model.HttpResponse(url, status, fields, content, model.Timings(), ip_address, protocol, len(content))
        self.request = request if request is not None else Request(url)
        self.fetched_at = fetched_at
        self.url = url
        self.flags = list(flags)
        if encoding or isinstance(body, str):
            self.encoding = encoding or "utf-8"  # replaces the cached_property

    @classmethod
    def of(cls, raw: model.HttpResponse, request: Request, fetched_at: float) -> Response:
        response = cls.__new__(cls)
        response.raw = raw
        response.request = request
        response.fetched_at = fetched_at
        response.url = raw.url
        response.flags = [DATALOSS] if raw.partial else []
        return response

    @property
    def status(self) -> int:
        return self.raw.status

    @property
    def headers(self) -> Headers:
        return self.raw.headers

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self.raw.body

    @property
    def meta(self) -> dict[str, Any]:
        """The request's meta, with Scrapy's keys depth, download_latency, retry_times and redirect_times."""
        meta, record = self.request.meta, self.record
        retries, redirects = (record.attempts, record.redirects) if record is not None else (0, 0)
        latency_s = self.timings.first_byte_s
        meta.update(depth=self.depth, download_latency=latency_s, retry_times=retries, redirect_times=redirects)
        return meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        return self.request.cb_kwargs

    @property
    def record(self) -> UrlRecord | None:
        """The frontier's record of the request, or None."""
        return self.request.record  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """The number of links from a start URL (depth 0) to this page."""
        return self.record.depth if self.record is not None else 0

    @property
    def ip_address(self) -> str:
        """The IP address of the server, "" if unknown."""
        return self.raw.ip

    @property
    def protocol(self) -> str:
        """The HTTP version: "1.0", "1.1", "2" or "3"; "" if unknown."""
        return self.raw.http_version

    @property
    def timings(self) -> model.Timings:
        """Seconds until each step of the transfer was done."""
        return self.raw.timings

    @cached_property
    def content_type(self) -> str:
        """The media type without parameters, in lower case."""
        return self.headers.get("content-type").partition(";")[0].strip().lower()

    @cached_property
    def encoding(self) -> str:
        """Python's name of the encoding: `response_encoding` in meta, else detected as browsers do."""
        label = self.request.get_meta("response_encoding")
        return detect_encoding(self.body, self.headers.get("content-type")) if label is None else _codec_name(label)

    @cached_property
    def text(self) -> str:
        """The body as text, without a byte order mark. Undecodable bytes are replaced."""
        return self.body.decode(self.encoding, "replace").removeprefix("\ufeff")

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The lexbor tree: `tree.css` is the fastest way to select."""
        return parse_html(self.body, self.encoding)

    @cached_property
    def selector(self) -> Selector:
        """The parsel selector behind `css`, `xpath` and `re`."""
        from lycosa.crawl.spiders.selectors import Selector  # loads parsel and lxml

        text: str | None = self.__dict__.get("text")
        return Selector.of_page(self.body, self.encoding, text, _markup_of(self.content_type), self.url)

    def css(self, query: str) -> SelectorList[Selector]:
        """Select by CSS, with parsel's `::text` and `::attr(name)`."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        return self.selector.xpath(query, **variables)

    def jmespath(self, query: str, **options: Any) -> SelectorList[Selector]:
        selector = self.selector
        if selector.type != "json":  # JSON that is served as text or HTML, or without a type
            with suppress(ValueError):
                selector = type(selector)(root=self.json(), type="json")
        return selector.jmespath(query, **options)

    def re(self, pattern: str) -> list[str]:
        return self.selector.re(pattern)

    def json(self) -> Any:
        """Decode the body as JSON, in any encoding. Raises `ValueError`."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                return json.loads(self.text)  # some servers send NaN or UTF-16, which msgspec rejects
            except (ValueError, RecursionError):
                raise ValueError(f"{self.url}: the body is not JSON: {error}") from error

    def urljoin(self, url: str) -> str:
        """Return the absolute URL. Raises `BadUrl` for a URL that cannot be fetched."""
        absolute = join(self._base, url)
        if absolute is None:
            raise BadUrl(f"{url!r} on {self.url} is not a URL that can be fetched")
        return absolute

    def follow(self, link: str | Selector, callback: Any = None, **options: Any) -> Request:
        """Return a request for a link: a URL, or a selected element with `href` or `src`.

        `options` are arguments of `Request`. Raises `BadUrl`.
        """
        url = _url_of(link)
        if url is None:
            raise BadUrl(f"the selected {link!r:.100} has neither href nor src")
        return Request(self.urljoin(url), callback, **options)

    def follow_all(
        self,
        links: Iterable[str | Selector] = (),
        callback: Any = None,
        *,
        css: str = "",
        xpath: str = "",
        **options: Any,
    ) -> Iterator[Request]:
        """Yield requests for `links`, or for the elements that `css` or `xpath` selects.

        URLs that cannot be fetched are skipped.
        """
        if bool(css) + bool(xpath) + (links != ()) != 1:
            raise TypeError("follow_all takes one of links, css and xpath")
        for link in self.css(css) if css else self.xpath(xpath) if xpath else links:
            url = _url_of(link)
            absolute = join(self._base, url) if url is not None else None
            if absolute is not None:
                yield Request(absolute, callback, **options)

    @cached_property
    def _base(self) -> str:
        # Look only for the two usual spellings: a case-insensitive search of the whole body would take too long.
        may_have_base = (b"<base" in self.body or b"<BASE" in self.body) and _markup_of(self.content_type) != "json"
        href = self.selector.xpath("//base/@href").get() if may_have_base else None
        return (join(self.url, href) if href else None) or self.url

    def replace(self, **changes: Any) -> Response:
        kept = {name: getattr(self, name) for name in ARGUMENTS if name not in changes}
        if "encoding" in self.__dict__ and not {"body", "headers", "encoding"} & changes.keys():
            kept["encoding"] = self.encoding
        return type(self)(**kept, **changes)

    def copy(self) -> Response:
        return self.replace()

    def __repr__(self) -> str:
        return f"<{self.status} {self.url}>"


ARGUMENTS = ("url", "status", "headers", "body", "flags", "request", "ip_address", "protocol", "fetched_at")


def _codec_name(label: Any) -> str:
    try:
        return codecs.lookup(label).name
    except (LookupError, TypeError, ValueError):
        raise BadSpider(f"response_encoding in meta is {label!r:.60}, which is not an encoding of Python") from None


def _header_pairs(headers: HeadersLike) -> Iterator[tuple[str, str]]:
    """Yield (name, value) pairs. A list holds several values of one field."""
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        for each in value if isinstance(value, (list, tuple)) else [value]:
            yield _text(name), _text(each)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _markup_of(content_type: str) -> Literal["html", "xml", "json"]:
    if content_type.endswith(("/json", "+json")):
        return "json"
    return "xml" if content_type.endswith(("/xml", "+xml")) and "html" not in content_type else "html"


def _url_of(link: Any) -> str | None:
    """Return the URL of a link as written in the page, or None."""
    if isinstance(link, str):
        return link
    if not hasattr(link, "root"):
        url = getattr(link, "url", None)
        if not isinstance(url, str):
            raise TypeError(f"follow a URL, a Link or one selected element, not a {type(link).__name__}")
        return url
    if isinstance(link.root, str):
        return link.root
    attributes: Mapping[str, str] = link.attrib
    return attributes.get("href", attributes.get("src"))
