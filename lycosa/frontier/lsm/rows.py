"""What the rows of an embedded frontier look like in LMDB, and how a record is told from the row of a URL that is done.

A done URL keeps what it takes to fetch it again, and nothing else: 60 bytes and its path.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from lycosa.frontier.core.model import Extras, HostFacts, SegmentState, UrlRecord
from lycosa.http.core.model import Validators

HOST_KEY_MAX = 400
"""Bytes of a host key that are stored as they are; LMDB keys end at 511."""

ARRIVAL = 6
"""Bytes of a number of arrival, which names a URL in DONE and DEAD and ends the keys of QUEUE and SLEEP."""

CODES = {str(status): status for status in range(100, 600)}
"""Reasons that are HTTP statuses are stored as numbers."""


class DoneRow(msgspec.Struct, array_like=True, frozen=True):
    """A URL that is done. `at` is in unix seconds, `path` what follows the origin of the host.

    The row of a plain link ends behind `at`.
    """

    fingerprint: int
    host: int
    path: str
    depth: int
    reason: int | str
    at: int
    priority: int = 0
    redirects: int = 0
    dont_filter: bool = False
    extras: Extras | None = None
    validators: Validators | None = None
    guarded: bool = False


class DeadRow(msgspec.Struct, array_like=True, frozen=True):
    """A URL that is dead, since `at` (unix seconds)."""

    record: UrlRecord
    reason: str
    at: float


class HostRow(msgspec.Struct, array_like=True):
    """What is known of a host besides its robots.txt. `queued` is an estimate, for hosts that have many."""

    id: int
    started_at: float = 0.0
    blocked_until: float = 0.0
    address: str = ""
    address_until: float = 0.0
    queued: int = 0


class Counters(msgspec.Struct):
    """What is counted of the whole crawl. `segments` is how many there were, the dropped ones too."""

    arrivals: int = 0
    hosts: int = 0
    epoch: int = 0
    segments: int = 0
    positions: dict[str, int] = {}


class SegmentRow(msgspec.Struct):
    """A segment and what is counted of it. `pending` is queued or lent; `gone` says that its tables were deleted."""

    id: int
    name: str
    state: SegmentState = SegmentState.OPEN
    pending: int = 0
    sleeping: int = 0
    dead: int = 0
    reasons: dict[str, int] = {}
    dead_reasons: dict[str, int] = {}
    gone: bool = False

    @property
    def done(self) -> int:
        """URLs that are done."""
        return sum(self.reasons.values())


encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(UrlRecord).decode
decode_done = msgspec.msgpack.Decoder(DoneRow).decode
decode_dead = msgspec.msgpack.Decoder(DeadRow).decode
decode_host = msgspec.msgpack.Decoder(HostRow).decode
decode_facts = msgspec.msgpack.Decoder(HostFacts).decode
decode_counters = msgspec.msgpack.Decoder(Counters).decode
decode_segment = msgspec.msgpack.Decoder(SegmentRow).decode
decode_name = msgspec.msgpack.Decoder(str).decode


def host_key(host: str) -> bytes:
    """Return the key of a host in LMDB, whose keys are short."""
    key = host.encode()
    return key if len(key) <= HOST_KEY_MAX else key[:HOST_KEY_MAX] + sha256(key).digest()
