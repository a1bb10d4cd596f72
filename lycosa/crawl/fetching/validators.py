"""Conditional requests (RFC 9110 §13): reads the validators of a response, and adds them to the next request.

The values come from the network and are sent back, so only plain entity tags and dates of limited length are used.
"""

from __future__ import annotations

from collections.abc import Mapping

from lycosa.core.dates import HTTP_DATE
from lycosa.core.headers import Headers
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core.cache_rules import CONDITIONS, ETAG
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request


def make_conditional(request: Request, record: UrlRecord, defaults: Mapping[str, str]) -> Request:
    """Return the request with conditions from the record's validators, or the request itself if none apply.

    `defaults` are the headers sent with every request.
    """
    known = record.validators
    own = {name.lower() for name in (*request.headers, *defaults)}
    if known is None or request.method != "GET" or request.body or not CONDITIONS.isdisjoint(own):
        return request
    conditions = {"If-None-Match": known.etag, "If-Modified-Since": known.modified}
    given = {name: value for name, value in conditions.items() if value}
    return request.replace(headers={**request.headers, **given}) if given else request


def validators_of(headers: Headers, fetched_at: float) -> Validators | None:
    """Return the validators of a response, or None."""
    etag, modified = headers.get("etag"), headers.get("last-modified")
    etag = etag if ETAG.fullmatch(etag) else ""
    modified = modified if HTTP_DATE.fullmatch(modified) else ""
    return Validators(etag, modified, fetched_at) if etag or modified else None


def update_validators(known: Validators | None, headers: Headers, fetched_at: float) -> Validators:
    """Return the validators after a 304, which may contain newer ones (RFC 9110 §15.4.5)."""
    old, new = known or Validators(), validators_of(headers, fetched_at) or Validators()
    return Validators(new.etag or old.etag, new.modified or old.modified, fetched_at)
