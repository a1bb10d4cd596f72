"""What a scraper writer subclasses: where to start, and what to make of a page.

    class Quotes(Spider):
        name = "quotes"
        start_urls = ["https://quotes.example/"]

        def parse(self, response):
            for quote in response.css(".quote"):
                yield {"text": quote.css(".text::text").get()}
            yield from response.follow_all(response.css("a.next::attr(href)").getall())

A callback may be a generator, an async generator, a coroutine, or a function that returns one result, a list or None.
It yields items (dict, dataclass, attrs, pydantic, msgspec) and `Request`s. What it yields counts when it has ended
without an exception: then the items are written and the requests queued in one step.
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
from lycosa.frontier.core.segments import SegmentResolver
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)


@public
class Spider:
    """Base class. Arguments given with `-a` become attributes. Raises `BadSpider` when it has no name.

    `key_resolver` says what identifies a request, `segment_resolver` what segment a run belongs to: methods, where the
    spider has them.
    """

    name: str = ""
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] = ()
    custom_settings: Mapping[str, Any] = {}
    pipelines: Sequence[Any] = ()
    key_resolver: KeyResolver | None = None
    segment_resolver: SegmentResolver | None = None
    crawler: Any = None
    """The crawl that the spider takes part in: settings, stats, signals."""
    settings: Mapping[str, Any] = {}
    """The settings of the crawl, by our names and Scrapy's."""
    state: dict[str, Any]
    """What the spider remembers from run to run: plain data."""

    def __init__(self, **arguments: str) -> None:
        self.__dict__.update(arguments)
        if not self.name:
            raise BadSpider(f"{type(self).__name__} has no name: write name = '...' in the class")
        owner = type(self).__name__
        wrong = user_errors.check_start_urls(self.start_urls, owner)
        wrong = wrong or user_errors.check_allowed_domains(self.allowed_domains, owner)
        if wrong := wrong or (user_errors.check_start_requests(self) if self.start_urls else ""):
            raise BadSpider(wrong)
        if suspicious := user_errors.check_attributes(self):
            log.warning("%s", suspicious)
        for lost in user_errors.check_lost_returns(self):
            log.warning("%s", lost)

    @classmethod
    def from_crawler(cls, crawler: Any, **arguments: Any) -> Self:
        """Make the spider of a crawl. Overridden, it may connect receivers of `crawler.signals`."""
        spider = cls(**arguments)
        spider.set_crawler(crawler)
        return spider

    def set_crawler(self, crawler: Any) -> None:
        """Take part in a crawl: `self.crawler`, `self.settings`."""
        self.crawler = crawler
        self.settings = crawler.settings

    @property
    def logger(self) -> logging.Logger:
        """A logger with the spider's name."""
        return logging.getLogger(self.name)

    async def fetch(self, request: Request | str) -> Response:
        """Fetch something now, and wait for it: through the middlewares, politely, with retries and redirects.

        Raises `FetchError` or `IgnoreRequest`, or `BadSpider` where no crawl runs.
        """
        if self.crawler is None or self.crawler.download is None:
            raise BadSpider("fetch works while a crawl runs: in callbacks, errbacks and pipelines")
        return await self.crawler.download(request)  # type: ignore[no-any-return]

    def fetch_sync(self, request: Request | str) -> Response:
        """Fetch something now, from a callback that runs in a thread (`callback_mode = "thread"`); see `fetch`."""
        return on_loop(self.fetch(request))

    async def start(self) -> AsyncIterator[Request]:
        """Yield the first requests: one for each of `start_urls`."""
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Any:
        """Make items and requests of a response. The callback of requests that name no other."""
        raise BadSpider(f"{type(self).__name__}.parse is not written: write it, or give each Request a callback")

    def closed(self, reason: str) -> Any:
        """Called at the end with "finished", "shutdown" (interrupted), "failed", or why it was closed."""


def domains_as_urls(domains: Iterable[str]) -> list[str]:
    """Return the seeds whose `domain` scope is what `allowed_domains` means."""
    return [f"http://{domain.strip().removeprefix('.')}/" for domain in domains]


async def start_requests(spider: Spider, through: Sequence[Callable[..., Any]] = ()) -> AsyncIterator[Request]:
    """Yield what `spider.start` yields, if these are requests, `through` the `process_start` of middlewares.

    Raises `BadSpider`.
    """
    where = f"{type(spider).__name__}.start"
    with wrap_user_errors(where):
        started = spider.start()
    if not isinstance(started, AsyncIterator):
        raise BadSpider(
            user_errors.check_start(spider)
            or f"{where} returned a {type(started).__name__}: write async def start(self)"
        )
    for method in through:
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
    """Turn what a spider's or pipeline's own code raises into one line that says where; the log has the traceback."""
    try:
        yield
    except (LycosaError, StopAsyncIteration):
        raise
    except Exception as error:
        logging.getLogger(__name__).info("%s failed", name, exc_info=True)
        place = user_line(error)
        raise BadSpider(f"{name} failed{place and f' ({place})'}: {type(error).__name__}: {error}") from error
