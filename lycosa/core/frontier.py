"""The life of a URL, as one table that every frontier obeys.

                 push                lease               ack
        NEW ------------> QUEUED ------------> LEASED ------------> DONE
         |                 ^  ^ ^-- release, expire --/ |  |
         | push later      |  |                         |  | give up, or expired too often
         v                 |  |  due                    |  v
        DELAYED -----------/  \\--------- RETRY <-------/  DEAD
                   due                         nack

A leased record carries the token of its lease; whoever comes with another token is refused. `attempts` counts the
leases that ended badly (nack or expiry): a release, or the death of the process that held the lease, is not the
record's fault and does not count. Rule: what changes the state of a record stands in this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from lycosa.core.model import UrlRecord

EXPIRIES_MAX = 5
"""A record whose leases keep expiring is dead after so many bad ends: its callback never returns."""

ROBOTS_TTL_S = 24 * 3600.0
"""How long a robots.txt may be trusted (RFC 9309 §2.4)."""


class State(StrEnum):
    """Where a record is. DELAYED and RETRY both sleep until `not_before`."""

    NEW = "new"
    QUEUED = "queued"
    DELAYED = "delayed"
    LEASED = "leased"
    RETRY = "retry"
    DONE = "done"
    DEAD = "dead"


class Event(StrEnum):
    """What can happen to a record."""

    PUSH = "push"
    PUSH_LATER = "push later"
    DUE = "due"
    LEASE = "lease"
    ACK = "ack"
    NACK = "nack"
    GIVE_UP = "give up"
    RELEASE = "release"
    EXPIRE = "expire"
    EXPIRE_LAST = "expire last"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.NEW, Event.PUSH): State.QUEUED,
    (State.NEW, Event.PUSH_LATER): State.DELAYED,
    (State.DELAYED, Event.DUE): State.QUEUED,
    (State.RETRY, Event.DUE): State.QUEUED,
    (State.QUEUED, Event.LEASE): State.LEASED,
    (State.LEASED, Event.ACK): State.DONE,
    (State.LEASED, Event.NACK): State.RETRY,
    (State.LEASED, Event.GIVE_UP): State.DEAD,
    (State.LEASED, Event.RELEASE): State.QUEUED,
    (State.LEASED, Event.EXPIRE): State.QUEUED,
    (State.LEASED, Event.EXPIRE_LAST): State.DEAD,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crawl treats hosts and leases: seconds, and transfers at a time."""

    delay_s: float = 0.0
    concurrency_per_host: int = 8
    lease_s: float = 300.0
    robots: bool = True
    robots_ttl_s: float = ROBOTS_TTL_S


def lend(record: UrlRecord, token: int) -> UrlRecord:
    """QUEUED -> LEASED: the record as the holder of `token` gets it."""
    return replace(record, token=token)


def take_back(record: UrlRecord) -> UrlRecord:
    """LEASED -> QUEUED, nobody's fault."""
    return replace(record, token=0)


def fail(record: UrlRecord, retry_at: float) -> UrlRecord:
    """LEASED -> RETRY: one more bad end; asleep until `retry_at`."""
    return replace(record, token=0, attempts=record.attempts + 1, not_before=retry_at)


def expire(record: UrlRecord) -> tuple[UrlRecord, Event]:
    """LEASED -> QUEUED, or DEAD when it happened too often."""
    overdue = replace(record, token=0, attempts=record.attempts + 1)
    return overdue, Event.EXPIRE_LAST if overdue.attempts >= EXPIRIES_MAX else Event.EXPIRE
