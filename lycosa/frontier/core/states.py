"""The life of a URL, as one table that every frontier obeys.

                 push                lease               ack            archive
        NEW ------------> QUEUED ------------> LEASED ------------> DONE --------> ARCHIVED
         |                 ^  ^ ^-- release, expire --/ |  |          |                ^
         | push later      |  |                         |  |          | refresh        | archive
         v                 |  |  due                    |  v          v                |
        DELAYED -----------/  \\--------- RETRY <-------/  DEAD ---> QUEUED            DEAD
                   due                         nack   give up  requeue

`step` is the only way from one state to the next; what is not in the table raises `IllegalTransition`. `attempts` counts the
leases that ended badly (nack or expiry): a release, or the death of the process that held the lease, is not the
record's fault and does not count. The frontier fences leases by token: whoever comes with another one is refused.
Dropping a segment forgets its records in whatever state they are; that is no step of a URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from lycosa.frontier.core.model import UrlRecord

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
    ARCHIVED = "archived"


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
    REQUEUE = "requeue"
    REFRESH = "refresh"
    ARCHIVE = "archive"


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
    (State.DEAD, Event.REQUEUE): State.QUEUED,
    (State.DONE, Event.REFRESH): State.QUEUED,
    (State.DONE, Event.ARCHIVE): State.ARCHIVED,
    (State.DEAD, Event.ARCHIVE): State.ARCHIVED,
}


class IllegalTransition(ValueError):
    """This cannot happen to a URL in that state: a fault in a frontier."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event} cannot happen to a URL that is {state}")


def step(state: State, event: Event) -> State:
    """Return the state after the event. Raises `IllegalTransition`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crawl treats hosts and leases: seconds, and transfers at a time.

    `delay_s` and `concurrency_per_host` hold for a host key, the same `_per_ip` for all hosts of one IP address, where
    0 means no limit. `start_delay_s` is the delay of a host until `Frontier.set_delay` says another.
    """

    delay_s: float = 0.0
    concurrency_per_host: int = 8
    lease_s: float = 300.0
    robots: bool = True
    robots_ttl_s: float = ROBOTS_TTL_S
    delay_per_ip_s: float = 0.0
    concurrency_per_ip: int = 0
    start_delay_s: float = 0.0

    @property
    def limits_addresses(self) -> bool:
        """Whether the frontier must know the addresses of hosts."""
        return self.delay_per_ip_s > 0 or self.concurrency_per_ip > 0


def push_event(record: UrlRecord) -> Event:
    """NEW -> QUEUED, or DELAYED when it says from when on."""
    return Event.PUSH_LATER if record.not_before > 0 else Event.PUSH


def fail(record: UrlRecord, retry_at: float) -> UrlRecord:
    """LEASED -> RETRY: one more bad end; asleep until `retry_at`."""
    return replace(record, attempts=record.attempts + 1, not_before=retry_at)


def give_up(record: UrlRecord) -> UrlRecord:
    """LEASED -> DEAD: one more bad end, the last."""
    return replace(record, attempts=record.attempts + 1)


def expire(record: UrlRecord) -> tuple[UrlRecord, Event]:
    """LEASED -> QUEUED, or DEAD when it happened too often."""
    overdue = replace(record, attempts=record.attempts + 1)
    return overdue, Event.EXPIRE_LAST if overdue.attempts >= EXPIRIES_MAX else Event.EXPIRE


def requeue(record: UrlRecord) -> UrlRecord:
    """DEAD or DONE -> QUEUED: a new life with all its attempts."""
    return replace(record, attempts=0, not_before=0.0)
