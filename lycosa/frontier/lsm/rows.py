"""The formats of an embedded frontier's rows in LMDB.

A done URL keeps only its reason, its time and what is needed to fetch it again: 60 bytes plus its path.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from lycosa.frontier.core.model import Extras, HostFacts, SegmentState, UrlRecord
from lycosa.http.core.model import Validators

HOST_KEY_MAX = 400
"""Longer host keys are shortened: an LMDB key has at most 511 bytes."""

ARRIVAL_BYTES = 6
"""An arrival number is the key of a URL in DONE and DEAD, and the end of the keys in QUEUE and DELAYED."""

CODES = {str(status): status for status in range(100, 600)}
"""HTTP statuses are stored as numbers."""


class DoneRow(msgspec.Struct, array_like=True, frozen=True):
    """A done URL. `host` is the host id; `path` is the URL without its origin, as bytes if it is hexadecimal.

    `at` is in unix seconds. The fields after `at` are left out if all have their defaults.
    """

    fingerprint: int
    host: int
    path: Any
    depth: int
    reason: int | str
    at: int
    priority: int = 0
    redirects: int = 0
    dont_filter: bool = False
    extras: Extras | None = None
    validators: Validators | None = None
    guarded: bool = False


class ShortRow(msgspec.Struct, array_like=True, frozen=True):
    """A delayed infohash as stored by earlier versions. `short` is 0; no record begins with 0."""

    short: int
    fingerprint: int
    name: bytes
    host: str
    not_before: float
    attempts: int
    priority: int
    depth: int = 0


class DeadRow(msgspec.Struct, array_like=True, frozen=True):
    """A URL that was marked dead at `at` (unix seconds)."""

    record: UrlRecord
    reason: str
    at: float


class HostRow(msgspec.Struct, array_like=True):
    """A stored host, without its robots.txt. `queued` is an estimate, kept for hosts with many queued URLs."""

    id: int
    started_at: float = 0.0
    blocked_until: float = 0.0
    address: str = ""
    address_until: float = 0.0
    queued: int = 0


class Counters(msgspec.Struct):
    """`segments` includes the dropped ones; `epoch` is how often the state was opened."""

    arrivals: int = 0
    hosts: int = 0
    epoch: int = 0
    segments: int = 0
    positions: dict[str, int] = {}


class SegmentRow(msgspec.Struct):
    """A segment with its counts. `pending` URLs are queued or leased.

    `tables_deleted` is set once the tables of a dropped segment are deleted.
    """

    id: int
    name: str
    state: SegmentState = SegmentState.OPEN
    pending: int = 0
    delayed: int = msgspec.field(default=0, name="sleeping")
    dead: int = 0
    reasons: dict[str, int] = {}
    dead_reasons: dict[str, int] = {}
    tables_deleted: bool = msgspec.field(default=False, name="gone")

    @property
    def done(self) -> int:
        return sum(self.reasons.values())


encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(UrlRecord).decode
decode_done = msgspec.msgpack.Decoder(DoneRow).decode
decode_short = msgspec.msgpack.Decoder(ShortRow).decode
decode_dead = msgspec.msgpack.Decoder(DeadRow).decode
decode_host = msgspec.msgpack.Decoder(HostRow).decode
decode_facts = msgspec.msgpack.Decoder(HostFacts).decode
decode_counters = msgspec.msgpack.Decoder(Counters).decode
decode_segment = msgspec.msgpack.Decoder(SegmentRow).decode
decode_name = msgspec.msgpack.Decoder(str).decode


def decode_dead_row(_: bytes, value: bytes) -> DeadRow:
    """Decode a row of DEAD."""
    return decode_dead(value)


def host_key(host: str) -> bytes:
    """Return the key of a host: a long one is cut, and its hash appended."""
    key = host.encode()
    return key if len(key) <= HOST_KEY_MAX else key[:HOST_KEY_MAX] + sha256(key).digest()
