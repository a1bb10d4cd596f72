"""One visit: from a leased record to its outcome, which the engine and the settler apply.

The result of the download (`fetching/download.py`) and of the spider (`spiders/scrape.py`) determines the outcome:

a response                      -> callback -> Completed with items, and requests for the frontier
... with a refused content type -> Completed "content-type", or "no content" if the body is empty
... with an unhandled status    -> errback, if any; Completed with the status
... that a callback retries     -> Failed, as for "failed" below
a replacement request           -> Completed "redirect" or "replaced"; if in scope, queued at the same depth
an item instead of a response   -> pipelines -> Completed "answered"
ignored (robots.txt, scope...)  -> errback, if any; Completed with the reason
unchanged since the last fetch  -> Completed "unchanged": no callback, no item; its validators are stored
failed                          -> Failed: retried later; after the last try the errback, if any, else dead
a callback or pipeline raises   -> Failed: dead, and no item or link of the page is stored
the host is blocked             -> Deferred: the record stays queued
the crawl closes                -> CloseCrawl: the record stays queued (Completed if a callback raised CloseSpider)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from lycosa.core.errors import BadSpider, BadUrl, CloseSpider, IgnoreRequest, LycosaError, RetryRequest, StateError
from lycosa.core.url import fingerprint
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.diagnostics import page_log, user_errors
from lycosa.crawl.diagnostics.tracebacks import user_function
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.engine.records import DEFAULT_NAMING, Naming, replacement_record, to_record, to_request
from lycosa.crawl.engine.verdict import (
    AnsweredWithItem,
    CloseCrawl,
    Deferred,
    Failed,
    Ignored,
    Replace,
    Unchanged,
    Verdict,
    exception_of,
    reason_text,
)
from lycosa.crawl.events.signals import item_scraped, response_received, spider_error
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.download import Downloader, DownloadResult, looks_like_page
from lycosa.crawl.fetching.guard import CurrentWork, current_work, is_guarded
from lycosa.crawl.fetching.redirects import REPLACEMENTS_MAX
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.validators import validators_of
from lycosa.crawl.items.item_errors import explain
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.middlewares.offsite import ALLOW_OFFSITE
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.crawl.spiders.scrape import Scraper
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.model import RECORD_VERSION, Lease, UrlRecord
from lycosa.frontier.core.scope import Scope
from lycosa.html.links import PageLink
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)

UNCHANGED = "unchanged"


SLOW_CALLBACK_S = 0.005
"""Above this average duration of callbacks, the slot of the host is freed before a callback begins."""

CALLBACKS_AVERAGED = 8

TransferEnd = Callable[[Lease, bool, int], None]
"""Called with the lease, whether the host received a request, and the size of the body in bytes."""


class Completed(NamedTuple):
    """The record is done for this reason, with these items and children.

    Each item is a sequence with the data for each sink. `page`: whether the record counts as a page. `contacted`:
    whether the host received a request. `validators` make the next request for the URL conditional. `closing`: why the
    callback closes the crawl, or "".
    """

    reason: str
    items: Sequence[Sequence[Any]] = ()
    children: Sequence[UrlRecord] = ()
    page: bool = False
    bytes: int = 0
    contacted: bool = True
    validators: Validators | None = None
    closing: str = ""


Outcome = Completed | Failed | CloseCrawl | Deferred


@dataclass(frozen=True, slots=True)
class PageRules:
    """The user's rules for the pages of a crawl. An empty `content_types` allows all types."""

    scope: Scope
    content_types: frozenset[str] = field(default_factory=frozenset)


