"""A process that visits pages, as its owner sees it: visits go there, and what it says is done here.

What it says of a visit is settled as if it had happened here: the ack with its children, the items and the commit are
those of one owner. When it dies its visits are over at once, and their records stay as they were.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lycosa.core.errors import LycosaError
from lycosa.crawl.engine.engine import CANCELLED_ITSELF
from lycosa.crawl.engine.verdict import Failed
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.claims import claim_host
from lycosa.crawl.middlewares.cookies import TABLE as COOKIES
from lycosa.crawl.workers import messages as say
from lycosa.crawl.workers.link import Link
from lycosa.crawl.workers.remote import AllCookies
from lycosa.crawl.workers.request_pacer import Pace, Start, Starts
from lycosa.frontier.core.model import HostFacts, Lease, UrlRecord
from lycosa.frontier.ports import Frontier
from lycosa.infra.clock import Clock
from lycosa.storage.ports import KeyStore

log = logging.getLogger(__name__)

HUNG_S = 10.0
"""A process that does not give up a visit within so long hangs: it is killed."""


class Run(Protocol):
    """The crawl that runs."""

    stopping: bool

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records. Return how many were new."""
        ...

    def close(self, reason: str) -> None:
        """End the crawl."""
        ...

    def wake(self) -> None:
        """Look at the frontier."""
        ...


@dataclass(slots=True)
class Owned:
    """The parts of the crawl that a process has a say in."""

    frontier: Frontier
    addresses: HostAddresses
    clock: Clock
    stats: RunStats
    collector: StatsCollector
    store: KeyStore
    paces: Callable[[str], Sequence[Pace]]
    """How far apart the requests of a host start."""
    learned: Callable[[str, HostFacts], Awaitable[None]]
    cookies: AllCookies
    engine: Run = field(init=False)


class _Visiting(NamedTuple):
    """A visit under way."""

    lease: Lease
    done: asyncio.Future[Outcome | None]
    start: Start | None


class Others(Protocol):
    """What a process needs to know of the others."""

    def came(self, hand: Hand) -> None:
        """It can take visits."""
        ...

    def tell(self, message: say.Message, but: Hand | None = None) -> None:
        """Tell all of them something."""
        ...

    def outcome_of_death(self, lease: Lease, *, alone: bool) -> Outcome:
        """Return what becomes of a page whose process died."""
        ...

    def stirred(self) -> None:
        """One of them may be free."""
        ...

    def broke(self, error: BaseException) -> None:
        """The crawl cannot go on."""
        ...


