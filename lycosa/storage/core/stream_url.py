"""The address of a Redis stream as an output: a Redis address (`core.redis_url`) with ?stream=NAME[&maxlen=N]."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core import redis_url
from lycosa.core.errors import UsageError

NAME_MAX = 200
LENGTH_MAX = 10**15
RESERVED_PREFIX = "lycosa:"


class StreamAddress(NamedTuple):
    """`text` is the address for messages and the state: without secrets, and with no options but those that name the
    stream.

    The stream keeps about `maxlen` entries, at least so many; 0 for no limit.
    """

    text: str
    server: redis_url.RedisAddress
    stream: str
    maxlen: int


def is_address(output: object) -> bool:
    """Return whether an output is an address, and not a file."""
    return isinstance(output, str) and "://" in output


def read_address(url: str) -> StreamAddress:
    """Parse an address. Raises `UsageError`, whose text does not contain the password."""
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
    text = f"{server.text}?{database}stream={name}"
    return StreamAddress(text, server, name, _maxlen(server.text, server.extra.get("maxlen")))


def _name(server: str, name: str) -> str:
    if name.startswith(RESERVED_PREFIX):
        raise UsageError(
            f"{server}: names that begin with {RESERVED_PREFIX} are reserved for crawls: give the stream another name"
        )
    if name and len(name) <= NAME_MAX and name.isprintable() and not set(name) & set("{}"):
        return name
    raise UsageError(f"{server}: name the stream, {server}?stream=NAME (no braces, at most {NAME_MAX} characters)")


def _maxlen(server: str, text: str | None) -> int:
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= LENGTH_MAX:
        return int(text)
    raise UsageError(f"{server}: maxlen={text:.40} is not a valid number of entries; write maxlen=1000000")
