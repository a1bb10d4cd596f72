"""Selects stored URLs, and converts them to and from the lines that `export` writes and `import` reads.

A line is a JSON object. Only `url` is required. The default of a field is 0, false or empty, unless given in brackets.

    url                  canonical, or anything `core.url.canonicalize` accepts
    state                queued, leased, delayed, retry, done, dead or archived [queued]
    segment              name of the segment
    priority depth redirects       integers
    attempts             number of failed attempts; an import ignores it and starts at 0
    not_before           when the URL may be fetched, in unix seconds
    at                   when the URL ended, is due, or its lease expires, in unix seconds
    reason               why it is done or dead
    method               the HTTP method [GET]
    headers              object of strings
    body                 base64
    callback errback     names of methods of the spider
    meta cb_kwargs       objects; if JSON cannot represent them, meta_packed and kwargs_packed: msgpack in base64
    etag modified fetched_at       the validators of the last fetch
    cookies encoding flags         as in a Request [encoding: utf-8]
    spider               the spider of the request, in a crawl with several spiders
    guarded              true if the URL was found on a page with a public address
    dont_filter fingerprint        ignored by an import, which computes the fingerprints and skips duplicates
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fnmatch import translate
from typing import Any

import msgspec

from lycosa.core.errors import BadUrl, UsageError
from lycosa.core.url import canonicalize, fingerprint, host_key
from lycosa.frontier.core.keys import Fingerprint
from lycosa.frontier.core.model import RECORD_VERSION, Extras, Row, Selection, UrlRecord
from lycosa.frontier.core.segments import validate_name
from lycosa.frontier.core.states import State
from lycosa.http.core.model import Validators

NOT_BEFORE_MAX = 1e11
"""Maximum time in unix seconds: the year 5138."""

PRIORITY_MAX = 1 << 31
DEPTH_MAX = 1 << 31
PLAIN_EXTRAS = Extras()
DEFAULTS = {"method": "GET", "encoding": "utf-8"}


class RowLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an import."""

    url: str
    state: State = State.QUEUED
    segment: str = ""
    priority: int = 0
    depth: int = 0
    redirects: int = 0
    attempts: int = 0
    not_before: float = 0.0
    at: float = 0.0
    reason: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    callback: str = ""
    meta: dict[str, Any] = {}
    meta_packed: bytes = b""
    cb_kwargs: dict[str, Any] = {}
    kwargs_packed: bytes = b""
    etag: str = ""
    modified: str = ""
    fetched_at: float = 0.0
    guarded: bool = False
    dont_filter: bool = False
    errback: str = ""
    cookies: dict[str, str] | list[dict[str, Any]] = {}
    encoding: str = "utf-8"
    flags: list[str] = []
    spider: str = ""
    fingerprint: str = ""


encode_json = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(RowLine).decode
pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Matcher:
    """A compiled `Selection`."""

    __slots__ = ("_reason", "_selection", "_states", "_url")

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._states = frozenset(selection.states)
        self._url = re.compile(translate(selection.url)).match if selection.url else None
        self._reason = re.compile(translate(selection.reason)).match if selection.reason else None

    def matches(self, row: Row) -> bool:
        selection, record = self._selection, row.record
        return (
            (not self._states or row.state in self._states)
            and (selection.segment is None or record.segment == selection.segment)
            and (not selection.host or record.host == selection.host)
            and (not selection.before or (row.state in ENDED and row.at < selection.before))
            and (self._url is None or self._url(record.url) is not None)
            and (self._reason is None or self._reason(row.reason) is not None)
        )


ENDED = frozenset({State.DONE, State.DEAD, State.ARCHIVED})


