"""The base class of spiders, which define where to start and what to extract from a page.

    class Quotes(Spider):
        name = "quotes"
        start_urls = ["https://quotes.example/"]

        def parse(self, response):
            for quote in response.css(".quote"):
                yield {"text": quote.css(".text::text").get()}
            yield from response.follow_all(response.css("a.next::attr(href)").getall())

A callback may be a generator, an async generator, a coroutine, or a function that returns one result, a list or None.
Its results are items (dict, dataclass, attrs, pydantic, msgspec) and `Request`s. They take effect in one step when the
callback ends without an exception.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from lycosa.core.errors import BadMiddleware, BadSpider, LycosaError
from lycosa.core.public import public
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.diagnostics.tracebacks import user_line
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.workers.threads import on_loop
from lycosa.frontier.core.keys import KeyResolver
from lycosa.frontier.core.segments import PeriodResolver, SegmentResolver
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)


@public
class Spider:
    """The base class of spiders. Arguments given with `-a` become attributes. Raises `BadSpider` without a name.

    A subclass may define two methods. `key_resolver` returns the value that identifies a request. A `segment_resolver`
    with an argument `now` returns the name of a run's segment. One without this argument returns the period of a
    request, such as `day`."""

    name: str = ""
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] = ()
    custom_settings: Mapping[str, Any] = {}
    pipelines: Sequence[Any] = ()
    key_resolver: KeyResolver | None = None
    segment_resolver: SegmentResolver | PeriodResolver | None = None
    crawler: Any = None
    settings: Mapping[str, Any] = {}
    """The settings of the crawl, by Lycosa's and by Scrapy's names."""
    state: dict[str, Any]
    """Plain data that is saved between runs."""

    def __init__(self, **arguments: str) -> None:
        self.__dict__.update(arguments)
        if self.start_urls == ():
            self.start_urls = []  # a separate list for this spider, which it may append to
        owner = type(self).__name__
        if not self.name:
            raise BadSpider(f"{owner} has no name: write name = '...' in the class")
        mistake = (
            user_errors.check_start_urls(self.start_urls, owner)
            or user_errors.check_allowed_domains(self.allowed_domains, owner)
            or (user_errors.check_start_requests(self) if self.start_urls else "")
        )
        if mistake:
            raise BadSpider(mistake)
        for warning in (user_errors.check_attributes(self), *user_errors.check_lost_returns(self)):
            if warning:
                log.warning("%s", warning)

    @classmethod
    def from_crawler(cls, crawler: Any, **arguments: Any) -> Self:
        """Create the spider of a crawl. Override this to connect receivers to `crawler.signals`."""
        spider = cls(**arguments)
        spider.set_crawler(crawler)
        return spider

    def set_crawler(self, crawler: Any) -> None:
        self.crawler = crawler
        self.settings = crawler.settings

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger(self.name)

    async def fetch(self, request: Request | str) -> Response:
        """Fetch a request inline. Middlewares, the host's delays, retries and redirects apply.

        Raises `FetchError` or `IgnoreRequest`, or `BadSpider` if no crawl is running.
        """
        if self.crawler is None or self.crawler.download is None:
            raise BadSpider("fetch works only while a crawl is running: in callbacks, errbacks and pipelines")
        return await self.crawler.download(request)  # type: ignore[no-any-return]

    def fetch_sync(self, request: Request | str) -> Response:
        """Fetch from a callback that runs in a thread (`callback_mode = "thread"`)."""
        return on_loop(self.fetch(request))

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Any:
        """The default callback."""
        raise BadSpider(user_errors.check_missing_method(self, "parse", "write it, or give each Request a callback"))

    def closed(self, reason: str) -> Any:
        """Handle the end of the crawl. `reason`: "finished", "shutdown" (interrupted), "failed", or a close reason."""


def domains_as_urls(domains: Iterable[str | None], scheme: str = "http") -> list[str]:
    """Return a URL for each domain. With these URLs as seeds, the scope `domain` covers exactly these domains."""
    return [f"{scheme}://{domain.strip().removeprefix('.')}/" for domain in domains if domain is not None]


async def start_requests(spider: Spider, process_start: Sequence[Callable[..., Any]] = ()) -> AsyncIterator[Request]:
    """Yield the requests of `spider.start` as the `process_start` methods of middlewares return them.

    Raises `BadSpider` or `BadMiddleware` for anything but requests.
    """
    where = f"{type(spider).__name__}.start"
    with wrap_user_errors(where):
        started = spider.start()
    if not isinstance(started, AsyncIterator):
        raise BadSpider(
            user_errors.check_start(spider)
            or f"{where} returned a {type(started).__name__}: write async def start(self)"
        )
    for method in process_start:
        where = method.__qualname__
        with wrap_user_errors(where):
            started = method(started)
        if not isinstance(started, AsyncIterator):
            raise BadMiddleware(user_errors.check_returned(where, started))
    while True:
        try:
            with wrap_user_errors(where):
                request = await anext(started)
        except StopAsyncIteration:
            return
        if not isinstance(request, Request):
            raise BadSpider(f"{where} yielded a {type(request).__name__} ({request!r:.60}); yield Requests")
        yield request


@contextmanager
def wrap_user_errors(name: str) -> Iterator[None]:
    """Turn an exception in the user's function `name` into a `BadSpider` with its line. Log the traceback."""
    try:
        yield
    except (LycosaError, StopAsyncIteration):
        raise
    except Exception as error:
        log.info("%s failed", name, exc_info=True)
        place = user_line(error)
        raise BadSpider(f"{name} failed{place and f' ({place})'}: {type(error).__name__}: {error}") from error
