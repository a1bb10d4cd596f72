"""The values of a frontier: what it stores of a URL, what it lends, and how it looks from outside.

`UrlRecord` is what a frontier stores of a request, `Lease` what a worker holds while it works on a record. Values only:
no method here reads a clock, a file or a socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

from lycosa.http.core.model import Validators

RECORD_VERSION = 1
NO_DATA: Mapping[str, Any] = {}


class Kind(IntEnum):
    """What a record is fetched for."""

    PAGE = 0
    ROBOTS = 1
    RESOLVE = 2


class Extras(msgspec.Struct, array_like=True, frozen=True):
    """The part of a request that a plain GET link does not have; stored only when it is there.

    Fields are only ever appended. `spider` names the one whose request it is, in a crawl of several.
    """

    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    callback: str = ""
    meta: dict[str, Any] = {}
    cb_kwargs: dict[str, Any] = {}
    errback: str = ""
    cookies: dict[str, str] | list[dict[str, Any]] = {}
    encoding: str = "utf-8"
    flags: list[str] = []
    spider: str = ""


class UrlRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a frontier stores of one URL. Fields are only ever appended: an older reader ignores what it does not know.

    `host` is the host key (scheme, host, port). `not_before` is in unix seconds. `attempts` counts the leases that
    ended in a nack. `token` is 0 here; a back end that stores its leases keeps it with the row. `redirects` counts the
    hops that led here. `fingerprint` is 64 bits of what identifies the request (`frontier.core.keys`). `validators` are
    there when the URL was fetched before, and is fetched again to see whether it has changed. `guarded` says that it
    was found on a page with a public address: it may not lead to one that is not public, nor may its redirects.
    """

    version: int
    fingerprint: int
    url: str
    host: str
    segment: str = ""
    depth: int = 0
    priority: int = 0
    not_before: float = 0.0
    attempts: int = 0
    token: int = 0
    kind: int = Kind.PAGE
    redirects: int = 0
    dont_filter: bool = False
    extras: Extras | None = None
    validators: Validators | None = None
    guarded: bool = False


class Lease(NamedTuple):
    """A record lent to one worker until `expires_at` (unix seconds). Only its token can ack or nack it.

    `address` is the IP address to connect to, "" when the frontier was told none.
    """

    token: int
    record: UrlRecord
    expires_at: float
    address: str = ""


class HostFacts(msgspec.Struct, array_like=True, frozen=True):
    """What a crawl remembers of a host: its robots.txt, in bytes as fetched, and what the host asked for.

    `robots_status` is the HTTP status of the last answer, 0 when the host could not be reached; `robots_at` is when,
    in unix seconds. `crawl_delay_s` is the robots.txt Crawl-delay for our user agent, 0 when there is none.
    """

    robots: bytes = b""
    robots_status: int = 0
    robots_at: float = 0.0
    crawl_delay_s: float = 0.0


class FrontierStats(NamedTuple):
    """Counts of URLs by state, of the whole crawl with its earlier runs; `reasons` counts why URLs are done.

    `delayed` are those that sleep, DELAYED or RETRY; what is queued in a segment that has not started is `queued`.

    `lookups` is how often this process asked whether a fingerprint is new, `lookups_settled` how often the Bloom filter
    alone could tell; `offered` how many records it was to queue, `added` how many of them were new. `paused` is why the
    crawl that runs lends nothing at all, "" when it does.
    """

    queued: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    hosts: int = 0
    reasons: Mapping[str, int] = NO_DATA
    dead_reasons: Mapping[str, int] = NO_DATA
    lookups: int = 0
    lookups_settled: int = 0
    paused: str = ""
    offered: int = 0
    added: int = 0

    @property
    def unfinished(self) -> int:
        """URLs that still have to be fetched."""
        return self.queued + self.leased + self.delayed


class SegmentState(StrEnum):
    """OPEN: has work. FINISHED: has none; a push opens it again. ARCHIVED: read only. DROPPED: its URLs are forgotten.

    Pushes to the last two are refused.
    """

    OPEN = "open"
    FINISHED = "finished"
    ARCHIVED = "archived"
    DROPPED = "dropped"


class SegmentView(msgspec.Struct, frozen=True):
    """A segment and its counts. `starts_at` (unix seconds) is when it may be served, 0 for at once."""

    name: str
    state: SegmentState
    starts_at: float = 0.0
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    reasons: dict[str, int] = {}
    dead_reasons: dict[str, int] = {}


class AddressView(msgspec.Struct, frozen=True):
    """An IP address whose limits the crawl keeps, and how many active hosts share it; `places` is 0 for no limit.

    `address` is "" as long as it is not known, and must be looked up again from `until` on (unix seconds).
    """

    address: str
    ready_at: float = 0.0
    in_flight: int = 0
    places: int = 0
    delay_s: float = 0.0
    hosts: int = 0
    until: float = 0.0


class HostView(msgspec.Struct, frozen=True):
    """A host as the frontier knows it. Times are unix seconds, 0 for never; `robots_status` is -1 when not asked.

    `places` is how many transfers it may have in flight, 0 when nobody knows. `asking` says that its robots.txt or its
    address is being asked for. `shared` is its address with the limits that it shares, in a crawl that has any.
    """

    host: str
    queued: int = 0
    in_flight: int = 0
    ready_at: float = 0.0
    blocked_until: float = 0.0
    delay_s: float = 0.0
    started_at: float = 0.0
    address: str = ""
    robots_status: int = -1
    robots_at: float = 0.0
    places: int = 0
    asking: bool = False
    shared: AddressView | None = None


class Row(msgspec.Struct, frozen=True):
    """A stored URL with its state: what `lycosa frontier list` shows and `export` writes.

    `state` is a word of `frontier.core.states.State`. `at` (unix seconds) is when it was done or died, is due, or its
    lease expires; 0 when it is queued. `reason` is why it is done or dead.
    """

    state: str
    record: UrlRecord
    at: float = 0.0
    reason: str = ""


class Selection(msgspec.Struct, frozen=True):
    """Which rows are meant. Empty fields select all; `before` selects what was done or died before that time.

    `url` and `reason` are globs.
    """

    states: tuple[str, ...] = ()
    segment: str | None = None
    host: str = ""
    url: str = ""
    reason: str = ""
    before: float = 0.0


class Rows(NamedTuple):
    """A slice of the rows asked for, and where the next one begins; None at the end."""

    rows: list[Row]
    after: str | None


class Moved(NamedTuple):
    """How many rows a slice of a long operation changed, and where the next one begins; None at the end."""

    moved: int
    after: str | None