def to_line(row: Row) -> bytes:
    """Return the line of a row, without the newline."""
    record, extras, validators = row.record, row.record.extras or PLAIN_EXTRAS, row.record.validators or Validators()
    meta, meta_packed = _plain_or_packed(extras.meta)
    kwargs, kwargs_packed = _plain_or_packed(extras.cb_kwargs)
    line = {
        "url": record.url,
        "state": row.state,
        "segment": record.segment,
        "priority": record.priority,
        "depth": record.depth,
        "redirects": record.redirects,
        "attempts": record.attempts,
        "not_before": record.not_before,
        "at": row.at,
        "reason": row.reason,
        "method": extras.method,
        "headers": extras.headers,
        "body": extras.body,
        "callback": extras.callback,
        "meta": meta,
        "meta_packed": meta_packed,
        "cb_kwargs": kwargs,
        "kwargs_packed": kwargs_packed,
        "etag": validators.etag,
        "modified": validators.modified,
        "fetched_at": validators.fetched_at,
        "guarded": record.guarded,
        "dont_filter": record.dont_filter,
        "errback": extras.errback,
        "cookies": extras.cookies,
        "encoding": extras.encoding,
        "flags": extras.flags,
        "spider": extras.spider,
        "fingerprint": f"{record.fingerprint:016x}",
    }
    return encode_json({name: value for name, value in line.items() if value and value != DEFAULTS.get(name)})


def from_line(text: bytes, key_of: Fingerprint = fingerprint) -> Row:
    """Parse a line into a new record: attempts and token are 0. Raises `UsageError` or `BadUrl`."""
    try:
        line = decode_line(text)
        extras = Extras(
            line.method,
            line.headers,
            line.body,
            line.callback,
            unpack(line.meta_packed) if line.meta_packed else line.meta,
            unpack(line.kwargs_packed) if line.kwargs_packed else line.cb_kwargs,
            line.errback,
            line.cookies,
            line.encoding,
            line.flags,
            line.spider,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(_message_of(error)) from None
    _check(line)
    url = canonicalize(line.url)
    not_before = line.not_before if line.state in (State.QUEUED, State.DELAYED, State.RETRY) else 0.0
    record = UrlRecord(
        RECORD_VERSION,
        key_of(extras.method, url, extras.body),
        url,
        host_key(url),
        line.segment,
        line.depth,
        line.priority,
        not_before,
        redirects=line.redirects,
        extras=None if extras == PLAIN_EXTRAS else extras,
        validators=Validators(line.etag, line.modified, line.fetched_at) if line.etag or line.modified else None,
        guarded=line.guarded,
    )
    return Row(line.state, record, line.at, line.reason)


def from_text(text: bytes, key_of: Fingerprint = fingerprint) -> Row:
    """Parse a line that is a URL or a JSON object. Raises `UsageError` or `BadUrl`."""
    if text[:1] == b"{":
        return from_line(text, key_of)
    try:
        url = canonicalize(text.decode())
    except UnicodeDecodeError:
        raise BadUrl("the line is not UTF-8: write the URL with %-escapes") from None
    return Row(State.QUEUED, UrlRecord(RECORD_VERSION, key_of("GET", url, b""), url, host_key(url)))


def _plain_or_packed(values: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return (values, b"") if JSON represents the values without loss, else ({}, packed values)."""
    if not values:
        return {}, b""
    try:
        if msgspec.json.decode(encode_json(values)) == values:
            return dict(values), b""
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    return {}, pack(values)


def _check(line: RowLine) -> None:
    if not (math.isfinite(line.not_before) and 0 <= line.not_before <= NOT_BEFORE_MAX):
        raise UsageError(f"not_before is {line.not_before:g}: write unix seconds")
    validate_name(line.segment)
    if abs(line.priority) > PRIORITY_MAX or not 0 <= line.depth <= DEPTH_MAX or not 0 <= line.redirects <= DEPTH_MAX:
        raise UsageError("priority, depth or redirects is out of range")
    if line.state == State.NEW:
        raise UsageError("state is 'new': write queued")


def _message_of(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"not a row of an export: {text if text.startswith('JSON') else text[:1].lower() + text[1:]}"
