"""One visit: from a leased record to what becomes of it. Decides; the engine does.

What comes out of the downloader (`fetching/download.py`) and of the spider (`spiders/scrape.py`) decides:

a response                      -> callback -> Done with items, and requests for the frontier
... of a content type refused   -> Done "content-type"
... of a status not asked for   -> errback, if there is one; Done with the status
... that a callback wants again -> Failed: again later; after the last try as below
a request in its place          -> Done "redirect" or "replaced", the request queued at the same depth, if in scope
an item in its place            -> pipelines -> Done "answered"
ignored (robots.txt, scope...)  -> errback, if there is one; Done with the reason
unchanged since the last fetch  -> Done "unchanged": nothing is read, no item is written, its validators are kept
failed                          -> Failed: again later; after the last try the errback, if there is one, or dead
a callback or pipeline raises   -> Failed: dead, and nothing of the page is kept
its host rests already          -> NotYet: the record stays as it was
the crawl is to end             -> Closing: the record stays as it was (a callback's own CloseSpider: Done)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lycosa.core.errors import BadSpider, BadUrl, CloseSpider, IgnoreRequest, LycosaError, RetryRequest, StateError
from lycosa.core.url import fingerprint
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.diagnostics import blame
from lycosa.crawl.diagnostics.tracebacks import Tracebacks
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.engine.records import PLAIN, Naming, in_place_of, to_record, to_request
from lycosa.crawl.engine.verdict import (
    Answered,
    Closing,
    Failed,
    Instead,
    NotYet,
    Unchanged,
    Verdict,
    exception_of,
    storable,
)
from lycosa.crawl.events.signals import item_scraped, response_received, spider_error
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.download import Downloader, Found, looks_like_a_page
from lycosa.crawl.fetching.guard import Work, is_guarded, working
from lycosa.crawl.fetching.redirects import HOPS_MAX
from lycosa.crawl.fetching.retry import Retrying
from lycosa.crawl.fetching.validators import validators_of
from lycosa.crawl.items.item_errors import explained
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.middlewares.offsite import ALLOW_OFFSITE
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.crawl.spiders.scrape import Scraper
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.model import RECORD_VERSION, Lease, UrlRecord
from lycosa.frontier.core.scope import Scope
from lycosa.html.links import Link
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)

UNCHANGED = "unchanged"
"""The reason of a page that is still what it was when it was fetched last."""


class Done(NamedTuple):
    """The record is done for this reason; these items and children came of it.

    Each item is as every sink will write it, in the order of the sinks. `contacted`: the host was asked. `validators`
    make the next request for it conditional. `closing` is why the crawl is to end, "" when it is not.
    """

    reason: str
    items: Sequence[Sequence[Any]] = ()
    children: Sequence[UrlRecord] = ()
    page: bool = False
    bytes: int = 0
    contacted: bool = True
    validators: Validators | None = None
    closing: str = ""


Outcome = Done | Failed | Closing | NotYet


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user decided about the pages of a crawl. An empty `content_types` allows all."""

    scope: Scope
    content_types: frozenset[str] = field(default_factory=frozenset)


