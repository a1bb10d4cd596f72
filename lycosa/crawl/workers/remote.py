"""What a process has in place of frontier, key store, addresses and log of the crawl, which its owner has.

The owner's answers come as messages: see `messages`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import inf
from typing import Any

from lycosa.core.errors import LycosaError
from lycosa.core.url import host_key
from lycosa.crawl.workers import messages as say
from lycosa.frontier.core.model import HostFacts, Lease, UrlRecord
from lycosa.frontier.core.scheduler import Claim, Host
from lycosa.storage.ports import KeyStore

HOSTS_MAX = 10_000
"""Hosts of which is remembered whether their starts are told, and why they are lost."""

LOGS_MAX = 10_000
"""Lines that wait while the loop is blocked; further ones are left out, and how many is told."""

KEPT_MAX = 10_000
"""Values that were put lately and are answered from memory; the owner has committed them long before they leave."""

Send = Callable[[say.Message], None]


class FarFrontier:
    """See `frontier.ports.VisitFrontier`; every method here is documented there. `flush` sends what waits at once."""

    def __init__(self, send: Send, flush: Callable[[], None]) -> None:
        self._send = send
        self._flush = flush
        self._numbers = count(1)
        self._claims: dict[int, Claim] = {}
        self._refused: dict[int, LycosaError] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._paced: OrderedDict[str, int] = OrderedDict()

    async def host_facts(self, host: str) -> HostFacts | None:
        """Ask."""
        facts: HostFacts | None = await self._ask(lambda number: say.Ask(number, host))
        return facts

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Tell."""
        self._send(say.Learn(host, facts))

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Have them queued."""
        new: int = await self._ask(lambda number: say.Push(number, list(records)))
        return new

    async def block_host(self, host: str, until: float) -> None:
        """Tell."""
        self._send(say.Block(host, until))

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Tell."""
        self._send(say.Slow(host, delay_s))

    def wants_address(self, host: str, now: float) -> bool:
        """The owner looks it up."""
        return False

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Have the owner wait in line."""
        number = next(self._numbers)
        claim = self._claims[number] = Claim(Host(key=host), wake, number)
        self._send(say.Claim(number, host, holder.token if holder is not None else 0))
        return claim

    async def turn(self, claim: Claim, now: float) -> float:
        """Has it come? Raises what the owner's frontier raised."""
        if claim.stamp in self._refused:
            raise self._refused.pop(claim.stamp)
        return 0.0 if claim.granted else inf

    async def unclaim(self, claim: Claim, now: float) -> None:
        """Tell."""
        if self._claims.pop(claim.stamp, None) is not None:
            self._send(say.Unclaim(claim.stamp))

    def is_paced(self, host: str) -> bool:
        """Whether anybody waits for the starts of the host."""
        return host in self._paced

    def started(self, host: str, ago_s: float = 0.0, *, again: bool = False) -> None:
        """A request to the host started so long ago: told at once."""
        self._send(say.Started(host, ago_s, again))
        self._flush()

    def paces(self, host: str, *, paced: bool) -> None:
        """Whether the starts of the host are to be told."""
        if paced:
            self._paced[host] = 1
            if len(self._paced) > HOSTS_MAX:
                self._paced.popitem(last=False)

    def granted(self, said: say.Granted) -> str:
        """A turn has come. Return the host."""
        claim = self._claims.get(said.number)
        if claim is None:
            return ""
        claim.granted, claim.address = True, said.address
        claim.wake()
        return claim.host.key

    def refused(self, said: say.Refused) -> None:
        """A claim or a question failed."""
        error, waiting = say.error_of(said.kind, said.text), self._asked.pop(said.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif said.number in self._claims:
            self._refused[said.number] = error
            self._claims.pop(said.number).wake()

    def answered(self, number: int, value: Any) -> None:
        """A question was answered."""
        waiting = self._asked.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(value)

    async def _ask(self, question: Callable[[int], say.Message]) -> Any:
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(question(number))
        try:
            return await answer
        finally:
            self._asked.pop(number, None)


class FarAddresses:
    """See `crawl.fetching.addresses.HostLookup`: why hosts are lost is told with each visit."""

    def __init__(self) -> None:
        self._lost: OrderedDict[str, str] = OrderedDict()

    def why_lost(self, url: str) -> str:
        """Return why the host of a URL could not be found."""
        return self._lost.get(host_key(url), "") if self._lost else ""

    async def tell(self, host: str) -> None:
        """The owner looks it up."""

    def heard(self, host: str, lost: str) -> None:
        """The owner says so."""
        if lost:
            self._lost[host] = lost
            if len(self._lost) > HOSTS_MAX:
                self._lost.popitem(last=False)
        elif self._lost:
            self._lost.pop(host, None)


class FarStore:
    """See `storage.ports.KeyStore`: what is put goes to the owner, who commits it; `committed` reads what he has."""

    def __init__(self, committed: KeyStore, send: Send) -> None:
        self._committed = committed
        self._send = send
        self._put: OrderedDict[tuple[str, str], bytes | None] = OrderedDict()

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None."""
        if (table, key) in self._put:
            return self._put[table, key]
        return self._committed.get(table, key)

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Have it kept."""
        self._put[table, key] = value
        self._put.move_to_end((table, key))
        if len(self._put) > KEPT_MAX:
            self._put.popitem(last=False)
        self._send(say.Keep(table, key, value))

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return what is there."""
        found: dict[str, bytes | None] = dict(self._committed.items(table))
        found |= {key: value for (name, key), value in self._put.items() if name == table}
        return iter(sorted((key, value) for key, value in found.items() if value is not None))

    async def flush(self) -> None:
        """The owner does that."""

    async def close(self) -> None:
        """Read no more."""
        await self._committed.close()


class AllCookies:
    """See `frontier.ports.SharedCookies`: what one process changes is sent to the others. At both ends."""

    def __init__(self, send: Send = lambda _: None) -> None:
        self.send = send
        self._listeners: list[Callable[[str, bytes], None]] = []

    def tell(self, jar: str, which: str, cookie: bytes) -> None:
        """Send it."""
        self.send(say.CookieSet(jar, cookie))

    def listen(self, heard: Callable[[str, bytes], None]) -> None:
        """Call with what comes from elsewhere."""
        self._listeners.append(heard)

    def heard(self, said: say.CookieSet) -> None:
        """One came from elsewhere."""
        for each in self._listeners:
            each(said.jar, said.cookie)


class FarLog(logging.Handler):
    """Hands what is logged to the owner."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._tell = send
        self._loop = asyncio.get_running_loop()
        self._waiting = self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it on, from whatever thread."""
        if self._waiting >= LOGS_MAX:
            self._left_out += 1
            return
        try:
            text, trace = record.getMessage(), ""
            if record.exc_info and record.exc_info[0] is not None:
                trace = logging.Formatter().formatException(record.exc_info)
            most = say.LOG_TEXT_MAX
            said = say.Logged(record.name, record.levelno, _sendable(text[:most]), _sendable(trace[:most]))
            self._waiting += 1
            self._loop.call_soon_threadsafe(self._hand_on, said)
        except Exception:  # noqa: BLE001  as logging wants it
            self.handleError(record)

    def _hand_on(self, said: say.Logged) -> None:
        self._waiting -= 1
        self._tell(said)
        if self._left_out and not self._waiting:
            self._tell(say.Logged(__name__, logging.WARNING, f"{self._left_out} lines of the log were left out"))
            self._left_out = 0


def _sendable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()
