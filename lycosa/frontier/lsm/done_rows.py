"""How the record of a URL becomes the row of one that is done, and a record again."""

from __future__ import annotations

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.lsm.rows import CODES, DoneRow, encode
from lycosa.http.core.model import Validators


def done_row(record: UrlRecord, host: int, reason: str, at: float, validators: Validators | None) -> bytes:
    """Return a `DoneRow` as it is stored."""
    url = record.url
    row = (record.fingerprint, host, url[url.find("/", 8) :], record.depth, CODES.get(reason, reason), int(at))
    usual = not (record.priority or record.redirects or record.dont_filter or record.guarded)
    if usual and record.extras is None and validators is None:
        return encode(row)
    more = record.priority, record.redirects, record.dont_filter, record.extras, validators
    return encode((*row, *more, True) if record.guarded else (*row, *more))


def record_of(row: DoneRow, host: str, segment: str) -> UrlRecord:
    """Return the record of a URL that is done."""
    return UrlRecord(
        RECORD_VERSION,
        row.fingerprint,
        origin(host) + row.path,
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
    """Return how the URLs of a host begin: its key without the default port."""
    default = ":443" if host.startswith("https:") else ":80"
    return host.removesuffix(default)