class Visitor:
    """Visits the records of one spider."""

    def __init__(
        self,
        spider: Spider,
        rules: Rules,
        downloader: Downloader,
        scraper: Scraper,
        retrying: Retrying,
        pipelines: Pipelines,
        prepare: Callable[[Any], Sequence[Any]],
        known: Callable[[str, Sequence[int]], AbstractSet[int]],
        stats: RunStats,
        crawler: Crawler,
        naming: Naming = PLAIN,
    ) -> None:
        self._spider = spider
        self._rules = rules
        self._downloader = downloader
        self._scraper = scraper
        self._retrying = retrying
        self._pipelines = pipelines
        self._prepare = prepare
        self._known = known
        self._stats = stats
        self._count = crawler.stats.inc_value
        self._signals = crawler.signals
        self._naming = naming
        self._tracebacks = Tracebacks()
        self._hinted = False

    async def visit(self, lease: Lease) -> Outcome:
        """Fetch the record and say what becomes of it. Never raises but for bugs and cancellation."""
        record = lease.record
        working.set(Work(lease, guarded=record.guarded))
        request = to_request(record)
        found = await self._downloader.download(request, lease.address)
        outcome = await self._outcome(record, request, found)
        if isinstance(found, Response) and not found.contacted and isinstance(outcome, (Done, Failed)):
            return outcome._replace(contacted=False)
        return outcome

    async def _outcome(self, record: UrlRecord, request: Request, found: Found) -> Outcome:
        try:
            if isinstance(found, Response):
                return await self._parse(record, request, found)
            return await self._judge(record, request, found)
        except RetryRequest as asked:
            return self._retrying.asked_for(request, asked)
        except CloseSpider as close:
            return Closing(close.reason)
        except IgnoreRequest as ignored:
            if ignored.inline:  # and nobody caught it: the items of this page are not to be lost
                error = BadSpider(f"{type(ignored).__name__} of an inline fetch: {ignored}")
                return self._spider_failed(request, error)
            size = found.raw.size_bytes if isinstance(found, Response) else 0
            return Done(storable(str(ignored)), bytes=size)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return self._spider_failed(request, error)  # of a task of its own
        except StateError:
            raise  # the crawl cannot go on, and nothing is said against the page
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is: the page is dead, not the crawl
            return self._spider_failed(request, error)

    async def _parse(self, record: UrlRecord, request: Request, response: Response) -> Outcome:
        raw = response.raw
        refused = raw.skipped or (self._rules.content_types and not looks_like_a_page(raw))
        if refused and 200 <= raw.status < 300:
            return Done("content-type" if raw.skipped or raw.body else "no content", bytes=raw.size_bytes)
        self._count("response_received_count")
        if self._signals.on_response_received:
            await self._signals.send(response_received, response=response, request=request, spider=self._spider)
        try:
            results = await self._scraper.scrape(response.request, response)
        except RetryRequest as asked:
            return await self._judge(record, request, self._retrying.asked_for(request, asked))
        done = await self._kept(str(raw.status), record, results, response)
        validators = validators_of(raw.headers, response.fetched_at) if raw.status == 200 and not raw.partial else None
        return done._replace(page=True, bytes=raw.size_bytes, validators=validators)

    async def _judge(self, record: UrlRecord, request: Request, found: Verdict) -> Outcome:
        if isinstance(found, Instead):
            return self._replaced(record, found)
        if isinstance(found, Unchanged):
            return Done(UNCHANGED, bytes=found.bytes, validators=found.validators)
        if isinstance(found, Answered):
            done = await self._kept("answered", record, Results([found.item], [], []))
            return done._replace(contacted=found.contacted)
        if isinstance(found, (Closing, NotYet)) or (isinstance(found, Failed) and found.retry_at is not None):
            return found
        results = None
        if request.errback is not None:
            cause = exception_of(found)
            results = await self._scraper.rescue(request, cause, getattr(cause, "response", None))
        if results is not None:
            done = await self._kept(found.reason, record, results)
            return done._replace(contacted=found.contacted)
        if isinstance(found, Failed):
            return found
        if record.depth == 0 and found.reason == "robots":
            self._stats.note(f"robots.txt forbids the start URL {record.url}; --no-robots ignores it, if you may")
        return Done(found.reason, bytes=found.bytes, contacted=found.contacted)

    async def _kept(self, reason: str, record: UrlRecord, results: Results, response: Response | None = None) -> Done:
        items: Sequence[Any] = results.items
        closing = results.closing
        prepared: Sequence[Sequence[Any]] = ()
        if items:
            if self._pipelines:
                try:
                    passed = await self._pipelines.process_page(items, response)
                except IgnoreRequest as error:  # of something that a pipeline fetched: the items are not to be lost
                    raise BadSpider(f"{type(error).__name__} in a pipeline: {error}") from error
                self._stats.dropped += passed.dropped
                items, closing = passed.items, closing or passed.closing
            prepared = [self._prepare(item) for item in items]
            await self._scraped(items, response)
        return Done(reason, prepared, self._children(results, record), closing=closing)

    async def _scraped(self, items: Sequence[Any], response: Response | None) -> None:
        self._count("item_scraped_count", len(items))
        if self._signals.on_item_scraped:
            for item in items:
                await self._signals.send(item_scraped, item=item, response=response, spider=self._spider)

    def _children(self, results: Results, parent: UrlRecord) -> list[UrlRecord]:
        guarded = is_guarded()
        children = self._followed(results.links, parent, guarded=guarded) if results.links else []
        for request in results.requests:
            try:
                if request.dont_filter:  # of a callback it means any host too, as with Scrapy; what we mark so may not
                    request.meta[ALLOW_OFFSITE] = True
                child = to_record(request, self._spider, parent, self._naming, guarded=guarded)
            except BadUrl as error:
                self._stats.skip("bad URL")
                self._hint_at_follow(request.url, parent)
                log.info("not followed on %s: %s", parent.url, error)
                continue
            if self._in_scope(child, request):
                children.append(child)
        return children

    def _hint_at_follow(self, url: str, parent: UrlRecord) -> None:
        """Say once that a Request wants a whole URL: this is the spider's mistake, and not that of the page."""
        if not self._hinted and not urlsplit(url).scheme:
            self._hinted = True
            self._stats.note(f"Request({url!r:.60}) on {parent.url} is no whole URL: write response.follow(...)")

    def _followed(self, links: Sequence[Link], parent: UrlRecord, *, guarded: bool) -> list[UrlRecord]:
        segment, depth = parent.segment, parent.depth + 1
        named = self._naming.fingerprint
        if named is not fingerprint:  # links come with the one that needs no choice; only of ours can a resolver tell
            wanted = (link for link in links if self._wanted(link.url, link.host, depth))
            links = [link._replace(fingerprint=named("GET", link.url, b"")) for link in wanted]
        known = self._known(segment, [link.fingerprint for link in links])
        return [
            UrlRecord(RECORD_VERSION, link.fingerprint, link.url, link.host, segment, depth, guarded=guarded)
            for link in links
            if link.fingerprint not in known and self._wanted(link.url, link.host, depth)
        ]

    def _in_scope(self, record: UrlRecord, request: Request) -> bool:
        return self._wanted(record.url, record.host, record.depth, anywhere=bool(request.asked(ALLOW_OFFSITE)))

    def _wanted(self, url: str, host: str, depth: int, *, anywhere: bool = False) -> bool:
        reason = self._rules.scope.reason(url, host, depth, anywhere=anywhere)
        if reason:
            self._stats.skip(reason)
        return not reason

    def _replaced(self, record: UrlRecord, found: Instead) -> Done | Failed:
        if record.redirects >= HOPS_MAX and found.reason != "redirect":
            return Failed(f"replaced more than {HOPS_MAX} times", cause=found.request)
        child = in_place_of(record, found.request, self._spider, self._naming, guarded=is_guarded())
        if self._in_scope(child, found.request):
            return Done(found.reason, children=[child], bytes=found.bytes, contacted=found.contacted)
        if record.depth == 0:
            where = "outside the scope: start there, or widen --scope"
            self._stats.note(f"{record.url} redirects to {child.url}, {where}")
        return Done(f"{found.reason} out of scope", bytes=found.bytes, contacted=found.contacted)

    def _spider_failed(self, request: Request, error: BaseException) -> Failed:
        self._count("spider_exceptions/count")
        self._count(f"spider_exceptions/{type(error).__name__}")
        if self._signals.on_spider_error:
            failure = Failure(error, request)
            self._signals.post(spider_error, failure=failure, response=None, spider=self._spider)
        name = blame.entered(error, str(request.callback or "parse"))
        if (about := explained(error)) is not None:
            log.error("%s failed on %s: %s", name, request.url, about)
            return Failed(storable(about), cause=error)
        told = isinstance(error, (BadSpider, LycosaError))
        shown = None if told else self._tracebacks.of(error)
        text = f"{error}{blame.hint(error)}"
        log.error("%s failed on %s: %s: %s", name, request.url, type(error).__name__, text, exc_info=shown)
        text = text if told else f"{type(error).__name__} in {name}: {text}"
        return Failed(storable(text), cause=error)


class Visitors:
    """The visitors of a crawl of several spiders, by the name that their records carry."""

    def __init__(self, visitors: Mapping[str, Visitor]) -> None:
        self._visitors = visitors

    async def visit(self, lease: Lease) -> Outcome:
        """Let the spider of the record visit it."""
        extras = lease.record.extras
        visitor = self._visitors.get(extras.spider if extras is not None else "")
        if visitor is None:
            return Failed(storable(f"no spider {extras.spider if extras else ''!r} takes part in this run"))
        return await visitor.visit(lease)