@dataclass(eq=False, repr=False)
class Visitor:
    """Visits the records of one spider.

    `prepare(item)` returns the data that each sink will write. `known(segment, fingerprints)` returns the fingerprints
    that are certainly in the frontier.
    """

    spider: Spider
    rules: PageRules
    downloader: Downloader
    scraper: Scraper
    retrying: RetryDecider
    pipelines: Pipelines
    prepare: Callable[[Any], Sequence[Any]]
    known: Callable[[str, Sequence[int]], AbstractSet[int]]
    stats: RunStats
    crawler: InitVar[Crawler]
    naming: Naming = DEFAULT_NAMING

    def __post_init__(self, crawler: Crawler) -> None:
        self._count = crawler.stats.inc_value
        self._signals = crawler.signals
        self._hinted = False
        self._callback_s = 0.0
        self._is_logging = False
        self.on_transfer_end: TransferEnd = _ignore_transfer_end
        """Called when the transfer of a page is over while its callback still runs."""

    async def visit(self, lease: Lease) -> Outcome:
        """Fetch the record and return the outcome. Raises only on a bug or cancellation."""
        record = lease.record
        self._is_logging = page_log.is_enabled()
        current_work.set(CurrentWork(lease, guarded=record.guarded))
        request = to_request(record)
        result = await self.downloader.download(request, lease.address)
        if isinstance(result, Response):
            outcome = await self._without_slot(lease, request, result, len(result.body), contacted=result.contacted)
        elif request.errback is not None and _is_final(result):
            # The errback needs no slot. If the host is overloaded, the retry middleware has already blocked it.
            outcome = await self._without_slot(lease, request, result, 0, contacted=result.contacted)
        else:
            outcome = await self._outcome(record, request, result)
        if self._is_logging:
            self._log_outcome(record, outcome)
        if isinstance(result, Response) and not result.contacted and isinstance(outcome, (Completed, Failed)):
            return outcome._replace(contacted=False)
        return outcome

    def _log_outcome(self, record: UrlRecord, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            is_retried = outcome.retry_at is not None
            page_log.log_failed(self.spider.name, record, outcome.reason, is_retried=is_retried)
        elif isinstance(outcome, Completed) and not (outcome.page or outcome.children or outcome.items):
            page_log.log_ignored(self.spider.name, record, outcome.reason)

    async def _without_slot(
        self, lease: Lease, request: Request, result: DownloadResult, size: int, *, contacted: bool
    ) -> Outcome:
        """Run the callback of a result, and free the slot of the host.

        If callbacks are slow on average, the slot is freed before the callback begins. Otherwise it is freed when the
        callback first awaits something, or ends.
        """
        transfer = (lease, contacted, size)
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._callback_s < SLOW_CALLBACK_S:
            # Runs only when the callback awaits something, which most callbacks never do.
            ending = loop.call_soon(self.on_transfer_end, *transfer)
        else:
            ending = None
            self.on_transfer_end(*transfer)
        try:
            return await self._outcome(lease.record, request, result)
        finally:
            if ending is not None:
                ending.cancel()
            self._callback_s += (loop.time() - started - self._callback_s) / CALLBACKS_AVERAGED

    async def _outcome(self, record: UrlRecord, request: Request, result: DownloadResult) -> Outcome:
        try:
            if isinstance(result, Response):
                return await self._on_response(record, request, result)
            return await self._on_verdict(record, request, result)
        except RetryRequest as retry:
            return self.retrying.on_request(request, retry)
        except CloseSpider as close:
            return CloseCrawl(close.reason)
        except IgnoreRequest as ignored:
            if ignored.inline:  # raised by `fetch` and not caught: do not lose the items of this page silently
                error = BadSpider(f"{type(ignored).__name__} of an inline fetch: {ignored}")
                return self._on_user_error(request, error)
            size = result.raw.size_bytes if isinstance(result, Response) else 0
            return Completed(reason_text(str(ignored)), bytes=size)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return self._on_user_error(request, error)  # a task that the callback awaited was cancelled
        except StateError:
            raise  # not the page's fault: the crawl cannot continue
        except (Exception, SystemExit) as error:  # noqa: BLE001  the user's errors fail the page, not the crawl
            return self._on_user_error(request, error)

    async def _on_response(self, record: UrlRecord, request: Request, response: Response) -> Outcome:
        raw = response.raw
        if self._is_logging:
            page_log.log_crawled(self.spider.name, response.request, response)
        refused = raw.skipped or (self.rules.content_types and not looks_like_page(raw))
        if refused and 200 <= raw.status < 300:
            return Completed("content-type" if raw.skipped or raw.body else "no content", bytes=raw.size_bytes)
        self._count("response_received_count")
        if self._signals.on_response_received:
            await self._signals.send(response_received, response=response, request=request, spider=self.spider)
        try:
            results = await self.scraper.scrape(response.request, response)
        except RetryRequest as retry:
            return await self._on_verdict(record, request, self.retrying.on_request(request, retry))
        completed = await self._complete(str(raw.status), record, results, response)
        validators = validators_of(raw.headers, response.fetched_at) if raw.status == 200 and not raw.partial else None
        return completed._replace(page=True, bytes=raw.size_bytes, validators=validators)

    async def _on_verdict(self, record: UrlRecord, request: Request, verdict: Verdict) -> Outcome:
        if isinstance(verdict, Replace):
            return self._replace(record, verdict)
        if isinstance(verdict, Unchanged):
            return Completed(UNCHANGED, bytes=verdict.bytes, validators=verdict.validators)
        if isinstance(verdict, AnsweredWithItem):
            completed = await self._complete("answered", record, Results([verdict.item], [], []))
            return completed._replace(contacted=verdict.contacted)
        if isinstance(verdict, (CloseCrawl, Deferred)):
            return verdict
        if isinstance(verdict, Failed) and verdict.retry_at is not None:
            return verdict
        results = None
        if request.errback is not None:
            cause = exception_of(verdict)
            results = await self.scraper.run_errback(request, cause, getattr(cause, "response", None))
        if results is not None:
            completed = await self._complete(verdict.reason, record, results)
            return completed._replace(contacted=verdict.contacted)
        if isinstance(verdict, Failed):
            return verdict
        if record.depth == 0 and verdict.reason == "robots":
            self.stats.note(
                f"robots.txt forbids the start URL {record.url}; if you are allowed to, ignore it with --no-robots"
            )
        return Completed(verdict.reason, bytes=verdict.bytes, contacted=verdict.contacted)

    async def _complete(
        self, reason: str, record: UrlRecord, results: Results, response: Response | None = None
    ) -> Completed:
        items: Sequence[Any] = results.items
        closing = results.closing
        prepared: Sequence[Sequence[Any]] = ()
        if items:
            if self.pipelines:
                try:
                    passed = await self.pipelines.process_page(items, response)
                except IgnoreRequest as error:  # from a fetch in a pipeline: do not lose the items silently
                    raise BadSpider(f"{type(error).__name__} in a pipeline: {error}") from error
                self.stats.dropped += passed.dropped
                items, closing = passed.items, closing or passed.closing
            prepared = [self.prepare(item) for item in items]
            if self._is_logging and response is not None:
                page_log.log_scraped(self.spider.name, response, len(items))
            await self._send_scraped(items, response)
        return Completed(reason, prepared, self._children(results, record), closing=closing)

    async def _send_scraped(self, items: Sequence[Any], response: Response | None) -> None:
        self._count("item_scraped_count", len(items))
        if self._signals.on_item_scraped:
            for item in items:
                await self._signals.send(item_scraped, item=item, response=response, spider=self.spider)

    def _children(self, results: Results, parent: UrlRecord) -> list[UrlRecord]:
        guarded = is_guarded()
        children = self._link_records(results.links, parent, guarded=guarded) if results.links else []
        for request in results.requests:
            try:
                # As in Scrapy, a request with `dont_filter` from a callback may leave the scope; a redirect may not.
                if request.dont_filter:
                    request.meta[ALLOW_OFFSITE] = True
                child = to_record(request, self.spider, parent, self.naming, guarded=guarded)
            except BadUrl as error:
                self.stats.skip("bad URL")
                self._hint_at_follow(request.url, parent)
                log.info("link on %s not followed: %s", parent.url, error)
                continue
            if self._request_in_scope(child, request):
                children.append(child)
        return children

    def _hint_at_follow(self, url: str, parent: UrlRecord) -> None:
        """Note the mistake once: a Request needs an absolute URL."""
        if not self._hinted and not urlsplit(url).scheme:
            self._hinted = True
            self.stats.note(f"Request({url!r:.60}) on {parent.url} is not an absolute URL: write response.follow(...)")

    def _link_records(self, links: Sequence[PageLink], parent: UrlRecord, *, guarded: bool) -> list[UrlRecord]:
        depth = parent.depth + 1
        fingerprint_of = self.naming.fingerprint
        # Links have the default fingerprint. A fingerprint function of the user gets only URLs in scope.
        if fingerprint_of is not fingerprint:
            in_scope = (link for link in links if self._is_in_scope(link.url, link.host, depth))
            links = [link._replace(fingerprint=fingerprint_of("GET", link.url, b"")) for link in in_scope]
        records = []
        for segment, found in self._by_segment(links, parent.segment).items():
            known = self.known(segment, [link.fingerprint for link in found])
            self.stats.known_links += len(known)
            if self._is_logging and known:
                for link in found:
                    if link.fingerprint in known:
                        page_log.log_duplicate(self.spider.name, link.url)
            records += [
                UrlRecord(RECORD_VERSION, link.fingerprint, link.url, link.host, segment, depth, guarded=guarded)
                for link in found
                if link.fingerprint not in known and self._is_in_scope(link.url, link.host, depth)
            ]
        return records

    def _by_segment(self, links: Sequence[PageLink], inherited: str) -> Mapping[str, Sequence[PageLink]]:
        segments = self.naming.segments
        if segments.period is None:
            return {inherited: links}
        found: dict[str, list[PageLink]] = {}
        for link in links:
            found.setdefault(segments.of_request(Request(link.url), inherited), []).append(link)
        return found

    def _request_in_scope(self, record: UrlRecord, request: Request) -> bool:
        return self._is_in_scope(record.url, record.host, record.depth, anywhere=bool(request.get_meta(ALLOW_OFFSITE)))

    def _is_in_scope(self, url: str, host: str, depth: int, *, anywhere: bool = False) -> bool:
        reason = self.rules.scope.reason(url, host, depth, anywhere=anywhere)
        if reason:
            self.stats.skip(reason)
            if self._is_logging:
                page_log.log_filtered(self.spider.name, url, reason)
        return not reason

    def _replace(self, record: UrlRecord, verdict: Replace) -> Completed | Failed:
        if record.redirects >= REPLACEMENTS_MAX and verdict.reason != "redirect":  # redirects have their own limit
            return Failed(f"replaced more than {REPLACEMENTS_MAX} times", cause=verdict.request)
        child = replacement_record(record, verdict.request, self.spider, self.naming, guarded=is_guarded())
        if self._request_in_scope(child, verdict.request):
            if self._is_logging:
                page_log.log_redirect(self.spider.name, record, child, verdict.reason, verdict.status)
            return Completed(verdict.reason, children=[child], bytes=verdict.bytes, contacted=verdict.contacted)
        if record.depth == 0:
            self.stats.note(f"{record.url} redirects to {child.url}, outside the scope: start there, or widen --scope")
        return Completed(f"{verdict.reason} out of scope", bytes=verdict.bytes, contacted=verdict.contacted)

    def _on_user_error(self, request: Request, error: BaseException) -> Failed:
        self._count("spider_exceptions/count")
        self._count(f"spider_exceptions/{type(error).__name__}")
        if self._signals.on_spider_error:
            failure = Failure(error, request)
            self._signals.post(spider_error, failure=failure, response=None, spider=self.spider)
        name = user_function(error, str(request.callback or "parse"))
        if (about := explain(error)) is not None:
            reason = reason_text(about)
            self.stats.bugs.record(error, name, about, request.url, reason, with_traceback=False)
            return Failed(reason, cause=error)
        is_explained = isinstance(error, LycosaError)  # its text says what to write instead, so it needs no traceback
        text = f"{error}{user_errors.usual_cause(error)}"
        kind = type(error).__name__
        reason = reason_text(text if is_explained else f"{kind} in {name}: {text}")
        self.stats.bugs.record(error, name, f"{kind}: {text}", request.url, reason, with_traceback=not is_explained)
        return Failed(reason, cause=error)


def _is_final(verdict: Verdict) -> TypeGuard[Failed | Ignored]:
    return isinstance(verdict, Ignored) or (isinstance(verdict, Failed) and verdict.retry_at is None)


def _ignore_transfer_end(lease: Lease, contacted: bool, size: int) -> None:
    pass


class Visitors:
    """The visitors of a crawl with several spiders, by the spider name in the records."""

    def __init__(self, visitors: Mapping[str, Visitor]) -> None:
        self._visitors = visitors

    async def visit(self, lease: Lease) -> Outcome:
        extras = lease.record.extras
        visitor = self._visitors.get(extras.spider if extras is not None else "")
        if visitor is None:
            return Failed(reason_text(f"no spider {extras.spider if extras else ''!r} takes part in this run"))
        return await visitor.visit(lease)
