"""A spider that follows links by rules.

    class Books(CrawlSpider):
        name = "books"
        start_urls = ["https://books.example/"]
        rules = (
            Rule(LinkExtractor(allow="/category/")),                       # followed
            Rule(LinkExtractor(allow="/book/"), callback="parse_book"),    # parsed, not followed
        )

        def parse_book(self, response):
            yield {"title": response.css("h1::text").get()}

A link belongs to the first rule that takes it. Which rule that was travels in the request (`meta["rule"]`, its number),
so that a crawl that is resumed goes on by it; `meta["link_text"]` is the text of the link.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.core.public import public
from lycosa.crawl.spiders.callbacks import apply_process_results, find_method, yield_results
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.link_extractor import Link, LinkExtractor
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

LINK_TEXT_MAX = 500
"""Characters of the text of a link that travel with its request."""

PAGES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
"""Content types of what is searched for links."""

Method = Callable[..., Any] | str | None


@public
class Rule:
    """Which links to follow, and what to do with their pages. Methods are given by name, or as functions.

    `callback(response, **cb_kwargs)` makes items and requests of a page. `follow`: whether links on it are followed
    too; by default if there is no callback. `process_links(links)` returns the links to keep, `process_request(request,
    response)` the request to make for a link found on that response, or None. `errback(failure)`: as of a request.
    """

    def __init__(
        self,
        link_extractor: Any = None,
        callback: Method = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        follow: bool | None = None,
        process_links: Method = None,
        process_request: Method = None,
        errback: Method = None,
    ) -> None:
        self.link_extractor = LinkExtractor() if link_extractor is None else link_extractor
        self.callback = callback
        self.cb_kwargs = dict(cb_kwargs or {})
        self.follow = callback is None if follow is None else follow
        self.process_links = process_links
        self.process_request = process_request
        self.errback = errback


@public
class CrawlSpider(Spider):
    """Follows links by `rules`, from the pages of `start_urls` on. Raises `BadSpider` for rules that cannot work."""

    rules: Sequence[Rule] = ()

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        if type(self).parse is not CrawlSpider.parse:
            name = type(self).__name__
            raise BadSpider(
                f"{name}.parse hides how a CrawlSpider follows links: call it parse_item, or parse_start_url"
            )
        self._compile_rules()

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        """Handle a page that no rule led to."""
        return self.parse_with_rules(response, self.parse_start_url, cb_kwargs)

    def parse_start_url(self, response: Response, **cb_kwargs: Any) -> Any:
        """Make items and requests of a page that no rule led to. Yours to write."""
        return ()

    def process_results(self, response: Response, results: list[Any]) -> Iterable[Any]:
        """Return the items and requests of a page as they are to be. Links to follow come later. Yours to write."""
        return results

    def parse_with_rules(
        self,
        response: Response,
        callback: Callable[..., Any] | None,
        cb_kwargs: Mapping[str, Any],
        follow: bool = True,
    ) -> Results | AsyncIterator[Any]:
        """Return what the callback makes of a page, and requests for its links."""
        if callback is None:
            return self._with_links(response, Results([], [], []), follow)
        name = getattr(callback, "__name__", "the callback")
        found = collect_now(lambda: callback(response, **cb_kwargs), name)
        if type(found) is Results:
            return self._with_links(response, found, follow)
        return self._parsed_later(response, found, name, follow)

    def _with_links(self, response: Response, results: Results, follow: bool) -> Results:
        if type(self).process_results is not CrawlSpider.process_results:
            results = apply_process_results(self.process_results, response, results)
        if follow and not results.closing:
            results.requests.extend(self._requests_to_follow(response))
        return results

    async def _parsed_later(self, response: Response, found: Any, name: str, follow: bool) -> AsyncIterator[Any]:
        for result in yield_results(self._with_links(response, await collect(found, name), follow)):
            yield result

    def _by_rule(self, response: Response, **cb_kwargs: Any) -> Any:
        """Handle a page that a rule led to."""
        rule = self._rule_of(response.request)
        return self.parse_with_rules(response, rule.callback, {**rule.cb_kwargs, **cb_kwargs}, rule.follow)

    def _failed_by_rule(self, failure: Failure) -> Any:
        """Hand a failure to the errback of the rule."""
        errback = self._rule_of(failure.request).errback if failure.request is not None else None
        return None if errback is None else errback(failure)

    def _requests_to_follow(self, response: Response) -> Iterator[Request]:
        if not _is_page(response):
            return
        seen: set[str] = set()
        for number, rule in enumerate(self._rules):
            links = [link for link in rule.link_extractor.extract_links(response) if link.url not in seen]
            if rule.process_links is not None:
                links = list(rule.process_links(links) or ())
            for link in links:
                seen.add(link.url)
                request = self._request_for(number, rule, link)
                if rule.process_request is not None:
                    request = rule.process_request(request, response)
                if request is not None:
                    yield request

    def _request_for(self, number: int, rule: _Compiled, link: Link) -> Request:
        meta = {"rule": number, "link_text": link.text[:LINK_TEXT_MAX]}
        return Request(link.url, "_by_rule", meta=meta, errback="_failed_by_rule" if rule.errback else None)

    def _compile_rules(self) -> None:
        """Look up the methods that the rules name. Call it again where rules were changed."""
        self._rules = [_Compiled(self, rule, number) for number, rule in enumerate(self.rules)]

    def _rule_of(self, request: Request) -> _Compiled:
        number = request.meta.get("rule")
        if type(number) is int and 0 <= number < len(self._rules):
            return self._rules[number]
        what = f"{request.url} was found by rule {number!r}, and {type(self).__name__} has {len(self._rules)} rules"
        raise BadSpider(f"{what} (counted from 0): put the rule back to resume this crawl, or start it afresh")


class _Compiled:
    """A rule of one spider, its methods looked up."""

    __slots__ = ("callback", "cb_kwargs", "errback", "follow", "link_extractor", "process_links", "process_request")

    def __init__(self, spider: Spider, rule: Any, number: int) -> None:
        where = f"rule {number} of {type(spider).__name__}"
        if not isinstance(rule, Rule):
            raise BadSpider(f"{where} is a {type(rule).__name__}: write Rule(LinkExtractor(...), ...)")
        if rule.callback == "parse" or getattr(rule.callback, "__name__", "") == "parse":
            raise BadSpider(
                f"{where} has the callback parse, which follows links itself: name another, like parse_item"
            )

        def method(name: str) -> Callable[..., Any] | None:
            given = getattr(rule, name)
            return None if given is None else find_method(spider, given, f"{name} of {where}")

        self.link_extractor = rule.link_extractor
        self.callback = method("callback")
        self.cb_kwargs = rule.cb_kwargs
        self.follow = rule.follow
        self.process_links = method("process_links")
        self.process_request = method("process_request")
        self.errback = method("errback")


def _is_page(response: Response) -> bool:
    if response.content_type:
        return response.content_type in PAGES
    return b"<" in response.body[:512] and b"\x00" not in response.body[:512]
