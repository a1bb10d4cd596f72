"""The rules of the HTTP cache."""

from __future__ import annotations

import msgspec


class StoredResponse(msgspec.Struct, array_like=True, frozen=True):
    """A response as a cache keeps it: its body decompressed, its header fields in order.

    `requested_at` and `received_at` (unix seconds) are when the request was sent, and when this was received or last
    confirmed by a 304. `vary` holds what the request said in the fields that the response names in Vary, by their
    lower-case names. Fields are only ever appended.
    """

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    requested_at: float
    received_at: float
    vary: dict[str, str] = {}
    ip: str = ""
    http_version: str = ""
