"""How records travel to Redis: the lane they queue in, and their bytes.

A lane is `RANK|PRIORITY|SEGMENT`, so that lanes in the order of their names are in the order in which they are served:
the oldest segment first, then the best priority. Pure.
"""

from __future__ import annotations

import msgspec

from lycosa.core.model import RECORD_VERSION, Kind, UrlRecord
from lycosa.core.segments import starts_at

PRIORITY_TOP = 5 * 10**18
"""More than any priority, which is kept in 63 bits."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(UrlRecord).decode


def lane_of(record: UrlRecord) -> str:
    """Return the lane of a record."""
    return f"{starts_at(record.segment):017.3f}|{PRIORITY_TOP - record.priority:020d}|{record.segment}"


def fingerprint_of(record: UrlRecord) -> str:
    """Return the fingerprint as Redis keeps it in 8 bytes, a signed number; "" for what is never a duplicate."""
    if record.dont_filter:
        return ""
    number = record.fingerprint
    return str(number - (1 << 64) if number >> 63 else number)


def question(host: str, kind: Kind, attempts: int, page: bytes) -> UrlRecord:
    """Return the record of a robots.txt or an address, asked for the sake of a page."""
    path = "/robots.txt" if kind is Kind.ROBOTS else "/"
    guarded = kind is Kind.ROBOTS and (not page or decode(page).guarded)
    return UrlRecord(RECORD_VERSION, 0, host + path, host, kind=kind, attempts=attempts, guarded=guarded)
