"""The response as a spider sees it: decoded, selectable, followable. Everything is computed on first use, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from lycosa.core import model
from lycosa.core.charset import detect_encoding
from lycosa.core.errors import BadUrl
from lycosa.core.headers import Headers
from lycosa.core.links import join
from lycosa.core.page import parse_html

if TYPE_CHECKING:  # parsel is loaded by the first selector: a crawl without one does not pay for it
    from parsel import Selector, SelectorList
    from selectolax.lexbor import LexborHTMLParser


class Response:
    """A response with the request it answers. `url` is where the body came from, `fetched_at` is in unix seconds."""

    def __init__(self, raw: model.Response, request: model.Request, record: model.UrlRecord, fetched_at: float) -> None:
        self.raw = raw
        self.request = request
        self.record = record
        self.fetched_at = fetched_at
        self.url = record.url

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.raw.status

    @property
    def headers(self) -> Headers:
        """Header fields."""
        return self.raw.headers

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self.raw.body

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's meta."""
        return self.request.meta

    @property
    def cb_kwargs(self) -> Mapping[str, Any]:
        """The request's cb_kwargs."""
        return self.request.cb_kwargs

    @property
    def depth(self) -> int:
        """Links between a start URL (0) and this page."""
        return self.record.depth

    @property
    def timings(self) -> model.Timings:
        """Seconds until each step of the transfer was complete."""
        return self.raw.timings

    @cached_property
    def content_type(self) -> str:
        """The media type without parameters, in lower case."""
        return self.headers.get("content-type").partition(";")[0].strip().lower()

    @cached_property
    def encoding(self) -> str:
        """The character encoding, found as browsers do; a name Python knows."""
        return detect_encoding(self.body, self.headers.get("content-type"))

    @cached_property
    def text(self) -> str:
        """The body as text; undecodable bytes are replaced."""
        return self.body.decode(self.encoding, "replace")

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The lexbor tree: the fast way to select (`tree.css`)."""
        return parse_html(self.body, self.encoding)

    @cached_property
    def selector(self) -> Selector:
        """The parsel selector behind `css`, `xpath` and `re`."""
        from parsel import Selector

        kind = "xml" if self.content_type.endswith(("/xml", "+xml")) and "html" not in self.content_type else "html"
        return Selector(text=self.text, type=kind, base_url=self.url)

    def css(self, query: str) -> SelectorList[Selector]:
        """Select by CSS, with parsel's `::text` and `::attr(name)`."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Select by XPath."""
        return self.selector.xpath(query, **variables)

    def re(self, pattern: str) -> list[str]:
        """Return what the regular expression finds in the text of the page."""
        return self.selector.re(pattern)

    def json(self) -> Any:
        """Return the body as JSON. Raises `ValueError` when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.url}: the body is not JSON: {error}") from error

    def urljoin(self, url: str) -> str:
        """Return the absolute URL. Raises `BadUrl` when there is none."""
        absolute = join(self._base, url)
        if absolute is None:
            raise BadUrl(f"{url!r} on {self.url} is not a URL that can be fetched")
        return absolute

    def follow(self, link: str | Selector, callback: Any = None, **options: Any) -> model.Request:
        """Return a request for a link: a URL, or a selected element with `href` or `src`.

        Options are the fields of `Request`. Raises `BadUrl`.
        """
        return model.Request(self.urljoin(_address(link)), callback, **options)

    def follow_all(
        self,
        links: Iterable[str | Selector] = (),
        callback: Any = None,
        *,
        css: str = "",
        xpath: str = "",
        **options: Any,
    ) -> Iterator[model.Request]:
        """Yield requests for links, or for what `css` or `xpath` select, leaving out what cannot be fetched."""
        chosen = self.css(css) if css else self.xpath(xpath) if xpath else links
        for link in chosen:
            absolute = join(self._base, _address(link))
            if absolute is not None:
                yield model.Request(absolute, callback, **options)

    @cached_property
    def _base(self) -> str:
        href = self.selector.xpath("//base/@href").get() if b"<base" in self.body.lower() else None
        return (join(self.url, href) if href else None) or self.url

    def __repr__(self) -> str:
        return f"<{self.status} {self.url}>"


def _address(link: str | Selector) -> str:
    if isinstance(link, str):
        return link
    if isinstance(link.root, str):
        return link.root
    attributes = link.attrib
    return attributes.get("href") or attributes.get("src") or ""
