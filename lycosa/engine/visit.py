"""One visit: from a leased record to what becomes of it. Decides; the engine does.

robots.txt forbids it           -> Done "robots"
transfer fails                  -> Failed: again later, or dead after the last try
2xx of an allowed content type  -> callback -> Done "200" with items, and requests for the frontier
2xx of another content type     -> Done "content-type"
redirect                        -> Done "redirect", its target queued at the same depth if the scope has it
408 429 5xx (the retry list)    -> Failed: again later, or dead after the last try
304 to a conditional request    -> Done "unchanged": nothing is read, no item is written, its validators are kept
any other status                -> Done with the status
a callback or pipeline raises   -> Failed: dead, and nothing of the page is kept
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lycosa.clock import Clock
from lycosa.core import model
from lycosa.core.errors import BadSpider, BadUrl, DropItem, FetchError, LycosaError
from lycosa.core.headers import Headers
from lycosa.core.links import Link, join
from lycosa.core.model import RECORD_VERSION, Lease, Request, UrlRecord, Validators
from lycosa.core.retry import Decision, RetryPolicy, decide_error, decide_status, outcome_of
from lycosa.core.scope import Scope
from lycosa.core.url import fingerprint
from lycosa.engine.pipeline import Pipelines
from lycosa.engine.records import PLAIN, REDIRECT_URLS, Naming, callback_of, redirected, to_record, to_request
from lycosa.engine.response import Response
from lycosa.engine.results import Results, collect
from lycosa.engine.robots import RobotsGate
from lycosa.engine.spider import Spider
from lycosa.engine.stats import RunStats
from lycosa.engine.validators import conditional, confirmed, validators_of
from lycosa.ports import Fetcher

log = logging.getLogger(__name__)

UNCHANGED = "unchanged"
"""The reason of a page that is still what it was when it was fetched last."""

REDIRECTS_MAX = 20
REASON_MAX = 120
"""Characters of a reason that are kept."""


class Done(NamedTuple):
    """The record is done for this reason; these items and children came of it.

    Each item is as every sink will write it, in the order of the sinks. `contacted`: the host was asked. `validators`
    make the next request for it conditional.
    """

    reason: str
    items: Sequence[Sequence[Any]] = ()
    children: Sequence[UrlRecord] = ()
    page: bool = False
    bytes: int = 0
    contacted: bool = True
    validators: Validators | None = None


class Failed(NamedTuple):
    """The record failed: again at `retry_at`, or dead when that is None; the host rests until `block_until`."""

    reason: str
    retry_at: float | None = None
    block_until: float = 0.0
    contacted: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user decided about a crawl. An empty `content_types` allows all. `headers` go with every request."""

    scope: Scope
    retry: RetryPolicy
    content_types: frozenset[str] = field(default_factory=frozenset)
    obey_robots: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)


