"""Packs commands in C with hiredis, because redis-py packs them in Python, and commands of a crawl are long.

Connections to a cluster still pack with redis-py.
"""

from __future__ import annotations

from typing import Any

from lycosa.core.errors import UsageError
from lycosa.infra.redis.driver import MISSING

try:
    import hiredis
except ImportError as error:
    raise UsageError(MISSING) from error


def pack_in_c(client: Any) -> None:
    """Make new connections of this client pack commands in C."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        pool.connection_class = _packing_in_c(pool.connection_class)


def _packing_in_c(connection: type[Any]) -> type[Any]:
    class HiredisConnection(connection):  # type: ignore[misc]
        def pack_command(self, *arguments: Any) -> list[bytes]:
            # redis-py splits commands of two words ("CONFIG GET"), hiredis does not.
            if isinstance(arguments[0], str) and " " not in arguments[0]:
                return [hiredis.pack_command(arguments)]
            return super().pack_command(*arguments)  # type: ignore[no-any-return]

    return HiredisConnection
