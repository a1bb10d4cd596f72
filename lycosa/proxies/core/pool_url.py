"""Parses the address of a proxy pool.

    memory:                             in the memory of this process; lost when the process ends
    DIR                                 in a folder: durable, shared by the processes of a machine
    redis://HOST:6379/0?pool=NAME       on a Redis server, shared by machines; `core.redis_url` has all forms

Without ?pool= the name is "default".
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from lycosa.core import redis_url
from lycosa.core.errors import UsageError

MEMORY = "memory:"
OPTION, DEFAULT = "pool", "default"
NAME_MAX = 100
FOLDER_MAX = 4_000
"""In characters: operating systems accept 4,096 bytes."""

PART_MAX = 255
"""Bytes of one component of a path."""


class PoolAddress(NamedTuple):
    """The `folder` of a pool, or the `url` of its server and its `name` there; all are "" for memory.

    `text` is the address for messages, without the password.
    """

    text: str
    folder: str = ""
    url: str = ""
    name: str = ""

    def __repr__(self) -> str:
        return f"PoolAddress({self.text!r})"


def parse_pool_address(address: str) -> PoolAddress:
    """Parse an address. Raises `UsageError`; the message does not contain a password."""
    if address == MEMORY:
        return PoolAddress(MEMORY)
    if not redis_url.is_redis_url(address):
        if not address or "://" in address or address.startswith(MEMORY) or "\0" in address:
            shown = address.rpartition("@")[2].partition("?")[0]
            raise UsageError(f"{shown!r} is not a pool of proxies: write memory:, a folder, or redis://HOST:6379/0")
        if len(address) > FOLDER_MAX or any(
            len(name.encode("utf-8", "replace")) > PART_MAX for name in address.split("/")
        ):
            raise UsageError(f"{address[:40]!r}... is not a pool of proxies: the name is too long")
        return PoolAddress(address, folder=address)
    read = redis_url.parse_redis_url(address, extra=(OPTION,))
    name = read.extra.get(OPTION, DEFAULT)
    if not (0 < len(name) <= NAME_MAX and name.isprintable()) or set(name) & set("{}/"):
        raise UsageError(
            f"{read.text}: {OPTION}={name:.{NAME_MAX}} is not a valid name: write at most {NAME_MAX} "
            "characters, none of {}/"
        )
    server, _, query = address.partition("?")
    options = urlencode([(key, value) for key, value in parse_qsl(query, keep_blank_values=True) if key != OPTION])
    url = f"{server}?{options}" if options else server
    return PoolAddress(f"{read.text}?{OPTION}={name}", url=url, name=name)
