"""`CrawlSpider` and its rules (C2): the links they follow, the methods they call, and resumed crawls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.engine.records import resolve_callback, to_record, to_request
from lycosa.crawl.spiders.crawl_spider import LINK_TEXT_MAX, CrawlSpider, Rule
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.link_extractor import Link, LinkExtractor
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now
from lycosa.http.core.request import Request

SITE = "http://shop.example"
PAGE = '<a href="/list/1">List</a><a href="/item/1">One</a><a href="/item/2#x">Two</a><a href="/about">About</a>'


def page(request: Request | None = None, body: str = PAGE, kind: str = "text/html") -> Response:
    request = request or Request(f"{SITE}/")
    return Response(request.url, 200, {"Content-Type": kind} if kind else {}, body.encode(), request=request)


def results(returned: Any) -> Results:
    return asyncio.run(collect(returned, "parse"))


def stored(request: Request, spider: CrawlSpider) -> Request:
    """Return the request as it comes back from a frontier."""
    return to_request(to_record(request, spider))


def visit(spider: CrawlSpider, request: Request, body: str = PAGE) -> Results:
    """Call the callback of the request after it was stored."""
    request = stored(request, spider)
    return results(resolve_callback(spider, request.callback)(page(request, body), **request.cb_kwargs))


def paths(found: Results) -> list[str]:
    return [request.url.removeprefix(SITE) for request in found.requests]


class Shop(CrawlSpider):
    name = "shop"
    rules: Any = (
        Rule(LinkExtractor("/item/"), callback="parse_item", cb_kwargs={"kind": "item"}),
        Rule(LinkExtractor("/list/")),
    )

    def parse_start_url(self, response: Response) -> Any:
        yield {"start": response.url}

    def parse_item(self, response: Response, kind: str) -> Any:
        yield {kind: response.url, "text": response.meta["link_text"]}
        yield response.follow("/more", self.parse_item, cb_kwargs={"kind": "more"})


def shop(*rules: Any, **attributes: Any) -> Any:
    return type("Shop", (Shop,), {"rules": rules or Shop.rules, **attributes})()


def test_the_first_page_is_parsed_and_its_links_become_requests() -> None:
    found = results(Shop().parse(page()))
    assert found.items == [{"start": f"{SITE}/"}]
    assert paths(found) == ["/item/1", "/item/2", "/list/1"]
    assert [request.meta for request in found.requests] == [
        {"rule": 0, "link_text": "One"},
        {"rule": 0, "link_text": "Two"},
        {"rule": 1, "link_text": "List"},
    ]


def test_a_rule_with_a_callback_does_not_follow_links_and_a_rule_without_one_does() -> None:
    spider = Shop()
    item, _, listing = results(spider.parse(page())).requests
    found = visit(spider, item)
    assert (found.items, paths(found)) == ([{"item": f"{SITE}/item/1", "text": "One"}], ["/more"])
    assert (visit(spider, listing).items, paths(visit(spider, listing))) == ([], ["/item/1", "/item/2", "/list/1"])


@pytest.mark.parametrize(("follow", "expected"), [(True, ["/item/1", "/item/2"]), (False, [])])
def test_the_argument_follow_overrides_the_default(follow: bool, expected: list[str]) -> None:
    spider = shop(Rule(LinkExtractor("/item/"), follow=follow))
    assert paths(visit(spider, results(spider.parse(page())).requests[0])) == expected
    spider = shop(Rule(LinkExtractor("/item/"), "parse_item", {"kind": "k"}, follow=follow))
    found = visit(spider, results(spider.parse(page())).requests[0])
    assert (len(found.items), paths(found)) == (1, ["/more", *expected])


def test_a_link_belongs_to_the_first_rule_that_extracts_it() -> None:
    spider = shop(Rule(LinkExtractor("item/1")), Rule(), Rule())
    found = results(spider.parse(page()))
    assert [(request.meta["rule"], request.url.removeprefix(SITE)) for request in found.requests] == [
        (0, "/item/1"),
        (1, "/list/1"),
        (1, "/item/2"),
        (1, "/about"),
    ]


def test_process_links_and_process_request_change_links_and_requests() -> None:
    class Processed(Shop):
        def links(self, links: list[Link]) -> Any:
            for link in links:
                link.url = link.url.replace("item", "thing")
                yield link

        def change(self, request: Request, response: Response) -> Request | None:
            return None if "2" in request.url else request.replace(priority=response.status)

        rules = (
            Rule(LinkExtractor("item"), process_links="links", process_request=change),
            Rule(LinkExtractor("list"), process_links=lambda links: []),
            Rule(LinkExtractor("about"), process_request=lambda request, response: request.replace(url=f"{SITE}/us")),
        )

    found = results(Processed().parse(page()))
    assert [(path, request.priority) for path, request in zip(paths(found), found.requests, strict=True)] == [
        ("/thing/1", 200),
        ("/us", 0),
    ]


async def coroutine(self: Any, response: Response) -> Any:
    await asyncio.sleep(0)
    return [{"n": 1}, None]


async def asynchronous(self: Any, response: Response) -> Any:
    yield {"n": 1}
    await asyncio.sleep(0)


def one(self: Any, response: Response) -> Any:
    return {"n": 1}


@pytest.mark.parametrize("callback", [coroutine, asynchronous, one])
def test_process_results_works_with_every_form_of_callback(callback: Callable[..., Any]) -> None:
    def process_results(self: Any, response: Response, results: Any) -> Any:
        return [{**result, "from": response.url} for result in results]

    attributes = {"callback": callback, "process_results": process_results}
    spider = shop(Rule(LinkExtractor("item/1"), "callback", follow=True), **attributes)
    found = visit(spider, results(spider.parse(page())).requests[0])
    assert (found.items, paths(found)) == ([{"n": 1, "from": f"{SITE}/item/1"}], ["/item/1"])


def closing(self: Any, response: Response) -> Any:
    yield {"n": 1}
    raise CloseSpider("enough")


async def closing_later(self: Any, response: Response) -> Any:
    yield {"n": 1}
    raise CloseSpider("enough")


@pytest.mark.parametrize("callback", [closing, closing_later])
@pytest.mark.parametrize("more", [{}, {"process_results": lambda self, response, results: results}])
def test_results_before_close_spider_are_kept(callback: Any, more: dict[str, Any]) -> None:
    spider = shop(Rule(LinkExtractor("item/1"), "callback", follow=True), callback=callback, **more)
    found = visit(spider, results(spider.parse(page())).requests[0])
    assert (found.items, paths(found), found.closing) == ([{"n": 1}], [], "enough")


def test_an_error_about_a_wrong_result_names_the_callback() -> None:
    spider = shop(Rule(LinkExtractor("item/1"), "callback"), callback=one)
    with pytest.raises(BadSpider, match=r"wrong yielded an? int"):
        results(spider.parse_with_rules(page(), wrong, {}))


def wrong(response: Response) -> Any:
    return [3]


def test_plain_callbacks_need_no_loop() -> None:
    found = collect_now(lambda: Shop().parse(page()), "parse")
    assert type(found) is Results
    assert len(found.requests) == 3


def test_callbacks_may_be_functions() -> None:
    class Functions(CrawlSpider):
        name = "functions"

        def parse_item(self, response: Response) -> Any:
            return {"by": self.name}

        def other(self, response: Response) -> Any:
            return {"by": "other"}

        rules = (
            Rule(LinkExtractor("/item/1"), callback=parse_item),
            Rule(LinkExtractor("/item/2"), lambda r: {"by": 0}),
        )

    class Heir(Functions):
        def parse_item(self, response: Response) -> Any:
            return {"by": "heir"}

    for spider, by in ((Functions(), "functions"), (Heir(), "heir")):
        first, second = results(spider.parse(page())).requests
        assert (visit(spider, first).items, visit(spider, second).items) == ([{"by": by}], [{"by": 0}])


def test_a_rule_has_its_own_errback() -> None:
    class Failing(Shop):
        rules = (Rule(LinkExtractor("item/1"), errback="failed"), Rule(LinkExtractor("item/2")))

        def failed(self, failure: Failure) -> Any:
            return {"failed": failure.request.url}

    spider = Failing()
    first, second = (stored(request, spider) for request in results(spider.parse(page())).requests)
    assert second.errback is None
    errback = resolve_callback(spider, first.errback)
    assert results(errback(Failure(OSError(), first))).items == [{"failed": f"{SITE}/item/1"}]


@pytest.mark.parametrize(
    ("kind", "found"), [("application/xhtml+xml", 3), ("", 3), ("application/json", 0), ("image/png", 0)]
)
def test_only_html_is_searched_for_links(kind: str, found: int) -> None:
    assert len(results(Shop().parse(page(kind=kind))).requests) == found


def test_a_binary_body_without_content_type_is_not_searched() -> None:
    assert results(Shop().parse(page(body="\x00" + PAGE, kind=""))).requests == []


def test_the_stored_text_of_a_link_is_bounded() -> None:
    (request,) = results(Shop().parse(page(body=f"<a href=/item/1>{'x' * 9000}</a>"))).requests
    assert len(request.meta["link_text"]) == LINK_TEXT_MAX


def test_a_resumed_crawl_finds_the_rule_of_a_request_by_number_or_reports_its_absence() -> None:
    request = results(Shop().parse(page())).requests[2]
    changed = shop(Rule(LinkExtractor("x")), Rule(LinkExtractor("about"), lambda response: {"new": response.url}))
    assert visit(changed, request).items == [{"new": f"{SITE}/list/1"}]
    with pytest.raises(BadSpider) as caught:
        visit(shop(Shop.rules[0]), request)
    assert str(caught.value) == (
        "http://shop.example/list/1 was found by rule 1 (counted from 0), and Shop has 1 rules: "
        "restore the rule to resume this crawl, or start it afresh"
    )


@pytest.mark.parametrize("number", [-1, 2, "0", None, True])
def test_a_wrong_rule_number_is_reported(number: Any) -> None:
    with pytest.raises(BadSpider, match="was found by rule"):
        Shop()._by_rule(page(Request(f"{SITE}/", meta={"rule": number})))


def test_rules_may_be_created_in_the_constructor() -> None:
    class Late(Shop):
        rules = ()

        def __init__(self, **arguments: str) -> None:
            self.rules = [Rule(LinkExtractor(arguments["what"]))]
            super().__init__(**arguments)

    assert paths(results(Late(what="about").parse(page()))) == ["/about"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            Rule(callback="parse_itm"),
            "rule 0 of Shop: Shop has no method 'parse_itm' for the callback: did you mean 'parse_item'?",
        ),
        (Rule(process_links="links"), "rule 0 of Shop: Shop has no method 'links' for the process_links"),
        (Rule(process_request=3), "rule 0 of Shop: process_request is 3: write the name of a method"),
        (Rule(callback="parse"), "rule 0 of Shop has the callback parse, which follows links: use another name"),
        (Rule(callback=CrawlSpider.parse), "rule 0 of Shop has the callback parse"),
        (LinkExtractor(), "rule 0 of Shop is a LinkExtractor: write Rule(LinkExtractor(...), ...)"),
    ],
)
def test_rules_that_cannot_work_are_refused_at_once(rule: Any, message: str) -> None:
    with pytest.raises(BadSpider) as caught:
        shop(rule)
    assert message in str(caught.value)


def test_an_overridden_parse_is_refused_at_once() -> None:
    with pytest.raises(
        BadSpider, match=r"Shop\.parse overrides the method that follows links: rename it to parse_item"
    ):
        shop(parse=lambda self, response: None)