class Hand:
    """One process that visits pages. `link` is set when it is there; `kill` ends it."""

    def __init__(self, owned: Owned, starts: Starts, others: Others, kill: Callable[[], None]) -> None:
        self._owned = owned
        self._starts = starts
        self._others = others
        self._kill = kill
        self._visits: dict[int, _Visiting] = {}
        self._starting: dict[str, Start] = {}
        self._claims: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, asyncio.Event] = {}
        self._cancelled: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.link: Link
        self.gone = asyncio.Event()
        self.useful = False
        """Whether it has done anything."""
        self.alone = False
        """Whether it is kept for a page that may kill it."""
        self.memory_bytes = 0

    def __len__(self) -> int:
        return len(self._visits)

    @property
    def is_free(self) -> bool:
        """Whether it may be given a visit: not while it is kept for another, or seems to hang."""
        return not self.alone and not self._cancelled

    async def visit(self, lease: Lease, start: Start | None) -> Outcome:
        """Have a page visited."""
        owned, token, record = self._owned, lease.token, lease.record
        visiting = self._visits[token] = _Visiting(lease, asyncio.get_running_loop().create_future(), start)
        if start is not None:
            self._starting[record.host] = start
        lost = "" if lease.address else owned.addresses.lookup_error(record.url)
        self.link.send(say.Visit(token, record, lease.address, start is not None, lost))
        try:
            outcome = await visiting.done
            assert outcome is not None
            return outcome
        except asyncio.CancelledError:
            if self.gone.is_set():  # in the same moment: nobody is there to give it up
                raise
            self.link.send(say.Cancel(token))
            self._cancelled[token] = asyncio.get_running_loop().call_later(HUNG_S, self._hangs)
            if owned.engine.stopping or (outcome := await self._given_up(lease)) is None:
                raise
            return outcome
        finally:
            self._visits.pop(token, None)
            if start is not None:
                self._over(record.host, start)

    async def _given_up(self, lease: Lease) -> Outcome | None:
        """Wait until a visit that takes too long is given up; None when it is. Its process may be what hangs."""
        over = self._visits[lease.token] = _Visiting(lease, asyncio.get_running_loop().create_future(), None)
        outcome = await over.done
        task = asyncio.current_task()
        while task is not None and outcome is not None and task.cancelling():
            task.uncancel()
        return outcome

    def settled(self, token: int) -> None:
        """What the visit brought is queued."""
        if not self.gone.is_set():
            self.link.send(say.Settled(token))

    def hear(self, said: Any) -> None:
        """Take what the process says."""
        getattr(self, _HEARD[type(said)])(said)

    def lose(self) -> None:
        """The process is gone: end what was under way in it."""
        self.gone.set()
        for timer in self._cancelled.values():
            timer.cancel()
        for task in (*self._claims.values(), *self._tasks):
            task.cancel()
        for visiting in list(self._visits.values()):
            if not visiting.done.done():
                visiting.done.set_result(self._others.outcome_of_death(visiting.lease, alone=self.alone))

    def _hangs(self) -> None:
        log.error("a process of this crawl hangs: a page that was given up is still in work after %g s", HUNG_S)
        self._kill()

    # ------------------------------------------------------------------------------------------ what is heard of visits

    def _ended(self, said: say.Finished | say.Missed | say.Returned) -> None:
        self.useful = True
        visiting = self._visits.get(said.token)
        if visiting is not None and not visiting.done.done():
            visiting.done.set_result(say.outcome_of(said))
        self._forget(said.token)

    def _stopped(self, said: say.Stopped) -> None:
        visiting = self._visits.get(said.token)
        if visiting is not None and not visiting.done.done():
            asked = said.token in self._cancelled
            if not asked:
                log.error("%s failed: %s", visiting.lease.record.url, CANCELLED_ITSELF)
            visiting.done.set_result(None if asked else Failed(CANCELLED_ITSELF))
        self._forget(said.token)

    def _forget(self, token: int) -> None:
        timer = self._cancelled.pop(token, None)
        if timer is not None:
            timer.cancel()
            self._others.stirred()

    def _started(self, said: say.Started) -> None:
        at = self._owned.clock.now() - max(said.ago_s, 0.0)
        start = None if said.again else self._starting.pop(said.host, None)
        if start is not None:
            start.begun(at)
        else:
            self._starts.correct(self._owned.paces(said.host), at)

    def _over(self, host: str, start: Start) -> None:
        start.over()
        if self._starting.get(host) is start:
            del self._starting[host]

    # ----------------------------------------------------------------------------------------- what is heard on the way

    def _claim(self, said: say.Claim) -> None:
        task = asyncio.create_task(self._have_turn(said))
        self._claims[said.number] = task
        task.add_done_callback(lambda _: self._claims.pop(said.number, None))

    async def _have_turn(self, said: say.Claim) -> None:
        """Wait in the line of the host for the process, and hold the turn until it says that it is over."""
        owned, holder = self._owned, self._visits.get(said.holder)
        lease = holder.lease if holder is not None else None
        if holder is not None and holder.start is not None:  # or it would wait for itself, when it has not started yet
            self._over(holder.lease.record.host, holder.start)
        try:
            turn = claim_host(said.host, owned.frontier, owned.clock, lease, owned.addresses.update, owned.engine.wake)
            async with turn as address:
                await self._hold_turn(said, address)
        except LycosaError as error:
            self.link.send(say.Refused(said.number, type(error).__name__, str(error)))
        finally:
            self._granted.pop(said.number, None)

    async def _hold_turn(self, said: say.Claim, address: str) -> None:
        paces = self._owned.paces(said.host)
        start = await self._starts.next(paces) if paces else None
        if start is not None:
            self._starting[said.host] = start
        try:
            lost = "" if address else self._owned.addresses.lookup_error(said.host + "/")
            over = self._granted[said.number] = asyncio.Event()
            self.link.send(say.Granted(said.number, address, start is not None, lost))
            await over.wait()
        finally:
            if start is not None:
                self._over(said.host, start)

    def _unclaim(self, said: say.Unclaim) -> None:
        if said.number in self._granted:
            self._granted[said.number].set()
        elif said.number in self._claims:
            self._claims[said.number].cancel()

    def _ask(self, said: say.Ask) -> None:
        self._do(self._tell_facts(said), said.number)

    async def _tell_facts(self, said: say.Ask) -> None:
        self.link.send(say.Facts(said.number, await self._owned.frontier.host_facts(said.host)))

    def _learn(self, said: say.Learn) -> None:
        self._do(self._owned.learned(said.host, said.facts))

    def _push(self, said: say.Push) -> None:
        self._do(self._pushed(said), said.number)

    async def _pushed(self, said: say.Push) -> None:
        self.link.send(say.Pushed(said.number, await self._owned.engine.push(said.records)))

    def _block(self, said: say.Block) -> None:
        self._do(self._owned.frontier.block_host(said.host, said.until))

    def _slow(self, said: say.Slow) -> None:
        self._do(self._owned.frontier.set_delay(said.host, said.delay_s, self._owned.clock.now()))

    def _do(self, what: Awaitable[None], number: int = 0) -> None:
        """Do something that the process asked for; what goes wrong is its answer, or the end of the crawl."""

        async def done() -> None:
            try:
                await what
                self._owned.engine.wake()
            except LycosaError as error:
                if number:
                    self.link.send(say.Refused(number, type(error).__name__, str(error)))
                else:
                    self._others.broke(error)

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _keep(self, said: say.Keep) -> None:
        if said.table != COOKIES:  # those that all know are kept here
            self._owned.store.put(said.table, said.key, said.value)

    def _cookie(self, said: say.CookieSet) -> None:
        self._owned.cookies.heard(said)
        self._others.tell(said, self)

    def _close(self, said: say.Close) -> None:
        self._owned.engine.close(said.reason)

    def _counted(self, said: say.Counted) -> None:
        stats, collector = self._owned.stats, self._owned.collector
        self.memory_bytes = said.memory_bytes
        counts = ((said.sums, collector.inc_value), (said.most, collector.max_value))
        for values, add in (*counts, (said.least, collector.min_value), (said.last, collector.set_value)):
            for name, value in values.items():
                with suppress(TypeError):  # a user's, who puts numbers and texts under one name
                    add(name, value)
        for reason, count in said.skipped.items():
            stats.skipped[reason] = stats.skipped.get(reason, 0) + count
        stats.dropped += said.dropped
        stats.known_links += said.known
        for line in said.notes:
            stats.note(line)
        for bug in said.bugs:
            stats.bugs.merge(bug)

    def _logged(self, said: say.Logged) -> None:
        logger = logging.getLogger(said.name)
        if logger.isEnabledFor(said.level):
            record = logger.makeRecord(said.name, said.level, "", 0, said.text, (), None)
            record.exc_text = said.trace or None
            logger.handle(record)

    def _is_ready(self, _said: say.Ready) -> None:
        self._others.came(self)

    def _broken(self, said: say.Broken) -> None:
        error = say.error_of(said.kind, said.text) if said.kind else RuntimeError(said.text)
        self._others.broke(error)


_HEARD: dict[type, str] = {
    say.Finished: "_ended",
    say.Missed: "_ended",
    say.Returned: "_ended",
    say.Stopped: "_stopped",
    say.Started: "_started",
    say.Claim: "_claim",
    say.Unclaim: "_unclaim",
    say.Ask: "_ask",
    say.Learn: "_learn",
    say.Push: "_push",
    say.CookieSet: "_cookie",
    say.Block: "_block",
    say.Slow: "_slow",
    say.Keep: "_keep",
    say.Close: "_close",
    say.Counted: "_counted",
    say.Logged: "_logged",
    say.Ready: "_is_ready",
    say.Broken: "_broken",
}
