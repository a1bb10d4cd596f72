"""All processes of a crawl: to the engine, one visitor like any other.

A visit goes to the process that has the fewest. A page that was under way in several processes when they died is
suspect: it is visited alone from then on, so that no other page shares its fate, and when its process dies again it is
dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.crawl.engine.verdict import Deferred, Failed
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.workers import messages as say
from lycosa.crawl.workers.request_pacer import Start, Starts
from lycosa.crawl.workers.worker import Hand, Owned
from lycosa.frontier.core.model import Lease

DEATHS_MAX = 3
"""A page that was under way when so many processes died is visited alone."""

ALONE_MAX = 2
"""A page that was alone when so many processes died is dead."""

SUSPECTS_MAX = 10_000
"""Pages of which it is remembered that they were under way when a process died."""

KILLS_ITS_PROCESS = "its process died again and again"


class Hands:
    """The processes of one crawl. `broke` hears of what ends it."""

    def __init__(self, owned: Owned, broke: Callable[[BaseException], None]) -> None:
        self._owned = owned
        self._starts = Starts(owned.clock.now)
        self._all: list[Hand] = []
        self._ready: list[Hand] = []
        self._stirred = asyncio.Event()
        self._isolating = asyncio.Lock()
        self._deaths: dict[int, int] = {}
        self.broke = broke
        owned.cookies.send = self.tell

    def add(self, kill: Callable[[], None]) -> Hand:
        """Return a new one; from now on it is told what all are told."""
        hand = Hand(self._owned, self._starts, self, kill)
        self._all.append(hand)
        return hand

    def came(self, hand: Hand) -> None:
        """It can take visits."""
        self._ready.append(hand)
        self._stirred.set()

    def stirred(self) -> None:
        """One of them may be free."""
        self._stirred.set()

    def went(self, hand: Hand) -> None:
        """It is gone, with all that was under way in it."""
        self._all.remove(hand)
        if hand in self._ready:
            self._ready.remove(hand)
        hand.lose()
        self._stirred.set()

    def tell(self, message: say.Message, but: Hand | None = None) -> None:
        """Tell all of them something."""
        for hand in self._all:
            if hand is not but:
                hand.link.send(message)

    @property
    def memory_bytes(self) -> int:
        """What all of them hold, as they told it last."""
        return sum(hand.memory_bytes for hand in self._all)

    async def visit(self, lease: Lease) -> Outcome:
        """Have a page visited. See `Visitor.visit`."""
        start = await self._start_of(lease)
        try:
            if self._deaths.get(lease.record.fingerprint, 0) >= DEATHS_MAX:
                async with self._isolating:
                    return await self._visit_alone(lease, start)
            return await self._visit(await self._least(), lease, start)
        finally:
            if start is not None:
                start.over()
            self._stirred.set()

    async def ready(self, count: int) -> None:
        """Wait until so many can take visits."""
        while len(self._ready) < count:
            await self._stir()

    def outcome_of_death(self, lease: Lease, *, alone: bool) -> Outcome:
        """Return what becomes of a page whose process died: it stays as it was, unless it was its fault."""
        page = lease.record.fingerprint
        deaths = self._deaths[page] = self._deaths.pop(page, 0) + 1
        if len(self._deaths) > SUSPECTS_MAX:
            del self._deaths[next(iter(self._deaths))]
        if alone and deaths >= DEATHS_MAX + ALONE_MAX:
            return Failed(KILLS_ITS_PROCESS)
        return Deferred(self._owned.clock.now())

    async def _start_of(self, lease: Lease) -> Start | None:
        paces = self._owned.paces(lease.record.host)
        return await self._starts.next(paces) if paces else None

    async def _visit(self, hand: Hand, lease: Lease, start: Start | None) -> Outcome:
        outcome = await hand.visit(lease, start)
        task = asyncio.current_task()  # that of the engine, which settles the lease next
        assert task is not None
        task.add_done_callback(lambda done: _settled(hand, lease, done))
        return outcome

    async def _visit_alone(self, lease: Lease, start: Start | None) -> Outcome:
        while True:
            hand = await self._least()
            hand.alone = True
            try:
                while len(hand) and not hand.gone.is_set():
                    await self._stir()
                if not hand.gone.is_set():
                    return await self._visit(hand, lease, start)
            finally:
                hand.alone = False
                self._stirred.set()

    async def _least(self) -> Hand:
        while True:
            hands = [hand for hand in self._ready if hand.is_free]
            if hands:
                return min(hands, key=len)
            await self._stir()

    async def _stir(self) -> None:
        self._stirred.clear()
        await self._stirred.wait()


def _settled(hand: Hand, lease: Lease, done: asyncio.Task[None]) -> None:
    if not done.cancelled() and done.exception() is None:
        hand.settled(lease.token)
