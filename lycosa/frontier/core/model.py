"""The values of a frontier: stored records, leases, and the views that operators see."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

from lycosa.http.core.model import Validators

RECORD_VERSION = 1
NO_DATA: Mapping[str, Any] = {}


class RecordKind(IntEnum):
    """ROBOTS and RESOLVE prepare a host (robots.txt, IP address) and are never stored."""

    PAGE = 0
    ROBOTS = 1
    RESOLVE = 2


class Extras(msgspec.Struct, array_like=True, frozen=True):
    """The parts of a request that a plain GET link lacks.

    Append fields only: stored records are arrays. `spider` is the request's spider in a crawl with several spiders.
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
    """A stored request. Append fields only: records are stored as arrays, and an older reader ignores extra fields.

    `fingerprint` identifies the request (`frontier.core.keys`). `host` is the host key (scheme, host, port).
    `not_before` is in unix seconds. `attempts` counts leases that ended in a nack or expired. `token` is 0 except in
    back ends that store the lease with the row. `redirects` counts the redirects that led here. `validators` of an
    earlier fetch make the request conditional. A `guarded` URL was found on a page with a public address: the URL and
    its redirects must lead to public addresses.
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
    kind: int = RecordKind.PAGE
    redirects: int = 0
    dont_filter: bool = False
    extras: Extras | None = None
    validators: Validators | None = None
    guarded: bool = False


class Lease(NamedTuple):
    """A record leased to one worker until `expires_at` (unix seconds). Ack, nack and release require its token.

    `address` is the IP address to connect to; "" if unknown.
    """

    token: int
    record: UrlRecord
    expires_at: float
    address: str = ""


class HostFacts(msgspec.Struct, array_like=True, frozen=True):
    """The robots.txt of a host and its Crawl-delay for our user agent (0: none).

    `robots_status` is the HTTP status of its last fetch, 0 if the host was unreachable; `robots_at` is the time of this
    fetch (unix seconds).
    """

    robots: bytes = b""
    robots_status: int = 0
    robots_at: float = 0.0
    crawl_delay_s: float = 0.0


class FrontierStats(NamedTuple):
    """Counts of URLs by state over all runs of the crawl; `reasons` and `dead_reasons` count why URLs ended.

    `delayed` counts the states DELAYED and RETRY; URLs in a segment that has not started count as `queued`.

    The other fields describe this process. `lookups` counts the fingerprints that were looked up, `lookups_settled`
    those for which the Bloom filter was enough. `added` counts the new records among the `offered` ones. `paused` is
    why a running crawl leases nothing, or "".
    `brake` is what all hosts with work wait for; "" if unknown, or if one of them may be contacted now. `work_s` is the
    minimum time (seconds) that the queued URLs need because of the known delays and blocks. If all hosts with work are
    blocked, `blocked_until` is when the first may be contacted (unix seconds), else 0.
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
    brake: str = ""
    work_s: float = 0.0
    blocked_until: float = 0.0

    @property
    def unfinished(self) -> int:
        return self.queued + self.leased + self.delayed


class SegmentState(StrEnum):
    """OPEN: has work. FINISHED: has none; a push reopens it. ARCHIVED: read only. DROPPED: its URLs are forgotten.

    ARCHIVED and DROPPED segments refuse pushes.
    """

    OPEN = "open"
    FINISHED = "finished"
    ARCHIVED = "archived"
    DROPPED = "dropped"


class SegmentView(msgspec.Struct, frozen=True):
    """A segment and its counts. Its URLs can be leased from `starts_at` (unix seconds) on; 0: at once."""

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
    """An IP address, its limits and their use, and how many active `hosts` share it.

    `concurrency` is the maximum number of transfers in flight, 0 for no limit. `address` is "" while unknown, and must
    be looked up again at `until` (unix seconds).
    """

    address: str
    ready_at: float = 0.0
    in_flight: int = 0
    concurrency: int = 0
    delay_s: float = 0.0
    hosts: int = 0
    until: float = 0.0


class HostView(msgspec.Struct, frozen=True):
    """A host as operators see it. Times are unix seconds, 0 for never; `robots_status` is -1 before the first fetch.

    `concurrency` is the maximum number of transfers in flight, 0 if unknown. While `preparing`, its robots.txt or
    address is being fetched. `shared` is its IP address, if the crawl has limits per address.
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
    concurrency: int = 0
    preparing: bool = False
    shared: AddressView | None = None


class Row(msgspec.Struct, frozen=True):
    """A stored URL with its state (`frontier.core.states.State`).

    `at` (unix seconds) is when the URL ended (done, dead), is due (delayed, retry), or its lease expires; 0 if queued.
    `reason` is why it is done or dead.
    """

    state: str
    record: UrlRecord
    at: float = 0.0
    reason: str = ""


class Selection(msgspec.Struct, frozen=True):
    """A filter for rows. Empty fields match everything, except `segment`: None matches all, "" only the unnamed one.

    `url` and `reason` are globs.

    `before` (unix seconds): only URLs that ended (done, dead or archived) before this time; 0 for no limit.
    """

    states: tuple[str, ...] = ()
    segment: str | None = None
    host: str = ""
    url: str = ""
    reason: str = ""
    before: float = 0.0


class RowSlice(NamedTuple):
    """`next_cursor` is the cursor of the next slice; None at the end."""

    rows: list[Row]
    next_cursor: str | None


class RequeueResult(NamedTuple):
    """`next_cursor` is the cursor of the next slice; None at the end."""

    requeued: int
    next_cursor: str | None
