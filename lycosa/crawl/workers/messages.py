"""What the owner of a crawl and its worker processes send each other, over an `infra.rpc.connection.Connection`.

    owner                                              worker
    VisitRequest(token, record)   ------------------>            a lease, and what is needed to fetch it
                                  <------------------  RequestStarted        where the host has a delay
                                  <------------------  TransferEnded         where the callback takes long
                                  <------------------  VisitCompleted, VisitFailed, VisitDeferred or VisitClosedCrawl
    VisitSettled(token)           ------------------>            its links are queued; they need not be sent again
    CancelVisit(token)            ------------------>  VisitCancelled
    CookieUpdate, HostFactsInvalidated   <---------->  CookieUpdate, HostFactsUpdate    news for all processes
                                  <------------------  HostBlocked, HostDelay, KeyStored, WorkerStats, LogLine
    CloseCrawlRequest(reason)     <----------------->  CloseCrawlRequest     requested by a worker, decided by the owner
                                  <------------------  WorkerReady at the start; WorkerFailed if it cannot go on

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
"""A page with longer results is dead. A process that has left so much unread hangs. The frontier bounds claims."""

LOG_TEXT_MAX = 100_000
"""Characters of a log message that are sent."""


class HostAccess(NamedTuple):
    """How to reach a host: at `address`, "" for any. `error` says why its address could not be looked up.

    If `is_paced`, the owner waits for RequestStarted before the next request to the host may start.
    """

    address: str = ""
    is_paced: bool = False
    error: str = ""


class OwnerCalls(Protocol):
    """The methods of the owner that a worker calls."""

    async def claim(self, claim: int, host: str, token: int) -> HostAccess:
        """Wait for a slot of a host, under the lease `token`, 0 for none. The slot is held until ClaimReleased."""

    async def host_facts(self, host: str) -> HostFacts | None:
        """Return what the frontier knows of a host."""

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records. Return how many were new."""


OWNER_METHODS = methods_of(OwnerCalls)


class VisitRequest(Message):
    """Visit the record of the lease `token`."""

    token: int
    record: UrlRecord
    access: HostAccess


class VisitSettled(Message):
    """The links of this visit are queued."""

    token: int


class CancelVisit(Message):
    """Give up this visit."""

    token: int


class VisitCancelled(Message):
    """This visit was given up."""

    token: int


class VisitCompleted(Message):
    """The page was visited."""

    token: int
    outcome: Completed


class VisitFailed(Message):
    """The visit failed: again later, or never."""

    token: int
    outcome: Failed


class VisitDeferred(Message):
    """The record stays as it was, and its host is blocked for a while."""

    token: int
    outcome: Deferred


class VisitClosedCrawl(Message):
    """The record stays as it was, and the crawl is to end."""

    token: int
    outcome: CloseCrawl


VisitEnded = VisitCompleted | VisitFailed | VisitDeferred | VisitClosedCrawl


class RequestStarted(Message):
    """A request to the host started so many seconds ago; with `is_correction` it is one that was reported before."""

    host: str
    ago_s: float
    is_correction: bool = False


class TransferEnded(Message):
    """The transfer of a visit is over, and its callback goes on. `size`: bytes of the body."""

    token: int
    contacted: bool
    size: int


class ClaimReleased(Message):
    """The claim with this number is over, or no longer wanted."""

    claim: int


class HostFactsUpdate(Message):
    """What was learned of the host."""

    host: str
    facts: HostFacts


class HostFactsInvalidated(Message):
    """What is known of the host has changed: read it again."""

    host: str


class CookieUpdate(Message):
    """This cookie of a jar has changed or ended."""

    jar: str
    cookie: bytes


class HostBlocked(Message):
    """The host may not be contacted until then (unix seconds)."""

    host: str
    until: float


class HostDelay(Message):
    """The delay of the host is set to this."""

    host: str
    delay_s: float


class KeyStored(Message):
    """Store this beside the frontier; None deletes the key."""

    table: str
    key: str
    value: bytes | None


class CloseCrawlRequest(Message):
    """The crawl ends for this reason; with `fast` without waiting for any server."""

    reason: str
    fast: bool = False


class WorkerStats(Message):
    """What was counted since the last time. Users choose the keys of stats: anything that can be hashed."""

    sums: dict[Any, Any] = {}
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
    """A log record."""

    logger: str
    level: int
    text: str
    traceback: str = ""


class WorkerReady(Message):
    """Visits may be sent."""


class WorkerFailed(Message):
    """The worker cannot go on; `kind` is a class of `core.errors`, "" for a bug."""

    kind: str
    text: str


def send_outcome(connection: Connection, token: int, outcome: Outcome) -> None:
    """Send the outcome of a visit. If that is impossible, for its size or what is in it, the visit has failed."""
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
        text = reason_text(f"its results cannot be handed to the process that writes them: {error}")
        connection.send(VisitFailed(token, Failed(text)))
