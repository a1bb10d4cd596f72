"""Runs the visits that the owner of the crawl requests from a worker process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf

from lycosa.core.errors import LycosaError
from lycosa.crawl.engine.visit import Completed, Visitor, Visitors
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.workers import messages
from lycosa.crawl.workers.counts import WorkerCounts
from lycosa.crawl.workers.messages import VisitRequest, send_outcome
from lycosa.crawl.workers.remote import CookieBroadcast, RemoteFrontier
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.recent_fingerprints import RecentFingerprints
from lycosa.infra.rpc.connection import Connection, Handlers, Message

log = logging.getLogger(__name__)

REPORT_INTERVAL_S = 0.25
"""Maximum seconds before new counts are sent to the owner."""


class VisitRunner:
    """Runs visits. Messages that arrive before `begin` are kept until then."""

    def __init__(
        self,
        connection: Connection,
        frontier: RemoteFrontier,
        known: RecentFingerprints,
        stats: RunStats,
        cookies: CookieBroadcast,
    ) -> None:
        self._connection = connection
        self._frontier = frontier
        self._known = known
        self._stats = stats
        self._gates: Sequence[RobotsGate] = ()
        self._visitor: Visitor | Visitors
        self._counts: WorkerCounts
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unsettled: dict[int, Sequence[UrlRecord]] = {}
        self._is_reporting = False
        self._handlers: Handlers = {
            VisitRequest: self._on_visit,
            messages.CancelVisit: self._on_cancel,
            messages.VisitSettled: self._on_settled,
            messages.HostFactsInvalidated: self._on_host_facts,
            messages.CookieUpdate: cookies.receive,
            messages.CloseCrawlRequest: self._on_close,
        }
        self._early: list[Message] = []
        connection.handle(dict.fromkeys(self._handlers, self._early.append))
        self.closing: asyncio.Future[messages.CloseCrawlRequest] = asyncio.get_running_loop().create_future()
        """Resolved when the owner closes the crawl."""

    def begin(self, visitor: Visitor | Visitors, gates: Sequence[RobotsGate], counts: WorkerCounts) -> None:
        self._visitor, self._gates, self._counts = visitor, gates, counts
        self._connection.handle(self._handlers)
        for message in self._early:
            self._handlers[type(message)](message)

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def report_counts(self) -> None:
        self._is_reporting = False
        try:
            self._connection.send(self._counts.take())
        except (TypeError, ValueError, OverflowError) as error:  # users choose the keys and values
            log.warning("these stats cannot be sent to the owner of the crawl, and are lost: %s", error)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, LycosaError):
            self._connection.send(messages.WorkerFailed(type(error).__name__, str(error)))
        else:
            log.error("a worker process failed", exc_info=error)
            self._connection.send(messages.WorkerFailed("", f"{type(error).__name__}: {error}"))

    def _on_visit(self, request: VisitRequest) -> None:
        self._frontier.set_access(request.record.host, request.access)
        lease = Lease(request.token, request.record, inf, request.access.address)
        task = self._tasks[request.token] = asyncio.create_task(self._visit(lease))
        task.add_done_callback(lambda done: self._on_done(request.token, done))

    async def _visit(self, lease: Lease) -> None:
        outcome = await self._visitor.visit(lease)
        if isinstance(outcome, Completed) and outcome.children:
            # The children count as known only once the owner has queued them: it queues none if the lease was lost.
            outcome = outcome._replace(children=self._without_known(outcome.children))
            self._unsettled[lease.token] = outcome.children
        send_outcome(self._connection, lease.token, outcome)

    def _without_known(self, children: Sequence[UrlRecord]) -> list[UrlRecord]:
        known = {
            segment: self._known.contained(segment, [each.fingerprint for each in children if each.segment == segment])
            for segment in {each.segment for each in children}
        }
        new = [each for each in children if each.dont_filter or each.fingerprint not in known[each.segment]]
        self._stats.known_links += len(children) - len(new)
        return new

    def _on_done(self, token: int, task: asyncio.Task[None]) -> None:
        del self._tasks[token]
        if task.cancelled():
            self._unsettled.pop(token, None)
            self._connection.send(messages.VisitCancelled(token))
        elif (error := task.exception()) is not None:
            self.fail(error)
        if not self._is_reporting:
            self._is_reporting = True
            asyncio.get_running_loop().call_later(REPORT_INTERVAL_S, self.report_counts)

    def _on_cancel(self, cancel: messages.CancelVisit) -> None:
        task = self._tasks.get(cancel.token)
        if task is None:  # the visit ended before the cancellation arrived
            self._unsettled.pop(cancel.token, None)
            self._connection.send(messages.VisitCancelled(cancel.token))
        else:
            task.cancel()

    def _on_settled(self, settled: messages.VisitSettled) -> None:
        for child in self._unsettled.pop(settled.token, ()):
            self._known.add(child)

    def _on_host_facts(self, invalidated: messages.HostFactsInvalidated) -> None:
        for gate in self._gates:
            gate.forget(invalidated.host)

    def _on_close(self, close: messages.CloseCrawlRequest) -> None:
        if not self.closing.done():
            self.closing.set_result(close)
