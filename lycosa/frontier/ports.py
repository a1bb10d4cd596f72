"""What lends URLs to workers, and how it is looked into."""

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
from lycosa.http.core.model import Validators


class VisitFrontier(Protocol):
    """The part of `Frontier` that a visit of a page needs; a worker process of a crawl has nothing else of it."""

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue the records whose (segment, fingerprint) is new, or that say `dont_filter`. Return how many.

        A segment is made by its first record. One that was archived or dropped takes no more: its records are refused.
        """
        ...

    async def block_host(self, host: str, until: float) -> None:
        """Lend nothing of this host before `until` (Retry-After, back-off)."""
        ...

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line of the host for a transfer that is no record; end it with `release_claim`, whatever comes of it.

        It takes a place and a turn as a lease does, and goes before the leases, though not for ever. `wake` only sets a
        flag: `try_start` may have something new to say. `holder` is the lease under which the caller works: its own transfer
        is over, and gives up its place. If the frontier `needs_address`, tell it the host's first (`set_address`).
        """
        ...

    async def try_start(self, claim: Claim, now: float) -> float:
        """Return 0 when the transfer starts now; else when to ask again, infinity for when `wake` was called."""
        ...

    async def release_claim(self, claim: Claim, now: float) -> None:
        """The claim is over. `next_ready` may change with this and with `claim`; more than once does nothing."""
        ...

    def needs_address(self, host: str, now: float) -> bool:
        """Whether its address must be known before the host may be contacted."""
        ...

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Let the delay of the host be this from its last start on, at least what it asks for; nothing is stored."""
        ...

    async def host_facts(self, host: str) -> HostFacts | None:
        """Return what is remembered of the host."""
        ...

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember this of the host; its Crawl-delay counts from `now` on."""
        ...


