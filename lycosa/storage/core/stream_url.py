"""The address of a stream in Redis as an output. Pure.

It is that of a Redis (`core.redis_url`) with ?stream=NAME[&maxlen=N].
"""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core import redis_url
from lycosa.core.errors import UsageError

NAME_MAX = 200
LENGTH_MAX = 10**15
OURS = "lycosa:"


class StreamAddress(NamedTuple):
    """An address, read. `place` is the stream without secrets and options: for messages, and as its identity."""

    place: str
    server: redis_url.RedisAddress
    stream: str
    maxlen: int


def is_address(output: object) -> bool:
    """Tell whether an output is an address, and no file."""
    return isinstance(output, str) and "://" in output


def read_address(url: str) -> StreamAddress:
    """Return what an address says. Raises `UsageError`, without the password."""
    scheme, _, rest = url.partition("://")
    if scheme not in redis_url.MODES:
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise UsageError(f"{shown}: items go to a file, or to a stream in Redis: redis://HOST:6379/0?stream=NAME")
    try:
        server = redis_url.parse_redis_url(url, extra=("stream", "maxlen"))
    except UsageError as error:
        raise UsageError(f"{error} (a stream: redis://HOST:6379/0?stream=NAME)") from None
    name = _name(server.text, server.extra.get("stream", ""))
    database = f"db={server.database}&" if server.socket and server.database else ""
    place = f"{server.text}?{database}stream={name}"
    return StreamAddress(place, server, name, _length(server.text, server.extra.get("maxlen")))


def _name(server: str, name: str) -> str:
    if name.startswith(OURS):
        raise UsageError(f"{server}: names that begin with {OURS} are for crawls: give the stream another one")
    if name and len(name) <= NAME_MAX and name.isprintable() and not set(name) & set("{}"):
        return name
    raise UsageError(f"{server}: say which stream, {server}?stream=NAME (no braces, at most {NAME_MAX} characters)")


def _length(server: str, text: str | None) -> int:
    """Return most entries, 0 for no limit."""
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= LENGTH_MAX:
        return int(text)
    raise UsageError(f"{server}: maxlen={text:.40} is no number of entries; write maxlen=1000000")