class Visitor:
    """Visits the records of one spider. `chance` returns a number from 0 to 1."""

    def __init__(
        self,
        spider: Spider,
        rules: Rules,
        fetcher: Fetcher,
        gate: RobotsGate,
        pipelines: Pipelines,
        prepare: Callable[[Any], Sequence[Any]],
        known: Callable[[str, Sequence[int]], AbstractSet[int]],
        stats: RunStats,
        clock: Clock,
        chance: Callable[[], float],
        naming: Naming = PLAIN,
    ) -> None:
        self._spider = spider
        self._rules = rules
        self._fetcher = fetcher
        self._gate = gate
        self._pipelines = pipelines
        self._prepare = prepare
        self._known = known
        self._stats = stats
        self._clock = clock
        self._chance = chance
        self._naming = naming

    async def visit(self, lease: Lease) -> Done | Failed:
        """Fetch the record and say what becomes of it. Never raises but for bugs and cancellation."""
        record = lease.record
        if record.depth > 0:  # queued under other settings, perhaps
            left_out = self._rules.scope.reason(record.url, record.host, record.depth)
            if left_out:
                return Done(left_out, contacted=False)
        if self._rules.obey_robots:
            refused = await self._refused_by_robots(record)
            if refused is not None:
                return refused
        plain = to_request(record)
        request = plain if record.validators is None else conditional(plain, record, self._rules.headers)
        try:
            raw = await self._fetcher.fetch(request, accept=self._accept, address=lease.address)
        except FetchError as error:
            now = self._clock.now()
            return failed(decide_error(self._rules.retry, record.attempts, error, now, self._chance()))
        if raw.status == 304 and request is not plain:
            return Done(UNCHANGED, bytes=raw.size_bytes, validators=self._confirmed(record, raw))
        return await self._judge(record, plain, raw)

    async def _refused_by_robots(self, record: UrlRecord) -> Done | Failed | None:
        rules = await self._gate.rules(record.host)
        if rules.unreachable:
            why = await self._gate.why_unreachable(record.host)
            return Failed(storable(f"robots.txt unreachable: {why}"), contacted=False)
        if rules.allowed(record.url):
            return None
        if record.depth == 0:
            self._stats.note(f"robots.txt forbids the start URL {record.url}; --no-robots ignores it, if you may")
        return Done("robots", contacted=False)

    def _accept(self, status: int, headers: Headers) -> bool:
        if not 200 <= status < 300 or not self._rules.content_types:
            return True
        kind = headers.get("content-type").partition(";")[0].strip().lower()
        return not kind or kind in self._rules.content_types

    async def _judge(self, record: UrlRecord, request: Request, raw: model.Response) -> Done | Failed:
        outcome = outcome_of(raw.status, self._rules.retry.statuses)
        if outcome == "ok":
            return await self._parse(record, request, raw)
        if outcome == "redirect":
            return self._redirect(record, raw)
        if outcome == "retry":
            after = raw.headers.get("retry-after")
            now = self._clock.now()
            return failed(decide_status(self._rules.retry, record.attempts, raw.status, after, now, self._chance()))
        return Done(str(raw.status), bytes=raw.size_bytes)

    async def _parse(self, record: UrlRecord, request: Request, raw: model.Response) -> Done | Failed:
        if raw.skipped or (self._rules.content_types and not _looks_like_a_page(raw)):
            reason = "content-type" if raw.skipped or raw.body else "no content"
            return Done(reason, bytes=raw.size_bytes)
        response = Response(raw, request, record, self._clock.now())
        try:
            callback = callback_of(self._spider, record)
            results = await collect(callback(response, **request.cb_kwargs), _name_of(callback))
            items = [self._prepare(item) for item in await self._piped(results.items)]
            children = self._children(results, record)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            return self._callback_failed(record, error)  # of a task of its own
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is: the page is dead, not the crawl
            return self._callback_failed(record, error)
        validators = validators_of(raw.headers, response.fetched_at) if raw.status == 200 else None
        return Done(str(raw.status), items, children, page=True, bytes=raw.size_bytes, validators=validators)

    def _confirmed(self, record: UrlRecord, raw: model.Response) -> Validators:
        return confirmed(record.validators, raw.headers, self._clock.now())

    async def _piped(self, items: list[Any]) -> list[Any]:
        if not self._pipelines:
            return items
        kept = []
        for item in items:
            try:
                kept.append(await self._pipelines.process(item))
            except DropItem as drop:
                self._stats.dropped += 1
                log.info("dropped: %s", drop)
        return kept

    def _children(self, results: Results, parent: UrlRecord) -> list[UrlRecord]:
        children = self._followed(results.links, parent)
        for request in results.requests:
            try:
                child = to_record(request, self._spider, parent, self._naming)
            except BadUrl as error:
                self._stats.skip("bad URL")
                log.info("not followed on %s: %s", parent.url, error)
                continue
            if self._in_scope(child):
                children.append(child)
        return children

    def _followed(self, links: Sequence[Link], parent: UrlRecord) -> list[UrlRecord]:
        segment, depth = parent.segment, parent.depth + 1
        named = self._naming.fingerprint
        if named is not fingerprint:  # links come with the one that needs no choice; only of ours can a resolver tell
            wanted = (link for link in links if self._wanted(link.url, link.host, depth))
            links = [link._replace(fingerprint=named("GET", link.url, b"")) for link in wanted]
        known = self._known(segment, [link.fingerprint for link in links])
        return [
            UrlRecord(RECORD_VERSION, link.fingerprint, link.url, link.host, segment, depth)
            for link in links
            if link.fingerprint not in known and self._wanted(link.url, link.host, depth)
        ]

    def _in_scope(self, record: UrlRecord) -> bool:
        return self._wanted(record.url, record.host, record.depth)

    def _wanted(self, url: str, host: str, depth: int) -> bool:
        reason = self._rules.scope.reason(url, host, depth)
        if reason:
            self._stats.skip(reason)
        return not reason

    def _redirect(self, record: UrlRecord, raw: model.Response) -> Done | Failed:
        location = raw.headers.get("location")  # empty it would mean the page itself
        target = join(record.url, location) if location else None
        if target is None:
            return Done("redirect to nowhere", bytes=raw.size_bytes)
        trail = record.extras.meta.get(REDIRECT_URLS, ()) if record.extras else ()
        try:
            child = redirected(record, target, raw.status, self._naming)
        except BadSpider as error:
            return Failed(storable(str(error)))
        if (child.fingerprint == record.fingerprint and target == record.url) or target in trail:
            return Failed("redirect loop")
        if record.redirects >= REDIRECTS_MAX:
            return Failed(f"more than {REDIRECTS_MAX} redirects")
        if not self._in_scope(child):
            if record.depth == 0:
                self._stats.note(
                    f"{record.url} redirects to {target}, outside the scope: start there, or widen --scope"
                )
            return Done("redirect out of scope", bytes=raw.size_bytes)
        return Done("redirect", children=[child], bytes=raw.size_bytes)

    def _callback_failed(self, record: UrlRecord, error: BaseException) -> Failed:
        name = (record.extras.callback if record.extras else "") or "parse"
        told = isinstance(error, (BadSpider, LycosaError))
        log.error("%s failed on %s: %s: %s", name, record.url, type(error).__name__, error, exc_info=not told)
        text = str(error) if told else f"{type(error).__name__} in {name}: {error}"
        return Failed(storable(text))


def storable(text: str) -> str:
    """Return a reason as it is kept: one line, bounded, without halves of surrogate pairs."""
    return text.split("\n", 1)[0][:REASON_MAX].encode("utf-8", "replace").decode()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failed(decision: Decision) -> Failed:
    """Return the failure that a retry decision means."""
    return Failed(decision.reason, decision.retry_at, decision.block_host_until)


def _looks_like_a_page(raw: model.Response) -> bool:
    # Without a Content-Type, guess as browsers do: markup near the start, and no binary.
    return "content-type" in raw.headers or (b"<" in raw.body[:512] and b"\x00" not in raw.body[:512])


def _name_of(callback: Callable[..., Any]) -> str:
    return getattr(callback, "__name__", "the callback")
