"""The rows of delayed records. Infohashes, of which a crawl may have ten million, get rows of half the size."""

from __future__ import annotations

import msgspec

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.lsm.done_rows import packed
from lycosa.frontier.lsm.rows import decode_record, encode

SHORT = (b"\x98\0", b"\x97\0")
"""The first bytes of a short row: an array of 8 values (7 in older rows) whose first value is 0.

The first value of a record is its version, which is at least 1.
"""


class ShortRow(msgspec.Struct, array_like=True, frozen=True):
    """A record without segment and extras, whose URL is its host key and `name` in hexadecimal digits."""

    short: int
    fingerprint: int
    name: bytes
    host: str
    not_before: float
    attempts: int
    priority: int
    depth: int = 0


_decode_short = msgspec.msgpack.Decoder(ShortRow).decode


def delayed_row(record: UrlRecord) -> UrlRecord | bytes:
    """Return the row of a delayed record: an encoded `ShortRow` if that loses no field, else the record."""
    name = packed(record.url.removeprefix(record.host))
    if isinstance(name, str):
        return record
    row = ShortRow(
        0, record.fingerprint, name, record.host, record.not_before, record.attempts, record.priority, record.depth
    )
    return encode(row) if _record_of(row) == record else record


def decode_delayed(value: bytes) -> UrlRecord:
    """Return the record of a row."""
    return _record_of(_decode_short(value)) if value[:2] in SHORT else decode_record(value)


def _record_of(row: ShortRow) -> UrlRecord:
    return UrlRecord(
        RECORD_VERSION,
        row.fingerprint,
        row.host + row.name.hex(),
        row.host,
        depth=row.depth,
        priority=row.priority,
        not_before=row.not_before,
        attempts=row.attempts,
    )
