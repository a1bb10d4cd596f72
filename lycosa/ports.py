"""What the engine needs from the outside, as Protocols. One contract test per port in `tests/contracts/`.

Times are unix seconds. An adapter turns every error of its driver into one of `core.errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Protocol, Self

from lycosa.core.headers import Headers
from lycosa.core.httpcache import StoredResponse
from lycosa.core.model import (
    Document,
    FrontierStats,
    HostFacts,
    HostView,
    Lease,
    Moved,
    Request,
    Response,
    Row,
    Rows,
    SearchPage,
    SegmentView,
    Selection,
    UrlRecord,
    Validators,
)
from lycosa.core.workbench import Claim


class Frontier(Protocol):
    """Lends URLs to workers, politely, and forgets none: `queued -> leased -> done | retry | dead`.

    `ack`, `nack` and `push` count at once in this process and are durable after the next `commit`; a crash in between
    puts the leases back. A lease whose token has expired, or was already given back, is refused with False.
    """

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue the records whose (segment, fingerprint) is new, or that say `dont_filter`. Return how many.

        A segment is made by its first record. One that was archived or dropped takes no more: its records are refused.
        """
        ...

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

    async def block_host(self, host: str, until: float) -> None:
        """Lend nothing of this host before `until` (Retry-After, back-off)."""
        ...

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line of the host for a transfer that is no record; end it with `unclaim`, whatever comes of it.

        It takes a place and a turn as a lease does, and goes before the leases, though not for ever. `wake` only sets a
        flag: `turn` may have something new to say. `holder` is the lease under which the caller works: its own transfer
        is over, and gives up its place. If the frontier `wants_address`, tell it the host's first (`set_address`).
        """
        ...

    async def turn(self, claim: Claim, now: float) -> float:
        """Return 0 when the transfer starts now; else when to ask again, infinity for when `wake` was called."""
        ...

    async def unclaim(self, claim: Claim, now: float) -> None:
        """The claim is over. `next_ready` may change with this and with `claim`; more than once does nothing."""
        ...

    def wants_address(self, host: str, now: float) -> bool:
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

    async def rows(self, selection: Selection, after: str, limit: int) -> Rows:
        """Return stored URLs, segment by segment, those that are lent as "leased"; robots.txt leases are none."""
        ...

    async def find(self, fingerprint: int, host: str = "") -> list[Row]:
        """Return what is known of a fingerprint, a row for each segment that has it; faster when its host is told."""
        ...

    async def requeue(self, selection: Selection, into: str | None, now: float, after: str, limit: int) -> Moved:
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


class Resolver(Protocol):
    """Finds the IP addresses of host names."""

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        """Return the addresses, the one to use first, and for how many seconds they hold. Raises `ConnectFailed`."""
        ...


Accept = Callable[[int, Headers], bool]
Into = Callable[[bytes], None]


class Fetcher(Protocol):
    """Does one HTTP transfer. Follows no redirect, retries nothing."""

    async def fetch(
        self,
        request: Request,
        *,
        accept: Accept | None = None,
        max_body: int | None = None,
        cut: bool = False,
        address: str = "",
        public_only: bool = False,
        into: Into | None = None,
    ) -> Response:
        """Return the response, or raise `FetchError`.

        `accept(status, headers)` is asked before the body is read; False ends the transfer with `skipped` set.
        `max_body` (bytes, after decompression) overrides the fetcher's own limit; with `cut` a longer body is no error,
        but ends there. With `address` it connects to this IP address, whatever the name of the host resolves to.
        `public_only` sends nothing to an address that is not public, whatever leads there (`PrivateAddress`); through a
        proxy only what the URL says can be refused. `into` gets the decompressed body by the piece, and the response
        has none. What it or `accept` raises ends the transfer, and is raised here unless `StopDownload` says otherwise.
        """
        ...

    async def close(self) -> None:
        """Abort what is under way and close every connection."""
        ...


class Sink(Protocol):
    """Where items go, exactly once: what was written after the committed position is cut off on resume."""

    name: str
    """Identity of the sink in the state: the same output has the same name in every run."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Start to write at `position`, cutting off what is behind it, or at the end when None. Return where.

        With `keep` what is behind `position` is somebody else's: write behind that.
        """
        ...

    def prepare(self, item: Any) -> Any:
        """Return the item in the form that `write` takes. Raises `BadItem` when it has none."""
        ...

    def write(self, prepared: Any) -> None:
        """Take one prepared item; it may stay in memory until `flush`."""
        ...

    async def flush(self) -> int:
        """Hand everything written to the operating system (to the disk with sync). Return the position.

        Raises `StorageError` when it is not open: it has no position then, and 0 would cut everything off.
        """
        ...

    async def close(self) -> None:
        """Release the output. What was not flushed is dropped."""
        ...


class KeyStore(Protocol):
    """A small durable memory of a crawl beside its frontier: cookies, what a spider keeps, what media were fetched.

    What is put counts at once, and is durable after the next `flush`: before the frontier commits, as with sinks.
    """

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None. Raises `StorageError`."""
        ...

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Keep a value; None forgets the key."""
        ...

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their values, as they are now, in the order of the keys."""
        ...

    async def flush(self) -> None:
        """Make everything that was put durable, in one step. Raises `StorageError`, `StorageFull`."""
        ...

    async def close(self) -> None:
        """Release the store. What was not flushed is dropped."""
        ...


