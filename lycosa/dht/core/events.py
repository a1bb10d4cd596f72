"""What a node reports to the code that runs it: events, status, and the table to save.

`operation_id` is the result of the method that started the operation.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.routing.table import TableCounts


@dataclass(frozen=True, slots=True)
class LookupProgress:
    """A get_peers lookup found new peers."""

    operation_id: int
    peers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LookupFinished:
    """A lookup has ended. `closest` are the closest nodes that answered. A scrape estimates `seeds` and `leechers`."""

    operation_id: int
    target: bytes
    closest: tuple[Contact, ...]
    peers: int
    seeds: float | None = None
    leechers: float | None = None


@dataclass(frozen=True, slots=True)
class AnnounceFinished:
    """An announce has ended: of the `asked` nodes, `confirmed` stored the peer."""

    operation_id: int
    infohash: bytes
    asked: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class InfohashesSampled:
    """An answer to sample_infohashes (BEP 51). `samples` is None if the node does not support it.

    `infohashes` is the number of infohashes that the node stores.
    """

    operation_id: int
    contact: Contact
    samples: tuple[bytes, ...] | None
    infohashes: int
    interval_s: int
    closer: tuple[Contact, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeersNamed:
    """An answer of one node to get_peers. `closer` are its contacts closest to the infohash."""

    operation_id: int
    contact: Contact
    peers: tuple[bytes, ...]
    closer: tuple[Contact, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class QueryFinished:
    """A single query has ended. `error` is "" after an answer."""

    operation_id: int
    endpoint: bytes
    node_id: bytes | None
    round_trip_s: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class PeerAnnounced:
    """Another node announced a peer to us."""

    infohash: bytes
    endpoint: bytes
    seed: bool


@dataclass(frozen=True, slots=True)
class PeersWanted:
    """Another node requested peers from us. Its address is left out, so it is never stored."""

    infohash: bytes


@dataclass(frozen=True, slots=True)
class JoinFinished:
    """A search for our own id has ended."""

    good_contacts: int


@dataclass(frozen=True, slots=True)
class ExternalAddressChanged:
    """Enough nodes agree that this is our IP address. `node_id` is our id, which is new if the old one did not fit."""

    ip: bytes
    node_id: bytes


OperationEvent: TypeAlias = (
    LookupProgress | LookupFinished | AnnounceFinished | InfohashesSampled | PeersNamed | QueryFinished
)
Event: TypeAlias = OperationEvent | PeerAnnounced | PeersWanted | ExternalAddressChanged | JoinFinished


class SavedTable(NamedTuple):
    """What a node stores between runs: no routers and no peers."""

    node_id: bytes
    contacts: tuple[Contact, ...]


class Reachability(enum.Enum):
    """Whether nodes that we have not queried can reach us."""

    UNKNOWN = "unknown"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


@dataclass(slots=True)
class Traffic:
    """Counts since the start. Bytes are those of payloads, without headers."""

    datagrams_in: int = 0
    bytes_in: int = 0
    datagrams_out: int = 0
    bytes_out: int = 0
    queries_in: int = 0
    answers_out: int = 0
    """Including announces that were answered with an error: an invalid token, or a private address."""
    errors_out: int = 0
    limited: int = 0
    """Queries from other nodes that a limit left unanswered."""
    malformed: int = 0
    unexpected: int = 0
    """Answers that belong to no query of ours."""
    queries_out: int = 0
    answers_in: int = 0
    errors_in: int = 0
    failed: int = 0
    """Queries of ours that were not answered."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of a node."""

    node_id: bytes
    external_ip: bytes
    reachability: Reachability
    contacts: TableCounts
    peers: int
    infohashes: int
    outstanding: int
    waiting: int
    operations: int
    round_trip_s: float | None
    traffic: Traffic
