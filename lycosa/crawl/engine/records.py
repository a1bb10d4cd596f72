"""Converts a spider's requests to the records that a frontier stores, and back.

A stored record outlives the process: a callback is stored as the name of a method, and `meta` and `cb_kwargs` must be
plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from lycosa.core.errors import BadSpider
from lycosa.core.url import canonicalize, fingerprint, host_key
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.fetching.redirects import REDIRECT_URLS
from lycosa.frontier.core.keys import Fingerprint
from lycosa.frontier.core.model import RECORD_VERSION, Extras, UrlRecord
from lycosa.frontier.core.segments import NO_SEGMENTS, SegmentNaming
from lycosa.http.core.request import Request

PRIORITY_MAX = 2**62
NOT_BEFORE_MAX = 1e11
"""The latest valid `not_before`, in unix seconds (the year 5138)."""


class Naming(NamedTuple):
    """How a crawl fingerprints its requests and names its segments."""

    fingerprint: Fingerprint = fingerprint
    segments: SegmentNaming = NO_SEGMENTS
    spider: str = ""
    """The spider of the requests in a crawl with several spiders; else ""."""


DEFAULT_NAMING = Naming()


def to_record(
    request: Request,
    spider: object,
    parent: UrlRecord | None = None,
    naming: Naming = DEFAULT_NAMING,
    *,
    segment: str = "",
    guarded: bool = False,
) -> UrlRecord:
    """Return the record of a request found on the page `parent`; without `parent`, of a start request in `segment`.

    `guarded`: whether the request results from a page at a public IP address, directly or through other pages
    (`fetching/guard.py`). Raises `BadUrl`, or `BadSpider` if the request cannot be stored.
    """
    record = _inheriting_record(request, spider, parent, naming, segment, guarded=guarded)
    return _with_segment(record, naming.segments.of_request(request, record.segment))


def _inheriting_record(
    request: Request, spider: object, parent: UrlRecord | None, naming: Naming, segment: str, *, guarded: bool
) -> UrlRecord:
    """Return the record of a request, in the segment of the page `parent`; without `parent`, in `segment`."""
    url = canonicalize(_with_params(request.url, request.params))
    extras = _extras(request, spider, naming.spider)
    record = UrlRecord(
        RECORD_VERSION,
        naming.fingerprint(request.method, url, request.body),
        url,
        host_key(url),
        segment=parent.segment if parent else segment,
        depth=parent.depth + 1 if parent else 0,
        priority=request.priority,
        not_before=request.not_before,
        dont_filter=request.dont_filter,
        extras=extras,
        guarded=guarded,
    )
    if not _is_simple(request):  # the check is slow: it encodes and decodes the record
        _check_storable(record)
    return record


def to_request(record: UrlRecord) -> Request:
    """Return the request to fetch for a record."""
    extras = record.extras
    if extras is None:
        request = Request(record.url)
    else:
        request = Request(
            record.url,
            extras.callback or None,
            extras.method,
            extras.headers,
            extras.body,
            extras.cookies or None,
            extras.meta,
            extras.encoding,
            errback=extras.errback or None,
            flags=extras.flags,
            cb_kwargs=extras.cb_kwargs,
        )
    request.priority = record.priority
    request.dont_filter = record.dont_filter
    request.record = record
    return request


def replacement_record(
    record: UrlRecord, request: Request, spider: object, naming: Naming = DEFAULT_NAMING, *, guarded: bool = False
) -> UrlRecord:
    """Return the record of a request that replaces the one of `record`, such as the target of a redirect.

    It has the depth and the segment of `record` (or the later segment in which the request is due). It may have the
    fingerprint of `record` or of an earlier redirect, for example if a middleware only adds a header, or the site only
    adds a slash that the fingerprint rules ignore. Then it gets `dont_filter`, so that it is not dropped as a
    duplicate. Raises `BadUrl` or `BadSpider`.
    """
    target = _inheriting_record(request, spider, None, naming, record.segment, guarded=guarded)
    target = _with_segment(target, naming.segments.when_due(record.segment, request.not_before))
    trail = request.get_meta(REDIRECT_URLS, ())
    replaced = {record.fingerprint, *(naming.fingerprint(request.method, url, request.body) for url in trail)}
    return msgspec.structs.replace(
        target,
        depth=record.depth,
        priority=request.priority,
        redirects=record.redirects + 1,
        guarded=guarded,
        dont_filter=record.dont_filter
        or target.dont_filter
        or (target.fingerprint in replaced and target.url not in trail),  # not in a redirect loop
    )


def resolve_callback(spider: object, callback: Any, default: str = "parse") -> Callable[..., Any]:
    """Return the spider's method named `callback`; the one named `default` if `callback` is None or empty.

    Return a function unchanged. Raises `BadSpider`.
    """
    if callback is not None and not isinstance(callback, str):
        return callback  # type: ignore[no-any-return]
    found = getattr(spider, callback or default, None)
    if not callable(found):
        raise BadSpider(f"{type(spider).__name__} has no callback {callback!r}")
    return found  # type: ignore[no-any-return]


def host_of(request: Request) -> str:
    """Return the host key of a request."""
    return host_key(request.url) if request.record is None else str(request.record.host)


def _is_simple(request: Request) -> bool:
    if type(request.priority) is not int or not -PRIORITY_MAX < request.priority < PRIORITY_MAX:
        return False
    if request.not_before != 0.0 or request.dont_filter not in (True, False):
        return False
    return request.has_no_data and request.has_ascii_headers


def _check_storable(record: UrlRecord) -> None:
    if type(record.not_before) not in (int, float) or not 0 <= record.not_before <= NOT_BEFORE_MAX:
        raise BadSpider(f"the request for {record.url} has not_before={record.not_before!r:.60}: write unix seconds")
    if not isinstance(record.priority, int):
        raise BadSpider(f"the request for {record.url} has priority={record.priority!r:.60}: write a whole number")
    if record.extras is not None and not isinstance(record.extras.cookies, (dict, list)):
        raise BadSpider(f"the request for {record.url} has cookies={record.extras.cookies!r:.60}: write a dict")
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=UrlRecord)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadSpider(f"the request for {record.url} cannot be stored: {error}") from error


def _with_segment(record: UrlRecord, segment: str) -> UrlRecord:
    return record if segment == record.segment else msgspec.structs.replace(record, segment=segment)


def _with_params(url: str, params: Mapping[str, Any] | None) -> str:
    if not params:
        return url
    address, hash_, fragment = url.partition("#")
    return address + ("&" if "?" in address else "?") + urlencode(params, doseq=True) + hash_ + fragment


def _extras(request: Request, spider: object, tag: str) -> Extras | None:
    callback = _callback_name(request.callback, spider, "callback")
    errback = _callback_name(request.errback, spider, "errback") if request.errback is not None else ""
    if not callback and not errback and not tag and request.is_plain:
        return None
    if not request.has_no_data:
        _check_data(request)
    return Extras(
        request.method,
        request.headers.to_dict() if request.has_headers else {},
        request.body,
        callback,
        request.meta,
        request.cb_kwargs,
        errback,
        dict(request.cookies) if isinstance(request.cookies, Mapping) else request.cookies or {},
        request.encoding,
        request.flags,
        tag,
    )


def _callback_name(callback: Any, spider: object, what: str) -> str:
    if callback is None or callback == "parse":
        return ""
    name = callback if isinstance(callback, str) else getattr(callback, "__name__", "")
    if not callable(getattr(spider, name, None)):
        raise BadSpider(user_errors.check_callback(callback, spider, what))
    return "" if name == "parse" and what == "callback" else name


def _check_data(request: Request) -> None:
    for name in ("meta", "cb_kwargs"):
        for key, value in getattr(request, name).items():
            try:
                msgspec.msgpack.encode(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise BadSpider(f"{request.url}: {user_errors.check_storable(name, {key: value}) or error}") from error
