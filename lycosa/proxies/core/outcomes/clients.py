"""Judges a proxy by the responses and errors of other HTTP clients.

Responses are read by their attributes: `status_code` (requests, httpx, curl_cffi) or `status` (aiohttp, Lycosa),
`headers`, `url`, and `content` or `body` if already read. Exceptions are identified by the names of their classes and
base classes, so that no client has to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

from lycosa.core.errors import FetchError, UsageError
from lycosa.proxies.core.outcomes.outcome import LOGIN_STATUSES, Blame, Outcome, OutcomeRule, judge, judge_error

BLAMES = {
    # the connection to the proxy, or the proxy itself
    "ProxyError": Blame.PROXY,  # requests, httpx, curl_cffi
    "ClientProxyConnectionError": Blame.PROXY,  # aiohttp
    "ConnectTimeout": Blame.PROXY,  # requests, httpx
    "ConnectError": Blame.PROXY,  # httpx
    "ClientConnectorError": Blame.PROXY,  # aiohttp
    "ConnectionTimeoutError": Blame.PROXY,  # aiohttp
    "ConnectionRefusedError": Blame.PROXY,
    # our own side
    "PoolTimeout": Blame.NOBODY,  # httpx
    "InvalidURL": Blame.NOBODY,
    # behind the proxy, or at an unknown point
    "TimeoutException": Blame.MISS,  # httpx
    "Timeout": Blame.MISS,  # requests
    "TimeoutError": Blame.MISS,  # Python, and so asyncio and aiohttp
    "SSLError": Blame.MISS,  # Python, requests
    "ClientSSLError": Blame.MISS,  # aiohttp
    "TransportError": Blame.MISS,  # httpx
    "ConnectionError": Blame.MISS,  # Python, requests
    "ChunkedEncodingError": Blame.MISS,  # requests
    "IncompleteRead": Blame.MISS,  # http.client
    "IncompleteReadError": Blame.MISS,  # asyncio
    "ClientConnectionError": Blame.MISS,  # aiohttp
    "ClientPayloadError": Blame.MISS,  # aiohttp
    "HTTPException": Blame.MISS,  # http.client
}
"""By the name of the exception's class, or else of its nearest base class."""

PROXY_ERRORS = {"ProxyError", "ClientHttpProxyError"}
CONNECT_STATUS = re.compile(r"(?:^|Tunnel connection failed: )(\d{3})\b")
"""Finds the status of the response to CONNECT in error messages of httpx and requests; errors of aiohttp have it in
`status`.
"""

LATENCY_MAX_S = 3600.0
CAUSES_MAX = 5


def outcome_of_response(
    response: Any,
    *,
    body: bytes | None = None,
    rules: Sequence[OutcomeRule] = (),
    now: float = 0.0,
    latency_s: float | None = None,
) -> Outcome:
    """Return the outcome of a response or a bare status. Raises `UsageError` for anything else."""
    status = _status(response)
    headers = getattr(response, "headers", None)
    fields = {str(name).lower(): str(value) for name, value in _items(headers)}
    locations = [str(getattr(response, "url", "") or "")]
    if fields.get("location"):
        locations.append(urljoin(locations[0], fields["location"]))
    content = _body(response) if body is None else body
    latency_s = latency_of(response) if latency_s is None else latency_s
    return judge(status, fields, content, locations=locations, rules=rules, now=now, latency_s=latency_s)


def latency_of(response: Any) -> float | None:
    """Return the latency measured by Lycosa, or the time until the headers (requests) or the body (httpx) came."""
    try:
        found = getattr(response, "latency_s", None) or getattr(response, "elapsed", None)
    except RuntimeError:  # httpx: the body is not read yet
        return None
    if found is None:
        found = getattr(getattr(response, "timings", None), "first_byte_s", None)
    seconds = found.total_seconds() if isinstance(found, timedelta) else found
    is_time = isinstance(seconds, int | float) and 0 < seconds <= LATENCY_MAX_S
    return float(seconds) if is_time else None  # type: ignore[arg-type]


def outcome_of_error(error: BaseException, latency_s: float | None = None) -> Outcome | None:
    """Return the outcome of an exception; None if it says nothing about the proxy."""
    for each in _causes(error):
        if isinstance(each, FetchError):
            return judge_error(each, latency_s)
        for name in (kind.__name__ for kind in type(each).__mro__):
            if name in PROXY_ERRORS and (status := _connect_status(each)):
                return Outcome(_blame_of_connect(status), f"proxy answered {status}", None, latency_s)
            if name in BLAMES:
                return Outcome(BLAMES[name], type(each).__name__, None, latency_s)
    return None


def _status(response: Any) -> int:
    for status in (response, getattr(response, "status_code", None), getattr(response, "status", None)):
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 999:
            return int(status)
    raise UsageError(f"{type(response).__name__} is not a response: report a response, its status, or an exception")


def _body(response: Any) -> bytes:
    """Return the body if it has been read. Reading it here may block or fail."""
    if getattr(response, "_content", b"") is False or getattr(response, "is_stream_consumed", True) is False:
        return b""  # requests, httpx: not read yet
    for name in ("content", "body"):
        found = getattr(response, name, None)
        if isinstance(found, bytes):
            return found
    return b""


def _connect_status(error: BaseException) -> int:
    status = getattr(error, "status", 0)
    found = CONNECT_STATUS.search(str(error))
    return status if isinstance(status, int) and status else int(found[1]) if found else 0


def _blame_of_connect(status: int) -> Blame:
    # A proxy that could not reach the site is not to blame; one that refuses the login is.
    return Blame.PROXY if status in LOGIN_STATUSES else Blame.MISS


def _items(headers: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(headers, Mapping) or hasattr(headers, "items"):
        yield from headers.items()


def _causes(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
