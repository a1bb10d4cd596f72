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

A link belongs to the first rule that extracts it. The request stores the text of the link (`meta["link_text"]`) and
the number of the rule (`meta["rule"]`), by which a resumed crawl finds the rule.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.core.public import public
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.spiders.callbacks import apply_process_results, yield_results
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.link_extractor import Link, LinkExtractor
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now, name_of
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

LINK_TEXT_MAX = 500

PAGES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})


@public
@dataclass(eq=False)
class Rule:
    """Selects the links to follow, and says how to handle their pages. Methods are given by name or as functions.

    `callback(response, **cb_kwargs)` returns items and requests of a page that the rule led to. `follow`: whether the
    links of such a page are followed too; by default only without a callback. `process_links(links)` returns the links
    to keep. `process_request(request, response)` returns the request for a link on the page `response`, or None to skip
    the link.
    """

    link_extractor: Any = None
    callback: Any = None
    cb_kwargs: Mapping[str, Any] | None = None
    follow: bool | None = None
    process_links: Any = None
    process_request: Any = None
    errback: Any = None

    def __post_init__(self) -> None:
        self.link_extractor = LinkExtractor() if self.link_extractor is None else self.link_extractor
        self.cb_kwargs = dict(self.cb_kwargs or {})
        self.follow = self.callback is None if self.follow is None else self.follow


@public
class CrawlSpider(Spider):
    """Follows links by `rules`, starting at `start_urls`. Raises `BadSpider` for invalid rules."""

    rules: Sequence[Rule] = ()

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        if type(self).parse is not CrawlSpider.parse:
            raise BadSpider(
                f"{type(self).__name__}.parse overrides the method that follows links: "
                "rename it to parse_item or parse_start_url"
            )
        self._compile_rules()

    def parse(self, response: Response, **cb_kwargs: Any) -> Any:
        return self.parse_with_rules(response, self.parse_start_url, cb_kwargs)

    def parse_start_url(self, response: Response, **cb_kwargs: Any) -> Any:
        """Return the items and requests of a page that no rule led to. Override this for start pages."""
        return ()

    def process_results(self, response: Response, results: list[Any]) -> Iterable[Any]:
        """Return the results of a page. Override this to change them. The links to follow are added afterwards."""
        return results

    def parse_with_rules(
        self,
        response: Response,
        callback: Callable[..., Any] | None,
        cb_kwargs: Mapping[str, Any],
        follow: bool = True,
    ) -> Results | AsyncIterator[Any]:
        if callback is None:
            return self._add_links(response, Results([], [], []), follow)
        name = name_of(callback)
        returned = collect_now(lambda: callback(response, **cb_kwargs), name)
        if type(returned) is Results:
            return self._add_links(response, returned, follow)
        return self._parse_async(response, returned, name, follow)

    def _add_links(self, response: Response, results: Results, follow: bool) -> Results:
        if type(self).process_results is not CrawlSpider.process_results:
            results = apply_process_results(self.process_results, response, results)
        if follow and not results.closing:
            results.requests.extend(self._requests_to_follow(response))
        return results

    async def _parse_async(self, response: Response, returned: Any, name: str, follow: bool) -> AsyncIterator[Any]:
        for result in yield_results(self._add_links(response, await collect(returned, name), follow)):
            yield result

    def _by_rule(self, response: Response, **cb_kwargs: Any) -> Any:
        rule = self._rule_of(response.request)
        return self.parse_with_rules(
            response, rule.callback, {**(rule.cb_kwargs or {}), **cb_kwargs}, bool(rule.follow)
        )

    def _failed_by_rule(self, failure: Failure) -> Any:
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

    def _request_for(self, number: int, rule: Rule, link: Link) -> Request:
        meta = {"rule": number, "link_text": link.text[:LINK_TEXT_MAX]}
        return Request(link.url, "_by_rule", meta=meta, errback="_failed_by_rule" if rule.errback else None)

    def _compile_rules(self) -> None:
        """Look up the methods of the rules. Call it again after changing `rules`."""
        self._rules = [_compile(self, rule, number) for number, rule in enumerate(self.rules)]

    def _rule_of(self, request: Request) -> Rule:
        number = request.meta.get("rule")
        if type(number) is int and 0 <= number < len(self._rules):
            return self._rules[number]
        count = f"{type(self).__name__} has {len(self._rules)} rules"
        raise BadSpider(
            f"{request.url} was found by rule {number!r} (counted from 0), and {count}: "
            "restore the rule to resume this crawl, or start it afresh"
        )


def _compile(spider: Spider, rule: Any, number: int) -> Rule:
    """Replace names of methods by the spider's methods, in a copy of the rule."""
    where = f"rule {number} of {type(spider).__name__}"
    if not isinstance(rule, Rule):
        raise BadSpider(f"{where} is a {type(rule).__name__}: write Rule(LinkExtractor(...), ...)")
    if rule.callback == "parse" or getattr(rule.callback, "__name__", "") == "parse":
        raise BadSpider(f"{where} has the callback parse, which follows links: use another name, like parse_item")
    compiled = copy(rule)
    for name in ("callback", "process_links", "process_request", "errback"):
        if (method := getattr(rule, name)) is not None:
            setattr(compiled, name, _find_method(spider, name, method, where))
    return compiled


def _find_method(spider: Spider, name: str, method: Any, where: str) -> Callable[..., Any]:
    if isinstance(method, str):
        if problem := user_errors.check_callback(method, spider, name):
            raise BadSpider(f"{where}: {problem}")
        return getattr(spider, method)  # type: ignore[no-any-return]
    if not callable(method):
        raise BadSpider(f"{where}: {name} is {method!r:.60}: write the name of a method")
    # In a class body, as in `rules = [Rule(callback=parse_item)]`, a method is still a plain function.
    own_name = getattr(method, "__name__", "")
    is_unbound = any(vars(each).get(own_name) is method for each in type(spider).__mro__)
    return getattr(spider, own_name) if is_unbound else method  # type: ignore[no-any-return]


def _is_page(response: Response) -> bool:
    if response.content_type:
        return response.content_type in PAGES
    return b"<" in response.body[:512] and b"\x00" not in response.body[:512]
