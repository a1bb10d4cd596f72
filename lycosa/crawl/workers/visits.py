"""The visits of one process: its owner sends them, and hears what became of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Any, Protocol

from lycosa.core.errors import LycosaError
from lycosa.crawl.engine.visit import Completed, Visitor, Visitors
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.workers import messages as say
from lycosa.crawl.workers.counts import Counts
from lycosa.crawl.workers.link import Link
from lycosa.crawl.workers.remote import AllCookies, FarAddresses, FarFrontier
from lycosa.frontier.core.model import Lease, UrlRecord

log = logging.getLogger(__name__)

COUNT_EVERY_S = 0.25
"""How often the owner hears what was counted."""


class Known(Protocol):
    """Fingerprints that were pushed from here lately."""

    def add(self, record: UrlRecord) -> None:
        """Remember one, unless it is never a duplicate."""
        ...

    def contained(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that are remembered."""
        ...


class Visits:
    """Does what the owner says, once `begin` has told with what."""

    def __init__(self, frontier: FarFrontier, addresses: FarAddresses, known: Known, stats: RunStats) -> None:
        self._frontier = frontier
        self._addresses = addresses
        self._known = known
        self._stats = stats
        self._early: list[Any] = []
        self._visitor: Visitor | Visitors | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._brought: dict[int, Sequence[UrlRecord]] = {}
        self._counting = False
        self.link: Link
        self.closing: asyncio.Future[say.Close] = asyncio.get_running_loop().create_future()
        """The reason for which the crawl ends."""

    def begin(
        self,
        visitor: Visitor | Visitors,
        gates: Sequence[RobotsGate],
        cookies: AllCookies,
        counts: Counts,
    ) -> None:
        """All is wired: do what was said meanwhile, and whatever comes."""
        self._visitor, self._gates, self._cookies, self._counts = visitor, gates, cookies, counts
        early, self._early = self._early, []
        for said in early:
            self.hear(said)

    def hear(self, said: say.Order) -> None:
        """Take what the owner says."""
        if self._visitor is None and not isinstance(said, (say.Facts, say.Refused, say.Granted, say.Pushed)):
            self._early.append(said)
        else:
            getattr(self, _HEARD[type(said)])(said)

    async def end(self) -> None:
        """Give up what is under way, and tell what was counted."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def count(self) -> None:
        """Tell what was counted."""
        self._counting = False
        try:
            self.link.send(self._counts.taken())
        except (TypeError, ValueError, OverflowError) as error:  # numbers and names are the user's
            log.warning("what was counted here is not told: %s", error)

    def _visit(self, said: say.Visit) -> None:
        record = said.record
        self._frontier.paces(record.host, paced=said.paced)
        self._addresses.heard(record.host, said.lost)
        task = asyncio.create_task(self._visited(Lease(said.token, record, inf, said.address)))
        self._tasks[said.token] = task
        task.add_done_callback(lambda done: self._ended(said.token, done))

    async def _visited(self, lease: Lease) -> None:
        assert self._visitor is not None
        outcome = await self._visitor.visit(lease)
        if isinstance(outcome, Completed) and outcome.children:
            outcome = outcome._replace(children=self._news(outcome.children))
            self._brought[lease.token] = outcome.children
        self.link.send_bytes(say.told(lease.token, outcome))

    def _news(self, children: Sequence[UrlRecord]) -> list[UrlRecord]:
        """Leave out what was certainly queued before."""
        known = {
            segment: self._known.contained(segment, [each.fingerprint for each in children if each.segment == segment])
            for segment in {each.segment for each in children}
        }
        new = [each for each in children if each.dont_filter or each.fingerprint not in known[each.segment]]
        self._stats.known_links += len(children) - len(new)
        return new

    def _ended(self, token: int, task: asyncio.Task[None]) -> None:
        del self._tasks[token]
        if task.cancelled():
            self._brought.pop(token, None)
            self.link.send(say.Stopped(token))
        elif (error := task.exception()) is not None:
            self.broke(error)
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_later(COUNT_EVERY_S, self.count)

    def broke(self, error: BaseException) -> None:
        """Tell the owner that the crawl cannot go on."""
        if isinstance(error, LycosaError):
            self.link.send(say.Broken(type(error).__name__, str(error)))
        else:
            log.error("a process of the crawl failed", exc_info=error)
            self.link.send(say.Broken("", f"{type(error).__name__}: {error}"))

    def _cancel(self, said: say.Cancel) -> None:
        task = self._tasks.get(said.token)
        if task is None:
            self._brought.pop(said.token, None)
            self.link.send(say.Stopped(said.token))
        else:
            task.cancel()

    def _settled(self, said: say.Settled) -> None:
        for child in self._brought.pop(said.token, ()):
            self._known.add(child)

    def _granted(self, said: say.Granted) -> None:
        host = self._frontier.granted(said)
        if host:
            self._frontier.paces(host, paced=said.paced)
            self._addresses.heard(host, said.lost)

    def _refused(self, said: say.Refused) -> None:
        self._frontier.refused(said)

    def _facts(self, said: say.Facts) -> None:
        self._frontier.answered(said.number, said.facts)

    def _pushed(self, said: say.Pushed) -> None:
        self._frontier.answered(said.number, said.new)

    def _forget(self, said: say.Forget) -> None:
        for gate in self._gates:
            gate.forget(said.host)

    def _cookie(self, said: say.CookieSet) -> None:
        self._cookies.heard(said)

    def _close(self, said: say.Close) -> None:
        if not self.closing.done():
            self.closing.set_result(said)


_HEARD: dict[type, str] = {
    say.Visit: "_visit",
    say.Cancel: "_cancel",
    say.Settled: "_settled",
    say.Granted: "_granted",
    say.Refused: "_refused",
    say.Facts: "_facts",
    say.Pushed: "_pushed",
    say.Forget: "_forget",
    say.CookieSet: "_cookie",
    say.Close: "_close",
}
