"""The packed rows of infohashes in DELAYED, DONE and QUEUE: a crawl may have 30 million of them.

    delayed   head (6 bytes: depth, priority, attempts, microseconds), infohash (20 bytes)
    queued    the same, then the due time (6 bytes)
    done      head (8 bytes: depth, priority, host id, seconds), infohash, reason

The fingerprint is a hash of the infohash. The due time of a delayed row is in its key. The reason is empty for FETCHED.
The first byte of a packed row is below 128; that of any other row (msgpack) is not.

DELAYED_KEY, the key of a delayed row (`lmdb`), is the due time (8 bytes) and the arrival number (6, in older rows 8).
The mark of a delayed record in SEEN is this key without its first two bytes, which are 0; older marks are "s" and the
key.
"""

from __future__ import annotations

import math
from hashlib import blake2b

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.lsm.rows import ARRIVAL_BYTES, DoneRow, ShortRow, decode_done, decode_record, decode_short

HOST = "dht:"
FETCHED = "fetched"
INFOHASH_BYTES = 20
PACKED_MAX = 0x80
DUE_BYTES, ZEROS = 8, bytes(2)
MARK_BYTES = DUE_BYTES - len(ZEROS) + ARRIVAL_BYTES
DEPTH_MAX, PRIORITY_MAX, ATTEMPTS_MAX, HOST_MAX, SECONDS_MAX = 1 << 19, 1, 1 << 16, 1 << 8, 1 << 32
"""A record is packed only if its values are below these limits (its priority: from -PRIORITY_MAX to PRIORITY_MAX)."""
DELAYED_HEAD, DONE_HEAD, MILLISECONDS_BYTES = 6, 8, 6
BEFORE_MASK = (1 << 10) - 1
"""10 bits hold the microseconds from a time to the next millisecond."""

SHORT = (b"\x98\0", b"\x97\0")
"""The first bytes of a `ShortRow`: an array of 8 or 7 values, the first of them 0."""


def delayed_key(not_before: float, arrival: int) -> bytes:
    """Return the key of a delayed record."""
    return math.ceil(not_before * 1000).to_bytes(DUE_BYTES) + arrival.to_bytes(ARRIVAL_BYTES)


def due_ms(key: bytes) -> int:
    """The due time in a key, in milliseconds."""
    return int.from_bytes(key[:DUE_BYTES])


def arrival_of(key: bytes) -> int:
    """The arrival number in a key."""
    return int.from_bytes(key[DUE_BYTES:])


def mark_of(key: bytes) -> bytes:
    """What SEEN stores for the delayed record with this key."""
    mark = key.removeprefix(ZEROS)
    return mark if len(mark) == MARK_BYTES else b"s" + key


def key_of(mark: bytes) -> bytes | None:
    """The key of a delayed record; None if the mark is an arrival number."""
    if len(mark) <= ARRIVAL_BYTES:
        return None
    return ZEROS + mark if len(mark) == MARK_BYTES else mark[1:]


def delayed_row(record: UrlRecord) -> UrlRecord | bytes:
    """The row of a delayed record: packed if that loses no field, else the record."""
    row = queued_row(record)
    return row[:-MILLISECONDS_BYTES] if isinstance(row, bytes) else row


def queued_row(record: UrlRecord) -> UrlRecord | bytes:
    """The row of a queued record: packed if that loses no field, else the record."""
    infohash = _infohash(record)
    if infohash is None or record.token or record.segment or record.validators or record.attempts >= ATTEMPTS_MAX:
        return record
    milliseconds, microseconds = math.ceil(record.not_before * 1000), round(record.not_before * 1_000_000)
    before = milliseconds * 1000 - microseconds
    if not 0 <= before <= BEFORE_MASK or microseconds / 1_000_000 != record.not_before:
        return record
    head = (_numbers(record) << 16 | record.attempts) << 10 | before
    return head.to_bytes(DELAYED_HEAD) + infohash + milliseconds.to_bytes(MILLISECONDS_BYTES)


def decode_delayed(key: bytes, value: bytes) -> UrlRecord:
    """Return the record of a row of DELAYED."""
    if value[0] < PACKED_MAX:
        return _unpacked(value, due_ms(key))
    return _record_of(decode_short(value)) if value[:2] in SHORT else decode_record(value)


def decode_queued(_: bytes, value: bytes) -> UrlRecord:
    """Return the record of a row of QUEUE."""
    if value[0] < PACKED_MAX:
        return _unpacked(value, int.from_bytes(value[-MILLISECONDS_BYTES:]))
    return decode_record(value)


def done_infohash(record: UrlRecord, host: int, reason: str, at: float) -> bytes | None:
    """Return the packed row of a done infohash; None if it cannot be packed."""
    infohash = _infohash(record)
    if infohash is None or not reason or host >= HOST_MAX or not 0 <= (seconds := int(at)) < SECONDS_MAX:
        return None
    head = (_numbers(record) << 8 | host) << 32 | seconds
    return head.to_bytes(DONE_HEAD) + infohash + (b"" if reason == FETCHED else reason.encode())


def decode_done_row(_: bytes, value: bytes) -> DoneRow:
    """Decode a row of DONE."""
    if value[0] >= PACKED_MAX:
        return decode_done(value)
    head, end = int.from_bytes(value[:DONE_HEAD]), DONE_HEAD + INFOHASH_BYTES
    infohash, depth, priority = value[DONE_HEAD:end], head >> 42, (head >> 40 & 3) - 1
    reason = value[end:].decode() or FETCHED
    return DoneRow(_fingerprint(infohash), head >> 32 & 0xFF, infohash, depth, reason, head & 0xFFFFFFFF, priority)


def _unpacked(row: bytes, milliseconds: int) -> UrlRecord:
    head, infohash = int.from_bytes(row[:DELAYED_HEAD]), row[DELAYED_HEAD : DELAYED_HEAD + INFOHASH_BYTES]
    return UrlRecord(
        RECORD_VERSION,
        _fingerprint(infohash),
        HOST + infohash.hex(),
        HOST,
        depth=head >> 28,
        priority=(head >> 26 & 3) - 1,
        not_before=(milliseconds * 1000 - (head & BEFORE_MASK)) / 1_000_000,
        attempts=head >> 10 & 0xFFFF,
    )


def _infohash(record: UrlRecord) -> bytes | None:
    """None if the record has fields that a packed row lacks."""
    if record.host != HOST or abs(record.priority) > PRIORITY_MAX or not 0 <= record.depth < DEPTH_MAX:
        return None
    if record.kind or record.redirects or record.dont_filter or record.extras or record.guarded:
        return None
    infohash = packed(record.url.removeprefix(HOST))
    if isinstance(infohash, str) or len(infohash) != INFOHASH_BYTES:
        return None
    return infohash if _fingerprint(infohash) == record.fingerprint else None


def _numbers(record: UrlRecord) -> int:
    return record.depth << 2 | record.priority + 1


def _fingerprint(infohash: bytes) -> int:
    return int.from_bytes(blake2b(infohash, digest_size=8).digest())


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


def packed(name: str) -> str | bytes:
    """Return a hexadecimal name as bytes, other names unchanged."""
    try:
        packed = bytes.fromhex(name)
    except ValueError:
        return name
    return packed if packed.hex() == name else name
