"""Between what a spider says and what a frontier stores: requests to records and back.

A stored record outlives the process, so a callback is stored by the name of a method, and `meta` and `cb_kwargs` must
be plain data. `Naming` says what a crawl knows a request by: its fingerprint, and the segment it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from lycosa.core.errors import BadSpider
from lycosa.core.keys import Fingerprint
from lycosa.core.model import RECORD_VERSION, Extras, Request, UrlRecord
from lycosa.core.segments import NO_SEGMENTS, Segments
from lycosa.core.url import canonicalize, fingerprint, host_key

SECRETS = frozenset({"authorization", "cookie", "proxy-authorization"})
NOT_BEFORE_MAX = 1e11
"""Unix seconds; the year 5138."""

REDIRECT_URLS = "redirect_urls"
"""The key of `meta` under which the URLs are kept that were redirected to this one, oldest first (as in Scrapy)."""


class Naming(NamedTuple):
    """How a crawl identifies its requests, and names its segments. The default: as `core.url` does, and none."""

    fingerprint: Fingerprint = fingerprint
    segments: Segments = NO_SEGMENTS


PLAIN = Naming()


def to_record(
    request: Request, spider: object, parent: UrlRecord | None = None, naming: Naming = PLAIN, *, segment: str = ""
) -> UrlRecord:
    """Return the record of a request found on `parent`, or of a first request, in the segment of its run.

    Raises `BadUrl`, or `BadSpider` for what cannot be stored or named.
    """
    url = canonicalize(_with_params(request.url, request.params))
    extras = _extras(request, spider)
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
    )
    return _in_its_segment(_storable(record), naming)


def to_request(record: UrlRecord) -> Request:
    """Return the request to fetch for a record."""
    extras = record.extras
    if extras is None:
        return Request(record.url)
    return Request(
        record.url,
        extras.callback or None,
        extras.method,
        extras.headers,
        extras.body,
        meta=extras.meta,
        cb_kwargs=extras.cb_kwargs,
        priority=record.priority,
        dont_filter=record.dont_filter,
    )


def redirected(record: UrlRecord, target: str, status: int, naming: Naming = PLAIN) -> UrlRecord:
    """Return the record of a redirect's target: same depth, same callback, same segment, GET where RFC 9110 §15.4 says
    so. Raises `BadSpider` when the target cannot be named.

    Where a site redirects to what counts as the same request (it drops a parameter, adds a slash), the target is
    fetched although it is known.
    """
    extras = record.extras or Extras()
    keep = (
        extras.method in {"GET", "HEAD"} or (status in {301, 302} and extras.method != "POST") or status in {307, 308}
    )
    method, body = (extras.method, extras.body) if keep else ("GET", b"")
    trail = [*extras.meta.get(REDIRECT_URLS, ()), record.url]
    named = naming.fingerprint(method, target, body)
    on_the_way = {record.fingerprint, *(naming.fingerprint(method, url, body) for url in trail)}
    headers = _headers_after(extras.headers, other_host=host_key(target) != record.host, body_gone=not keep)
    return msgspec.structs.replace(
        record,
        fingerprint=named,
        url=target,
        host=host_key(target),
        attempts=0,
        token=0,
        not_before=0.0,
        redirects=record.redirects + 1,
        dont_filter=record.dont_filter or (named in on_the_way and target not in trail),
        validators=None,
        extras=Extras(method, headers, body, extras.callback, {**extras.meta, REDIRECT_URLS: trail}, extras.cb_kwargs),
    )


def _headers_after(headers: Mapping[str, str], *, other_host: bool, body_gone: bool) -> dict[str, str]:
    """Leave out what another host must not see, and what described a body that is gone (RFC 9110 §15.4)."""
    return {
        name: value
        for name, value in headers.items()
        if not (other_host and name.lower() in SECRETS) and not (body_gone and name.lower().startswith("content-"))
    }


def callback_of(spider: object, record: UrlRecord) -> Callable[..., Any]:
    """Return the method of the spider that handles the record. Raises `BadSpider`."""
    name = record.extras.callback if record.extras else ""
    callback = getattr(spider, name or "parse", None)
    if not callable(callback):
        raise BadSpider(f"{type(spider).__name__} has no callback {name!r}")
    return callback  # type: ignore[no-any-return]


def _storable(record: UrlRecord) -> UrlRecord:
    """Return the record if it comes back from the store as it went in. Raises `BadSpider`."""
    try:
        known_time = 0 <= record.not_before <= NOT_BEFORE_MAX
        msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=UrlRecord)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise BadSpider(f"the request for {record.url} cannot be stored: {error}") from error
    if not known_time:
        raise BadSpider(f"the request for {record.url} has not_before={record.not_before}: write unix seconds")
    return record


def _in_its_segment(record: UrlRecord, naming: Naming) -> UrlRecord:
    """Return the record in the segment of the time it is due at, where there is one."""
    segment = naming.segments.of_request(record.segment, record.not_before)
    return record if segment == record.segment else msgspec.structs.replace(record, segment=segment)


def _with_params(url: str, params: Mapping[str, str]) -> str:
    if not params:
        return url
    address, hash_, fragment = url.partition("#")
    return address + ("&" if "?" in address else "?") + urlencode(params, doseq=True) + hash_ + fragment


def _extras(request: Request, spider: object) -> Extras | None:
    callback = _callback_name(request.callback, spider)
    plain = request.method == "GET" and not (request.headers or request.body or request.meta or request.cb_kwargs)
    if plain and not callback:
        return None
    _check_data(request)
    return Extras(
        request.method.upper(),
        dict(request.headers),
        request.body,
        callback,
        dict(request.meta),
        dict(request.cb_kwargs),
    )


def _callback_name(callback: Any, spider: object) -> str:
    if callback is None or callback == "parse":
        return ""
    name = callback if isinstance(callback, str) else getattr(callback, "__name__", "")
    if not callable(getattr(spider, name, None)):
        message = f"the callback {name or callback!r} is not a method of {type(spider).__name__}"
        raise BadSpider(message + ", so it could not be found again after a restart: make it one")
    return "" if name == "parse" else name


def _check_data(request: Request) -> None:
    for name in ("meta", "cb_kwargs"):
        for key, value in getattr(request, name).items():
            try:
                msgspec.msgpack.encode(value)
            except (TypeError, ValueError, OverflowError) as error:
                message = f"{name}[{key!r}] of {request.url} holds a {type(value).__name__}, which cannot be stored"
                raise BadSpider(message + ": use numbers, strings, bytes, lists and dicts") from error
