"""Converts the record of a URL to the row of a done URL, and back."""

from __future__ import annotations

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.lsm.infohash_rows import done_infohash, packed
from lycosa.frontier.lsm.rows import CODES, DoneRow, encode
from lycosa.http.core.model import Validators


def done_row(record: UrlRecord, host: int, reason: str, at: float, validators: Validators | None) -> bytes:
    """Return the row of a done URL: packed by `done_infohash` if possible, else an encoded `DoneRow`."""
    if validators is None and (packed_row := done_infohash(record, host, reason, at)) is not None:
        return packed_row
    url = record.url
    start = url.find("/", 8)
    path = url[start:] if start > 0 else packed(url.removeprefix(record.host))
    row = (record.fingerprint, host, path, record.depth, CODES.get(reason, reason), int(at))
    plain = not (record.priority or record.redirects or record.dont_filter or record.guarded)
    if plain and record.extras is None and validators is None:
        return encode(row)
    more = record.priority, record.redirects, record.dont_filter, record.extras, validators
    return encode((*row, *more, True) if record.guarded else (*row, *more))


def record_of(row: DoneRow, host: str, segment: str) -> UrlRecord:
    """Return the record of a done URL."""
    return UrlRecord(
        RECORD_VERSION,
        row.fingerprint,
        origin(host) + (row.path.hex() if isinstance(row.path, bytes) else row.path),
        host,
        segment,
        row.depth,
        row.priority,
        redirects=row.redirects,
        dont_filter=row.dont_filter,
        extras=row.extras,
        validators=row.validators,
        guarded=row.guarded,
    )


def origin(host: str) -> str:
    """The key of the host without the default port."""
    default = ":443" if host.startswith("https:") else ":80"
    return host.removesuffix(default)
