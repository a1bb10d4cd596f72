"""What a fetcher brings back. `Request` (`http.core.request`) is what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from lycosa.core.headers import Headers


class Validators(msgspec.Struct, array_like=True, frozen=True):
    """What makes the next request for a URL conditional (RFC 9110 §13.1): its entity tag and Last-Modified as received,
    "" where the host gave none, and when it was fetched last (unix seconds)."""

    etag: str = ""
    modified: str = ""
    fetched_at: float = 0.0


class Timings(NamedTuple):
    """Seconds since the start of the transfer at which each step was complete; 0 for a step that did not happen."""

    name_lookup_s: float = 0.0
    connect_s: float = 0.0
    tls_s: float = 0.0
    first_byte_s: float = 0.0
    total_s: float = 0.0


@dataclass(slots=True)
class Response:
    """What came back: status, headers, the body decompressed but not decoded, and how long each step took.

    `skipped` is true when the caller's `accept` refused the headers, so that the body was not read; `partial` when the
    connection was lost within the body, and the caller wanted what there is. `ip` is that of the host, or "" through a
    proxy. `latency_s` is how long a new connection took to the proxy and through it, handshakes included; None without
    a proxy, and on a kept connection. `refused` is why a pool of proxies takes it for a ban after its last try, or "".
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
