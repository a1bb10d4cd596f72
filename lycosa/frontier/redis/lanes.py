"""How records travel to Redis: the lane they queue in, and their bytes.

A lane is `RANK|PRIORITY|SEGMENT`, so that lanes in the order of their names are in the order in which they are served:
the oldest segment first, then the best priority. Pure.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from lycosa.frontier.core.leases import prerequisite
from lycosa.frontier.core.model import RECORD_VERSION, RecordKind, Row, UrlRecord
from lycosa.frontier.core.segments import starts_at
from lycosa.http.core.model import Validators

PRIORITY_TOP = 5 * 10**18
"""More than any priority, which is kept in 63 bits."""


class Ended(msgspec.Struct, array_like=True, frozen=True):
    """The row of a record that is done or dead."""

    record: UrlRecord
    reason: str
    at: float


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(UrlRecord).decode
decode_ended = msgspec.msgpack.Decoder(Ended).decode
PLACE = 30
"""Bytes before the row in a sorted set of ended records: fingerprint and stamp."""


def lane_of(record: UrlRecord) -> str:
    """Return the lane of a record."""
    return f"{starts_at(record.segment):017.3f}|{PRIORITY_TOP - record.priority:020d}|{record.segment}"


def fingerprint_of(record: UrlRecord) -> str:
    """Return the fingerprint as Redis keeps it in 8 bytes, a signed number; "" for what is never a duplicate."""
    return "" if record.dont_filter else signed(record.fingerprint)


def signed(fingerprint: int) -> str:
    """Return a fingerprint as Redis keeps it."""
    return str(fingerprint - (1 << 64) if fingerprint >> 63 else fingerprint)


def ended_row(record: UrlRecord, reason: str, at: float) -> bytes:
    """Return the row of a record that is done or dead: its fingerprint, to be found by, and all that is known."""
    return b"%016x" % record.fingerprint + encode(Ended(record, reason, at))


def done_row(record: UrlRecord, reason: str, at: float, validators: Validators | None) -> bytes:
    """Return the row of what is done, with what makes the next request for it conditional."""
    return ended_row(replace(record, validators=validators), reason, at)


def row_of(state: str, member: bytes) -> Row:
    """Return the row behind a member of a sorted set of ended records."""
    ended = decode_ended(memoryview(member)[PLACE:])
    return Row(state, ended.record, ended.at, ended.reason)


def needle_of(fingerprint: int) -> bytes:
    """Return bytes that are near the beginning of a record with this fingerprint."""
    return encode(RECORD_VERSION) + encode(fingerprint)


def lent_record(kind: RecordKind, host: str, page: bytes, attempts: int) -> UrlRecord:
    """Return the record that was lent: a page, or a question about its host, guarded as the page is that it is for."""
    if kind is RecordKind.PAGE:
        return decode(page)
    return prerequisite(host, kind, attempts, guarded=kind is RecordKind.ROBOTS and (not page or decode(page).guarded))
