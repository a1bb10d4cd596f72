"""The response of a fetcher, with its timings and validators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from lycosa.core.headers import Headers


class Validators(msgspec.Struct, array_like=True, frozen=True):
    """The values that make the next request for a URL conditional (RFC 9110 §13.1).

    `etag` and `modified` (Last-Modified) are as received, "" if missing; `fetched_at` is in unix seconds.
    """

    etag: str = ""
    modified: str = ""
    fetched_at: float = 0.0


class Timings(NamedTuple):
    """Seconds from the start of the transfer to the end of each step; 0 for a step that did not happen."""

    name_lookup_s: float = 0.0
    connect_s: float = 0.0
    tls_s: float = 0.0
    first_byte_s: float = 0.0
    total_s: float = 0.0


@dataclass(slots=True)
class HttpResponse:
    """One HTTP response. The body is decompressed, but not decoded.

    `skipped`: the caller's `accept` refused the headers, so the body was not read. `partial`: the connection was lost
    within the body, and the settings allow a truncated body. `ip` is the address of the host, "" through a proxy.
    `latency_s` is the time to connect through the proxy to the host, with handshakes; None without a proxy or on a
    reused connection. `refused`: why the proxy pool counts the last attempt as a ban, or "".
    """

    url: str
    status: int
    headers: Headers
    body: bytes = b""
    timings: Timings = Timings()
    ip: str = ""
    http_version: str = ""
    size_bytes: int = 0
    skipped: bool = False
    partial: bool = False
    latency_s: float | None = None
    refused: str = ""
