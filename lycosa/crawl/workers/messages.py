"""The messages between the owner of a crawl and its worker processes, over an `infra.rpc.connection.Connection`.

    owner                                              worker
    VisitRequest(token, record)   ------------------>            a leased record, and how to reach its host
                                  <------------------  RequestStarted        if the host has a delay
                                  <------------------  TransferEnded         if the callback still runs
                                  <------------------  VisitCompleted, VisitFailed, VisitDeferred or VisitClosedCrawl
    VisitSettled(token)           ------------------>            its links are queued; they need not be sent again
    CancelVisit(token)            ------------------>  VisitCancelled
    CookieUpdate, HostFactsInvalidated   <---------->  CookieUpdate, HostFactsUpdate    changes for all processes
                                  <------------------  HostBlocked, HostDelay, KeyStored, WorkerStats, LogLine
    CloseCrawlRequest(reason)     <----------------->  CloseCrawlRequest     requested by a worker, decided by the owner
                                  <------------------  WorkerReady at the start; WorkerFailed if it cannot continue

The worker calls the methods of `OwnerCalls`, and ends a claim with ClaimReleased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from lycosa.crawl.diagnostics.bug_log import Bug
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, Failed, reason_text
from lycosa.crawl.engine.visit import Completed, Outcome
from lycosa.frontier.core.model import HostFacts, UrlRecord
from lycosa.infra.rpc.connection import Connection, Message, RpcLimits
from lycosa.infra.rpc.methods import methods_of

LIMITS = RpcLimits(frame_max=256 << 20, unread_max=512 << 20, calls_max=1_000_000)
"""A page whose results exceed `frame_max` is dead. A process that leaves `unread_max` bytes unread counts as hung.

`calls_max` is high because the frontier already limits claims.
"""

LOG_TEXT_MAX = 100_000


class HostAccess(NamedTuple):
    """How to reach a host: at `address` ("" for any). `error` says why the look-up of the host failed, or is "".

    If `is_paced`, the owner waits for RequestStarted before it lets the next request to the host start.
    """

    address: str = ""
    is_paced: bool = False
    error: str = ""


class OwnerCalls(Protocol):
    """The methods of the owner that workers call."""

    async def claim(self, claim: int, host: str, token: int) -> HostAccess:
        """Wait for a slot of a host, and hold it until ClaimReleased(`claim`). `token`: the caller's lease, or 0."""

    async def host_facts(self, host: str) -> HostFacts | None: ...

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records. Return how many were new."""


OWNER_METHODS = methods_of(OwnerCalls)


class VisitRequest(Message):
    """Visit the record leased under `token`."""

    token: int
    record: UrlRecord
    access: HostAccess


class VisitSettled(Message):
    """The links of this visit are queued."""

    token: int


class CancelVisit(Message):
    """Cancel this visit."""

    token: int


class VisitCancelled(Message):
    """This visit was cancelled."""

    token: int


class VisitCompleted(Message):
    """The page was visited."""

    token: int
    outcome: Completed


class VisitFailed(Message):
    """The visit failed; the outcome says whether it is retried."""

    token: int
    outcome: Failed


class VisitDeferred(Message):
    """The record stays queued, and its host is blocked for a while."""

    token: int
    outcome: Deferred


class VisitClosedCrawl(Message):
    """The record stays queued, and the crawl must close."""

    token: int
    outcome: CloseCrawl


VisitEnded = VisitCompleted | VisitFailed | VisitDeferred | VisitClosedCrawl


class RequestStarted(Message):
    """A request to the host started `ago_s` seconds ago. `is_correction`: whether this corrects an earlier report."""

    host: str
    ago_s: float
    is_correction: bool = False


class TransferEnded(Message):
    """The transfer of a visit is over; its callback still runs. `size`: bytes of the body."""

    token: int
    contacted: bool
    size: int


class ClaimReleased(Message):
    """The worker no longer needs the claim with this number."""

    claim: int


class HostFactsUpdate(Message):
    """New facts about the host."""

    host: str
    facts: HostFacts


class HostFactsInvalidated(Message):
    """The facts about the host have changed: read them again."""

    host: str


class CookieUpdate(Message):
    """A cookie in this jar has changed, expired or been removed."""

    jar: str
    cookie: bytes


class HostBlocked(Message):
    """Do not contact the host before `until` (unix seconds)."""

    host: str
    until: float


class HostDelay(Message):
    """Set the delay of the host."""

    host: str
    delay_s: float


class KeyStored(Message):
    """Store this value in the key store; None deletes the key."""

    table: str
    key: str
    value: bytes | None


class CloseCrawlRequest(Message):
    """Close the crawl for this reason. `fast`: whether to end without waiting for servers."""

    reason: str
    fast: bool = False


class WorkerStats(Message):
    """The counts since the previous WorkerStats. Users choose the keys of stats, so a key may be any hashable value.

    A value of `sums` is what to add, and the start to add it to if the owner has no such value yet.
    """

    sums: dict[Any, tuple[Any, Any]] = {}
    maxima: dict[Any, Any] = {}
    minima: dict[Any, Any] = {}
    values: dict[Any, Any] = {}
    skipped: dict[str, int] = {}
    dropped: int = 0
    known_links: int = 0
    notes: list[str] = []
    memory_bytes: int = 0
    bugs: list[Bug] = []


class LogLine(Message):
    """A log record. `at` is in unix seconds; 0 means now."""

    logger: str
    level: int
    text: str
    traceback: str = ""
    at: float = 0.0
    fields: dict[str, Any] = {}


class WorkerReady(Message):
    """The worker accepts visits."""


class WorkerFailed(Message):
    """The worker cannot continue. `kind` is the name of a class in `core.errors`, or "" for a bug."""

    kind: str
    text: str


def send_outcome(connection: Connection, token: int, outcome: Outcome) -> None:
    """Send the outcome of a visit, or a failure if it is too large or cannot be encoded."""
    try:
        if isinstance(outcome, Completed):
            connection.send(VisitCompleted(token, outcome))
        elif isinstance(outcome, Failed):
            connection.send(VisitFailed(token, outcome._replace(cause=None)))
        elif isinstance(outcome, CloseCrawl):
            connection.send(VisitClosedCrawl(token, outcome))
        else:
            connection.send(VisitDeferred(token, outcome))
    except (TypeError, ValueError, OverflowError) as error:
        text = reason_text(f"its results cannot be sent to the owner process: {error}")
        connection.send(VisitFailed(token, Failed(text)))