class HttpCacheStore(Protocol):
    """Where an HTTP cache keeps responses. It may forget any at any time, to stay within its size."""

    async def get(self, key: str) -> StoredResponse | None:
        """Return the response, or None when there is none that can be read."""
        ...

    async def put(self, key: str, stored: StoredResponse) -> None:
        """Keep the response, in place of the one before; one that is too large is not kept."""
        ...

    async def delete(self, key: str) -> None:
        """Forget the response."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...


class Index(Protocol):
    """Answers searches. Blocking; callers on a loop use a thread. One process writes, any number read."""

    def add(self, documents: Sequence[Document]) -> None:
        """Add or replace documents by key; visible after `commit`."""
        ...

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make the added documents searchable and durable, and remember how far each source was read (bytes)."""
        ...

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit; never ahead of the documents."""
        ...

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        """Return the best matches. Raises `IndexFailure` for a query that cannot be understood."""
        ...

    def count(self) -> int:
        """Return the number of documents."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...


if sys.version_info >= (3, 13):
    from queue import ShutDown
else:

    class ShutDown(Exception):
        """The queue takes no more items, or has none left and will get none (`queue.ShutDown` from Python 3.13 on)."""


class QueueLease(Protocol):
    """An item that is lent. `with queue.lease() as item:` ends with an ack, or with a nack after an exception."""

    @property
    def item(self) -> Any:
        """The item."""
        ...

    @property
    def attempts(self) -> int:
        """How often it was leased before, without an ack."""
        ...

    def ack(self) -> None:
        """The item is done: forget it, and count it as `task_done`. Raises `ValueError` if the lease has ended."""
        ...

    def nack(self) -> None:
        """Put the item back in its place. Raises `ValueError` if the lease has ended."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Queue(Protocol):
    """What `queue.Queue` does, with its exceptions, and batches and leases. Blocking; for threads and processes."""

    @property
    def maxsize(self) -> int:
        """The number of items it holds at most; no bound at 0 or below."""
        ...

    @property
    def unfinished_tasks(self) -> int:
        """Items that were put and not yet reported done."""
        ...

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Store an item, waiting at most `timeout` seconds for room. Raises `Full`, `ShutDown`, `TypeError`."""
        ...

    def put_many(self, items: Iterable[Any], block: bool = True, timeout: float | None = None) -> None:
        """Store all items in one step, or none."""
        ...

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the next item, waiting at most `timeout` seconds. Raises `Empty`, `ShutDown`."""
        ...

    def get_many(self, limit: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Remove and return the next items in one step: at least one, at most `limit`, waiting for the first only."""
        ...

    def lease(self, block: bool = True, timeout: float | None = None) -> QueueLease:
        """Borrow the next item: gone with `ack`, back in its place with `nack` or when the process ends."""
        ...

    def put_nowait(self, item: Any) -> None:
        """Store an item if there is room now. Raises `Full`."""
        ...

    def get_nowait(self) -> Any:
        """Remove and return the next item if there is one now. Raises `Empty`."""
        ...

    def qsize(self) -> int:
        """Return the number of items that can be had now."""
        ...

    def empty(self) -> bool:
        """True when no item can be had now."""
        ...

    def full(self) -> bool:
        """True when no item can be put now."""
        ...

    def task_done(self, count: int = 1) -> None:
        """Report got items as done. Raises `ValueError` when there were not so many."""
        ...

    def join(self) -> None:
        """Wait until every item that was put is reported done."""
        ...

    def shutdown(self, immediate: bool = False) -> None:
        """Take no more items; with `immediate` drop those that wait, too. Blocked calls raise `ShutDown`."""
        ...

    def close(self) -> None:
        """Give back what is leased and leave."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
