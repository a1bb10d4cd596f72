"""How records are encoded for Redis.

A lane is RANK|PRIORITY|SEGMENT. Lanes sorted by name are in serving order: the oldest segment first, and within a
segment the highest priority first.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from lycosa.frontier.core.leases import prerequisite
from lycosa.frontier.core.model import RECORD_VERSION, RecordKind, Row, UrlRecord
from lycosa.frontier.core.segments import starts_at
from lycosa.http.core.model import Validators

RANK_CHARS, PRIORITY_CHARS = 17, 20
SEGMENT_START = RANK_CHARS + PRIORITY_CHARS + 3
"""Position of the segment in a lane, counted from 1 as in Lua."""

PRIORITY_TOP = 5 * 10**18
"""Above every priority: priorities are below 2**62."""

FINGERPRINT_CHARS, STAMP_CHARS = 16, 14
ROW_START = FINGERPRINT_CHARS + STAMP_CHARS
"""Dead and done records are stored in sorted sets as FINGERPRINT STAMP ROW, without spaces. ROW starts here."""


class EndedRow(msgspec.Struct, array_like=True, frozen=True):
    """A record that is done or dead, with the reason, and the time at which it ended (unix seconds)."""

    record: UrlRecord
    reason: str
    at: float


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(UrlRecord).decode
decode_ended = msgspec.msgpack.Decoder(EndedRow).decode


def lane_of(record: UrlRecord) -> str:
    """Return the lane of a record."""
    rank, priority = starts_at(record.segment), PRIORITY_TOP - record.priority
    return f"{rank:0{RANK_CHARS}.3f}|{priority:0{PRIORITY_CHARS}d}|{record.segment}"


def fingerprint_of(record: UrlRecord) -> str:
    """The fingerprint as Redis stores it; "" for a record with dont_filter."""
    return "" if record.dont_filter else signed(record.fingerprint)


def signed(fingerprint: int) -> str:
    """Return a fingerprint as a signed number, which a Redis set stores in 8 bytes."""
    return str(fingerprint - (1 << 64) if fingerprint >> 63 else fingerprint)


def ended_row(record: UrlRecord, reason: str, at: float) -> bytes:
    """Return the row of a done or dead record, prefixed with its fingerprint. The Lua script inserts STAMP, a serial
    number."""
    return b"%016x" % record.fingerprint + encode(EndedRow(record, reason, at))


def done_row(record: UrlRecord, reason: str, at: float, validators: Validators | None) -> bytes:
    """Return the row of a done record, with the validators for its next request."""
    return ended_row(replace(record, validators=validators), reason, at)


def row_of(state: str, member: bytes) -> Row:
    """Decode a member of the sorted set of dead or done records."""
    ended = decode_ended(memoryview(member)[ROW_START:])
    return Row(state, ended.record, ended.at, ended.reason)


def needle_of(fingerprint: int) -> bytes:
    """Bytes that occur near the beginning of each encoded record with this fingerprint."""
    return encode(RECORD_VERSION) + encode(fingerprint)


def leased_record(kind: RecordKind, host: str, page: bytes, attempts: int) -> UrlRecord:
    """Return a leased page, or a prerequisite of its host.

    A robots.txt is `guarded` if the page that waits for it is guarded or unknown.
    """
    if kind is RecordKind.PAGE:
        return decode(page)
    return prerequisite(host, kind, attempts, guarded=kind is RecordKind.ROBOTS and (not page or decode(page).guarded))
