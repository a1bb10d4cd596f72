"""The server of a Redis stream: its connection and its scripts.

Calls block. They are retried for a limited time while the server is down or full: the scripts recognise repeated calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import Event
from typing import Any

from lycosa.infra.redis import server
from lycosa.infra.redis.driver import redis_package
from lycosa.infra.redis.scripts import LuaScript
from lycosa.infra.redis.server import RedisServer, Report, RetryLimits
from lycosa.storage.core.stream_url import StreamAddress

FIELDS = 4
"""Number of arguments of an entry: key, segment, url, item."""


class StreamServer(RedisServer):
    """Raises `UsageError`, `StorageFull` or `StorageError`."""

    def __init__(self, address: StreamAddress, report: Report) -> None:
        super().__init__(address.server, report, subject="a stream", option="stream=", text=address.text)
        self._stream = address.stream
        self._client: Any = None

    def connect(self, *, sync: bool) -> None:
        """Refuses a server that may lose entries."""
        redis_package()
        sync_option = "--sync" if sync else ""
        self._client = self.retry_blocking(
            lambda: self.blocking_client(self._stream, sync_option=sync_option), RetryLimits(server.JOIN_MAX_S)
        )

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any], stop: Event) -> list[Any]:
        """Return the reply of a script. Once `stop` is set, failed calls are not retried."""
        limits = RetryLimits(server.RECONNECT_MAX_S, server.FULL_MAX_S)
        reply = self.retry_blocking(lambda: _script(script).run(self._client, keys, arguments), limits, stop)
        return [reply[0].decode(), *reply[1:]]

    def disconnect(self) -> None:
        """Close the connections. If another thread uses them, its call fails."""
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        self.disconnect()
        self._client = None


@cache
def _script(name: str) -> LuaScript:
    constants = {"FIELDS": FIELDS}
    return LuaScript("lycosa.storage.sinks", ("common", name), constants, key_names=("STREAM", "WRITER", "BATCHES"))
