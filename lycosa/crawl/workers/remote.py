"""Worker-side stand-ins for the owner's frontier, addresses, key store, cookies and log.

They send changes to the owner as messages, and call the owner when they need an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from math import inf
from typing import Any

from lycosa.core.recent_dict import RecentDict
from lycosa.core.url import host_key
from lycosa.crawl.workers import messages
from lycosa.crawl.workers.messages import LOG_TEXT_MAX, OWNER_METHODS, CookieUpdate, HostAccess, LogLine
from lycosa.frontier.core.model import HostFacts, Lease
from lycosa.frontier.core.scheduler import Claim, Host
from lycosa.frontier.ports import VisitFrontier
from lycosa.infra.json_log import fields_of
from lycosa.infra.rpc.connection import Connection, Message
from lycosa.infra.rpc.methods import remote
from lycosa.storage.ports import KeyStore

HOSTS_MAX = 10_000

LOG_LINES_MAX = 10_000
"""Maximum log lines that wait while the event loop is blocked. Further lines are dropped and counted."""

VALUES_MAX = 10_000
"""Maximum recently stored values kept in memory. The owner commits a value long before it is evicted here."""

Send = Callable[[Message], None]


class RemoteFrontier:
    """Implements `frontier.ports.VisitFrontier`."""

    def __init__(self, connection: Connection, addresses: RemoteAddresses) -> None:
        self._connection = connection
        self._addresses = addresses
        self._claim_numbers = count(1)
        self._claims: dict[int, asyncio.Future[HostAccess]] = {}
        self._paced: RecentDict[str, None] = RecentDict(HOSTS_MAX)

    push = remote(VisitFrontier.push)
    host_facts = remote(VisitFrontier.host_facts)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self._connection.call(name, OWNER_METHODS[name].bind(args, kwargs))

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        self._connection.send(messages.HostFactsUpdate(host, facts))

    async def block_host(self, host: str, until: float) -> None:
        self._connection.send(messages.HostBlocked(host, until))

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        self._connection.send(messages.HostDelay(host, delay_s))

    def needs_address(self, host: str, now: float) -> bool:
        return False  # the owner looks up addresses

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        claim = Claim(Host(key=host), wake, next(self._claim_numbers))
        token = holder.token if holder is not None else 0
        granted = self._connection.request("claim", (claim.number, host, token)).future
        self._claims[claim.number] = granted
        granted.add_done_callback(lambda _: wake())
        return claim

    async def try_start(self, claim: Claim, now: float) -> float:
        granted = self._claims[claim.number]
        if not granted.done():
            return inf
        access = granted.result()
        claim.granted, claim.address = True, access.address
        self.set_access(claim.host.key, access)
        return 0.0

    async def release_claim(self, claim: Claim, now: float) -> None:
        granted = self._claims.pop(claim.number, None)
        # `cancel` succeeds if the claim was not granted yet. A claim that failed is already released at the owner.
        if granted is not None and (granted.cancel() or not granted.exception()):
            self._connection.send(messages.ClaimReleased(claim.number))

    def is_paced(self, host: str) -> bool:
        return host in self._paced

    def report_start(self, host: str, ago_s: float = 0.0, *, is_correction: bool = False) -> None:
        """Report immediately that a request to the host started `ago_s` ago, or correct the previous report."""
        self._connection.send(messages.RequestStarted(host, ago_s, is_correction))
        self._connection.flush()  # another process may be waiting to send the next request to the host

    def end_transfer(self, lease: Lease, contacted: bool, size: int) -> None:
        self._connection.send(messages.TransferEnded(lease.token, contacted, size))
        self._connection.flush()

    def set_access(self, host: str, access: HostAccess) -> None:
        self._addresses.set_error(host, access.error)
        if access.is_paced:
            self._paced[host] = None


class RemoteAddresses:
    """Implements `HostLookup`: the owner looks up addresses, and reports look-ups that failed."""

    def __init__(self) -> None:
        self._errors: RecentDict[str, str] = RecentDict(HOSTS_MAX)

    def lookup_error(self, url: str) -> str:
        return self._errors.get(host_key(url), "") if self._errors else ""

    async def update(self, host: str) -> None:
        """Do nothing: the owner looks up addresses."""

    def set_error(self, host: str, error: str) -> None:
        """Remember why the look-up failed; "" forgets it."""
        if error:
            self._errors[host] = error
        elif self._errors:
            self._errors.pop(host, None)


class RemoteStore:
    """Implements `KeyStore`: the owner writes and commits the values; `committed` reads the committed values."""

    def __init__(self, committed: KeyStore, send: Send) -> None:
        self._committed = committed
        self._send = send
        self._recent: RecentDict[tuple[str, str], bytes | None] = RecentDict(VALUES_MAX)

    def get(self, table: str, key: str) -> bytes | None:
        if (table, key) in self._recent:
            return self._recent[table, key]
        return self._committed.get(table, key)

    def put(self, table: str, key: str, value: bytes | None) -> None:
        self._recent[table, key] = value
        self._send(messages.KeyStored(table, key, value))

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        found: dict[str, bytes | None] = dict(self._committed.items(table))
        found |= {key: value for (name, key), value in self._recent.items() if name == table}
        return iter(sorted((key, value) for key, value in found.items() if value is not None))

    async def flush(self) -> None:
        """Do nothing: the owner flushes."""

    async def close(self) -> None:
        await self._committed.close()


class CookieBroadcast:
    """Implements `SharedCookies`: each process has one, which sends its changes to the other processes."""

    def __init__(self, send: Send = lambda _: None) -> None:
        self.send = send
        self._listeners: list[Callable[[str, bytes], None]] = []

    def publish(self, jar: str, key: str, cookie: bytes) -> None:
        self.send(CookieUpdate(jar, cookie))

    def subscribe(self, on_change: Callable[[str, bytes], None]) -> None:
        self._listeners.append(on_change)

    def receive(self, update: CookieUpdate) -> None:
        for on_change in self._listeners:
            on_change(update.jar, update.cookie)


class RemoteLogHandler(logging.Handler):
    """Sends log records to the owner, from any thread."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting = self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting >= LOG_LINES_MAX:
            self._dropped += 1
            return
        try:
            text, traceback = record.getMessage(), ""
            if record.exc_info and record.exc_info[0] is not None:
                traceback = logging.Formatter().formatException(record.exc_info)
            fields = {name: _sendable_value(value) for name, value in fields_of(record).items()}
            line = LogLine(record.name, record.levelno, _sendable(text), _sendable(traceback), record.created, fields)
            self._waiting += 1
            self._loop.call_soon_threadsafe(self._pass_on, line)
        except Exception:  # noqa: BLE001  a logging handler never raises
            self.handleError(record)

    def _pass_on(self, line: LogLine) -> None:
        self._waiting -= 1
        self._send(line)
        if self._dropped and not self._waiting:
            self._send(LogLine(__name__, logging.WARNING, f"{self._dropped} log lines were dropped"))
            self._dropped = 0


def _sendable_value(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, list):
        return [_sendable(each) for each in value]
    return _sendable(value) if isinstance(value, str) else value


def _sendable(text: str) -> str:
    """Cut the text to LOG_TEXT_MAX, and replace lone surrogates, which msgpack cannot encode."""
    return text[:LOG_TEXT_MAX].encode("utf-8", "replace").decode()
