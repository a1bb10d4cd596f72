"""The ports of the frontier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from lycosa.frontier.core.description import Description
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    Lease,
    RequeueResult,
    Row,
    RowSlice,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.scheduler import Claim
from lycosa.frontier.core.telemetry import RunProgress
from lycosa.http.core.model import Validators


class VisitFrontier(Protocol):
    """The part of `Frontier` needed to visit a page. A worker process has only this part."""

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records with a new (segment, fingerprint) or with `dont_filter`. Return their number.

        The first record of a segment creates it. Archived and dropped segments refuse records.
        """

    async def block_host(self, host: str, until: float) -> None:
        """Lease no records of this host before `until` (unix seconds)."""

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Queue a claim: a request for one transfer without a record. Always end it with `release_claim`.

        Like a lease, a claim waits for a free slot of the host and for its delay. Claims go before leases, but cannot
        starve them. `wake` is called when `try_start` may return something new; it must only set a flag. `holder` is
        the caller's own lease: its slot is freed, as by `end_transfer`. If `needs_address`, call
        `Frontier.set_address` first.
        """

    async def try_start(self, claim: Claim, now: float) -> float:
        """Grant the claim and return 0, or return when to call again (infinity: when `wake` is called)."""

    async def release_claim(self, claim: Claim, now: float) -> None:
        """End the claim; a second call does nothing. `claim` and `release_claim` may change `next_ready`."""

    def needs_address(self, host: str, now: float) -> bool:
        """Whether the frontier needs the IP address of the host before the next contact."""

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Set the delay between starts: at least the required delay of the host, at most a day.

        An embedded frontier does not store it.
        """

    async def host_facts(self, host: str) -> HostFacts | None: ...

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Store the facts. A Crawl-delay in the robots.txt applies from `now` on."""


class Frontier(VisitFrontier, Protocol):
    """Leases URLs to workers, politely, and loses none: `queued -> leased -> done | retry | dead`.

    Changes take effect at once, and are durable after the next `commit`. A crash before the commit voids the leases and
    queues their records again. A call with an ended lease returns False (`renew`: None).
    """

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those fingerprints that were certainly pushed before. This local check may miss some."""

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lease at most `limit` records whose hosts may be contacted now.

        The oldest segment goes first; within a host the highest priority, then first come, first served. If the policy
        limits addresses and the host's address is unknown, the host first gets a lease of kind RESOLVE; if the policy
        requires robots.txt and the `HostFacts` are stale, one of kind ROBOTS. Until such a lease ends, the host gets no
        other.
        """

    def end_transfer(self, lease: Lease, now: float, *, contacted: bool = True) -> None:
        """Free the slot of the host: the transfer is over, but its callback may still run.

        `contacted` False: no request was sent. A second call does nothing. May change `next_ready`.
        """

    async def ack(
        self,
        lease: Lease,
        reason: str,
        children: Sequence[UrlRecord],
        now: float,
        *,
        contacted: bool = True,
        validators: Validators | None = None,
    ) -> bool:
        """Mark the record done for this reason, and queue its children, in one step.

        `contacted` False: no request was sent (robots.txt forbids it), so the delay of the host does not start.
        `validators` are stored for the next refresh.
        """

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        """Report a failure: retry at `retry_at` (unix seconds); None marks the record dead."""

    async def release(self, lease: Lease, now: float) -> bool:
        """Queue the record again as if it had never been leased."""

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend the lease to its full time from now; None if it is no longer valid."""

    async def expire(self, now: float) -> int:
        """Queue the records of overdue leases again, or mark them dead. Return their number."""

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Set the IP address of the host, valid until this time; "" if it has none. Limits per address then apply."""

    def next_ready(self, now: float) -> float | None:
        """The earliest time at which `lease` may return records; None for never. The end of a lease may make it
        earlier."""

    async def begin_run(self, now: float) -> None:
        """Begin a run, which may push into the current segment of each period (for daily segments, today's).

        These segments are not archived until the run ends.
        """

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make all changes durable in one step, together with these positions of the sinks.

        A finished time segment is archived once a later segment of the same period has started.
        """

    async def positions(self) -> dict[str, int]:
        """The sink positions of the last commit."""

    async def stats(self) -> FrontierStats: ...

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return at most `limit` dead records with their reasons."""

    async def close(self) -> None:
        """Discard uncommitted changes, and close the store."""


class ReadableFrontier(Frontier, Protocol):
    """A frontier of one process, whose fingerprints can be read."""

    def stored(self, segment: str, prefix: bytes) -> list[bytes]:
        """Return the fingerprints on disk that start with `prefix`, as 8 bytes each.

        Recently pushed ones may be missing.
        """

    async def requeue(self, fingerprints: Sequence[int]) -> int:
        """Queue the done and dead records with these fingerprints again, and reset their attempts. Return how
        many were queued."""


class FrontierOperations(Protocol):
    """The operations of `lycosa frontier`.

    Long operations run in slices of at most `limit` rows. The first slice has the cursor ""; each result has the cursor
    of the next. The frontier may change between two slices; rows that exist throughout are returned exactly once.
    Changes are durable after the next `commit` of these operations or of the frontier.
    """

    async def stats(self) -> FrontierStats: ...

    async def next_due(self, now: float) -> float | None:
        """The earliest time at which a record can be leased; None for never."""

    async def push(self, records: Sequence[UrlRecord]) -> int: ...

    async def commit(self) -> None: ...

    async def host(self, host: str) -> HostView | None: ...

    async def host_facts(self, host: str) -> HostFacts | None: ...

    async def segments(self) -> list[SegmentView]:
        """Return the segments in serving order, then the dropped segments."""

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        """Return the hosts whose keys follow `after`, in order."""

    async def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        """Return stored URLs, but no leases for robots.txt or addresses."""

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        """Return the rows of a fingerprint, one per segment; with `states`, only rows in these states.

        `host` speeds up the search, and `states` may. The row of a done URL may lack the URL.
        """

    async def requeue(
        self, selection: Selection, into: str | None, now: float, cursor: str, limit: int
    ) -> RequeueResult:
        """Queue dead and done rows again. Reset their attempts; keep their validators.

        With `into`, push copies into that segment instead. URLs already in that segment are skipped, even with
        `dont_filter`.
        """

    async def expire_robots(self, hosts: Sequence[str], now: float) -> int:
        """Expire the robots.txt of those hosts whose last fetch of it failed. Return the number of these hosts.

        A failed fetch forbids all URLs of a host: requeued URLs would be dead again at once.
        """

    async def archive(self, segment: str) -> bool:
        """Make a segment read only; False if it is not finished. Raises `UsageError` if it does not exist."""

    async def drop(self, segment: str) -> int:
        """Forget a segment and its URLs, and void its leases. Return the number of URLs.

        Raises `UsageError` if the segment does not exist.
        """

    async def verify(self, report: Callable[[str], None]) -> list[str]:
        """Check all rows. Return a bounded number of inconsistencies, one line each. `report` gets the progress."""

    async def compact(self) -> tuple[int, int]:
        """Release unused disk space or memory. Return the size in bytes before and after."""


class SharedCookies(Protocol):
    """Distributes changes of cookies among the workers of a crawl."""

    def publish(self, jar: str, key: str, cookie: bytes) -> None:
        """Publish a changed or expired cookie. Other workers get it before they see the effects of later calls."""

    def subscribe(self, on_change: Callable[[str, bytes], None]) -> None:
        """Call `on_change` with jar and cookie for the last change of each cookie since the crawl began, and for
        each later change that this worker reads, including its own."""


class SharedCrawl(Protocol):
    """The data of a crawl on a server, other than its records.

    All methods raise `StateError` if the server does not answer or refuses.
    """

    async def workers(self) -> int:
        """The current number of workers."""

    async def expires_at(self) -> float | None:
        """When the finished crawl will be removed (unix seconds); None if unfinished or kept for ever."""

    async def description(self) -> Description:
        """Return the description with the seeds of all workers; an empty one before the first worker.

        Raises `NewerState` if a later version of Lycosa wrote it.
        """

    async def describe(self, description: Description, *, keep_existing: bool = False) -> None:
        """Replace the description, and add its seeds to the stored ones.

        With `keep_existing`, an existing description is kept: a worker may have joined since the crawl was created.
        """


class SharedFrontier(Frontier, Protocol):
    """A frontier on a server, shared by the workers of a crawl.

    A worker that is silent for too long is removed: other workers get its records, and its calls raise `WorkerLost`.
    Methods that wait for the server raise `StateError` if it does not answer or refuses.
    """

    @property
    def server_url(self) -> str:
        """The address of the server without passwords, in the form that `--frontier` accepts."""

    @property
    def crawl(self) -> SharedCrawl: ...

    @property
    def cookies(self) -> SharedCookies | None:
        """The cookies that the workers share; None if each worker has its own."""

    @property
    def shortage(self) -> str:
        """Why `lease` returns nothing although records may be due (the server is full); otherwise "".

        Known from the server's last answer. A shortage may end by itself.
        """

    async def check_membership(self) -> None:
        """Raise `WorkerLost` if this worker was removed. Call this before contacting a host.

        After the removal, another worker may contact the same host. The server is asked only if this worker got
        no answer from it for two seconds: otherwise the worker cannot have been removed.
        """

    def report_start(self, host: str, now: float) -> None:
        """Report that a transfer to the host started at `now` (unix seconds): the next delay counts from then.

        May be called twice for one transfer, first with an estimate. The report is sent soon, or with the next call.
        """

    async def is_finished(self) -> bool:
        """Whether the crawl is finished for good, for all workers. `stats` does not show this.

        True is certain. After False, call again: another worker may hold leases or have uncommitted changes.
        """

    def set_reporter(self, report: Callable[[], bytes], last: Callable[[], bytes]) -> None:
        """Send the result of `report` with a heartbeat about once a second, and the result of `last` with `close`.

        Both return an encoded `telemetry.WorkerReport`, or b"". `report` runs in the heartbeat thread.
        """

    async def totals(self, report: bytes) -> dict[str, int]:
        """Send this report. Return the counters summed over all present and former workers."""

    async def progress(self, report: bytes) -> RunProgress:
        """Send this report. Return the work of all workers since the run of the crawl began."""

    def operations(
        self, commit: Callable[[], Awaitable[None]], on_change: Callable[[], None], paused: Callable[[], str]
    ) -> FrontierOperations:
        """Return the operations on the whole crawl, for use within this worker.

        `commit` also commits the worker's items. `on_change` is called when something new may be leased. `paused`
        returns why the worker leases nothing, or "".
        """
