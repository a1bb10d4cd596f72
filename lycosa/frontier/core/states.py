r"""The life of a URL: one transition table that every frontier follows.

                 push                lease               ack            archive
        NEW ------------> QUEUED ------------> LEASED ------------> DONE --------> ARCHIVED
         |                 ^  ^ ^-- release, expire --/ |  |          |                ^
         | push later      |  |                         |  |          | refresh        | archive
         v                 |  |  due                    |  v          v                |
        DELAYED -----------/  \--------- RETRY <-------/  DEAD ---> QUEUED            DEAD
                   due                         nack   give up  requeue

`attempts` counts the leases that failed (nack or expiry). A release, or a crash of the process that held the lease,
does not count: the record did not cause it. The frontier checks the token of each lease and refuses stale ones.
Dropping a segment forgets its records in any state; that is not a transition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from lycosa.frontier.core.model import UrlRecord

EXPIRIES_MAX = 5
"""A lease that expires as this failed attempt of a record, or a later one, makes the record dead: the callback probably
always hangs."""

ROBOTS_TTL_S = 24 * 3600.0
"""How long a robots.txt may be cached (RFC 9309 §2.4)."""


class State(StrEnum):
    """The state of a record. DELAYED and RETRY both wait for `not_before`."""

    NEW = "new"
    QUEUED = "queued"
    DELAYED = "delayed"
    LEASED = "leased"
    RETRY = "retry"
    DONE = "done"
    DEAD = "dead"
    ARCHIVED = "archived"


class Event(StrEnum):
    """What can happen to a record. EXPIRE_LAST is the expiry that reaches EXPIRIES_MAX."""

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
    """The event cannot happen to a URL in this state: a bug in a frontier."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event} cannot happen to a URL that is {state}")


def step(state: State, event: Event) -> State:
    """Raises `IllegalTransition`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None


@dataclass(frozen=True, slots=True)
class Policy:
    """The politeness limits of a crawl, and the length of its leases.

    `delay_s` (between two starts) and `concurrency_per_host` apply to each host key. The `_per_ip` limits apply to all
    hosts of one IP address together; 0 means no limit. `start_delay_s` is the minimum delay of a host until the
    first `Frontier.set_delay`.
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
        return self.delay_per_ip_s > 0 or self.concurrency_per_ip > 0


def push_event(record: UrlRecord) -> Event:
    """PUSH_LATER if the record has a `not_before`, else PUSH."""
    return Event.PUSH_LATER if record.not_before > 0 else Event.PUSH


def fail(record: UrlRecord, retry_at: float) -> UrlRecord:
    """LEASED -> RETRY: one more attempt, due at `retry_at`."""
    return replace(record, attempts=record.attempts + 1, not_before=retry_at)


def give_up(record: UrlRecord) -> UrlRecord:
    """LEASED -> DEAD, with one more attempt."""
    return replace(record, attempts=record.attempts + 1)


def expire(record: UrlRecord) -> tuple[UrlRecord, Event]:
    """An expired lease: one more attempt; LEASED -> QUEUED, or DEAD at EXPIRIES_MAX."""
    expired = replace(record, attempts=record.attempts + 1)
    return expired, Event.EXPIRE_LAST if expired.attempts >= EXPIRIES_MAX else Event.EXPIRE


def requeue(record: UrlRecord) -> UrlRecord:
    """DEAD or DONE -> QUEUED, with no attempts."""
    return replace(record, attempts=0, not_before=0.0)