class Frontier(VisitFrontier, Protocol):
    """Lends URLs to workers, politely, and forgets none: `queued -> leased -> done | retry | dead`.

    `ack`, `nack` and `push` count at once in this process and are durable after the next `commit`; a crash in between
    puts the leases back. A lease whose token has expired, or was already given back, is refused with False.
    """

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were certainly pushed before. Cheap and local; about the others: ask by pushing."""
        ...

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend at most `limit` records whose hosts may be contacted now: those of the oldest segment first, within a
        host the best priority, then first come, first served.

        Where the policy limits addresses, a host without a known address lends one record of kind RESOLVE, and nothing
        else until it is settled; where it asks for robots.txt, likewise one of kind ROBOTS without fresh `HostFacts`.
        """
        ...

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
        """The record is done, for this reason; queue its children in the same step.

        `contacted` False says that the host was not asked (robots.txt forbids it): its next turn need not wait.
        `validators` are kept with the record and come back with it when it is refreshed.
        """
        ...

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        """The record failed: try again at `retry_at`, or give it up as dead when that is None."""
        ...

    async def release(self, lease: Lease, now: float) -> bool:
        """Give the record back untouched, as if it had never been lent."""
        ...

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend the lease by its full time; None when it is no longer held."""
        ...

    async def expire(self, now: float) -> int:
        """Queue again what was lent and is overdue. Return how many."""
        ...

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """The host has this IP address until then ("" when it has none that can be found): limits per IP count it."""
        ...

    def next_ready(self, now: float) -> float | None:
        """When `lease` can lend something at the earliest, if no lease ends before; None when it never can."""
        ...

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make everything so far durable, together with the committed positions of the sinks, in one step."""
        ...

    async def positions(self) -> dict[str, int]:
        """Return the sink positions of the last commit."""
        ...

    async def stats(self) -> FrontierStats:
        """Return the counts."""
        ...

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return at most `limit` dead records with the reason."""
        ...

    async def close(self) -> None:
        """Give up what is not committed, and release the store."""
        ...


class FrontierOperations(Protocol):
    """Looks into a frontier and changes what a crawl itself never does: what `lycosa frontier ...` is made of.

    What is long comes in slices of at most `limit` rows; each begins where the one before says (`after`, "" to begin).
    Between two slices the frontier may change; rows that were there all the time are seen exactly once.
    Changes are durable after the next `commit`, also that of the frontier.
    """

    async def stats(self) -> FrontierStats:
        """Return the counts."""
        ...

    async def next_due(self, now: float) -> float | None:
        """When something can be lent at the earliest; None when nothing waits for its time."""
        ...

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new, as `Frontier.push` does. Return how many."""
        ...

    async def commit(self) -> None:
        """Make everything so far durable."""
        ...

    async def host(self, host: str) -> HostView | None:
        """Return what is known of one host key."""
        ...

    async def host_facts(self, host: str) -> HostFacts | None:
        """Return the robots.txt of a host, as far as it is known."""
        ...

    async def segments(self) -> list[SegmentView]:
        """Return the segments in the order in which they are served, the dropped ones too."""
        ...

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        """Return hosts with a key behind `after`, in order."""
        ...

    async def rows(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Return stored URLs, segment by segment, those that are lent as "leased"; robots.txt leases are none."""
        ...

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        """Return what is known of a fingerprint, a row for each segment that has it, with `states` only those in one of
        them; faster when its host is told, and perhaps when its states are. What is done may have lost its URL.
        """
        ...

    async def requeue(
        self, selection: Selection, into: str | None, now: float, after: str, limit: int
    ) -> RequeueResult:
        """Queue dead and done rows again, with all their attempts and with the validators of the last fetch.

        With `into` they are pushed into that segment and stay what they are in their own; those it knows are left out,
        also of those that were never to be filtered.
        """
        ...

    async def archive(self, segment: str) -> bool:
        """Make a finished segment read only; False when it is not finished. Raises `UsageError` for an unknown one."""
        ...

    async def drop(self, segment: str) -> int:
        """Forget a segment with all its URLs, and refuse what of it is lent and comes back. Return how many there were.
        Raises `UsageError` for an unknown one."""
        ...

    async def verify(self, say: Callable[[str], None]) -> list[str]:
        """Read all that is stored and return what does not fit together, in a bounded number of lines; `say` hears how
        far it is."""
        ...

    async def compact(self) -> tuple[int, int]:
        """Give unused room back to the disk. Return the size in bytes before and after."""
        ...


class SharedCookies(Protocol):
    """Tells the changes of cookies between the workers of a crawl."""

    def publish(self, jar: str, key: str, cookie: bytes) -> None:
        """This cookie of the jar is another now, or over. What the worker does next, the others see after it."""
        ...

    def subscribe(self, on_change: Callable[[str, bytes], None]) -> None:
        """Call with the jar and the cookie for each change, from the crawl's first on, those of this worker too."""
        ...


class SharedCrawl(Protocol):
    """What is stored of a crawl on a server besides its records; for its workers, and for those who only look.

    All methods raise `StateError` when the server does not answer or refuses.
    """

    async def workers(self) -> int:
        """Return how many workers take part now."""
        ...

    async def description(self) -> Description:
        """Return what the workers have said of the crawl, with the seeds of all of them; an empty one before the first.

        Raises `NewerState` for one that a later version of Lycosa wrote.
        """
        ...

    async def describe(self, description: Description, *, begins: bool = False) -> None:
        """Replace the description, and add its seeds to those that are there.

        With `begins` an existing description is kept: a worker may have joined since the crawl was created.
        """
        ...


class SharedFrontier(Frontier, Protocol):
    """What a frontier on a server, shared by the workers of a crawl, can do beyond `Frontier`.

    A worker that is silent for long is given up: its leases go to others, and its calls raise `WorkerLost`. All
    methods that wait for the server raise `StateError` when it does not answer or refuses.
    """

    @property
    def server_url(self) -> str:
        """The address of the server, without passwords: what `--frontier` takes."""
        ...

    @property
    def crawl(self) -> SharedCrawl:
        """The crawl that this worker takes part in."""
        ...

    @property
    def cookies(self) -> SharedCookies | None:
        """The cookies that the workers share; None when each has its own."""
        ...

    @property
    def shortage(self) -> str:
        """Why `lease` returns nothing although something may be due (the server is full); "" without such a reason.

        As of the last answer of the server; it may pass by itself.
        """
        ...

    async def check_membership(self) -> None:
        """Return if this worker still takes part; to be called before a host is contacted.

        Costs nothing, unless the process was blocked for so long (seconds) that it may have been given up: then the
        server is asked. Raises `WorkerLost` if it was: the turn of the host may be another worker's.
        """
        ...

    def report_start(self, host: str, now: float) -> None:
        """A transfer to the host started at `now`, in unix seconds: the delay until the next one counts from there.

        May be called twice for one transfer, first with an estimate. Sent to the server with the next exchange.
        """
        ...

    async def is_finished(self) -> bool:
        """Whether the crawl is over for good, for all workers: `stats` alone cannot tell.

        True is certain. After False ask again: another worker may have leases, or a commit that is not yet known
        everywhere.
        """
        ...

    def set_reporter(self, report: Callable[[], bytes], last: Callable[[], bytes]) -> None:
        """Have `report` make the reports that go with the heartbeat, about one a second, and `last` the one of `close`.

        Both return an encoded `telemetry.WorkerReport`, b"" for none. `report` is called in the heartbeat's thread.
        """
        ...

    async def totals(self, report: bytes) -> dict[str, int]:
        """Send this report; return the sums of what all workers have reported, also those that left, by counter."""
        ...

    def operations(
        self, commit: Callable[[], Awaitable[None]], changed: Callable[[], None], paused: Callable[[], str]
    ) -> FrontierOperations:
        """Return the operations on the whole crawl, for use within this worker.

        `commit` makes changes durable together with the worker's items, `changed` is called when there may be something
        to lease, `paused` says why the worker leases nothing, "" when it does.
        """
        ...
