"""The Redis server or cluster of a stream: what it must be like, scripts that are run there, errors made ours.

Calls block; they are made again while the server is away or full, for a bounded time: the scripts know a call that they
have answered before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from lycosa.core.errors import LycosaError, StorageFull, UsageError
from lycosa.infra.redis import server as driver
from lycosa.storage.core.stream_url import StreamAddress

ANSWER_MAX_S = 5.0
"""A server that says nothing for so long is taken for gone, and the call is made again."""

AWAY_MAX_S = 60.0
"""A server that is away (restarted, or a replica takes over) is waited for so long."""

FULL_MAX_S = 600.0
"""One that has reached its maxmemory is waited for so long: consumers may make room."""

JOIN_MAX_S = 2.0
"""One that is away when the crawl begins may have another address."""

PAUSE_S = 0.1

Say = Callable[[str], None]


class StreamServer:
    """The server of one stream. Raises `UsageError`, `StorageFull` or `StorageError`; `say` hears why it waits."""

    def __init__(self, address: StreamAddress, say: Say) -> None:
        self._address = address
        self._say = say
        self._client: Any = None

    def connect(self, *, sync: bool) -> None:
        """Connect, and refuse a server that may lose entries."""
        address = self._address
        driver.package_redis()

        def look() -> None:
            self._client = driver.blocking_client(driver.look(address.server, ANSWER_MAX_S), ANSWER_MAX_S)
            where = {}
            if driver.everywhere(self._client):
                where = {"target_nodes": self._client.get_node_from_key(address.stream)}
            for section in ("server", "memory"):
                driver.refuse_unfit(address.place, self._client.info(section, **where), "a stream")
            if sync and not driver.keeps_at_once(self._client, where):
                raise UsageError(f"{address.place}: --sync needs a server with appendonly yes, appendfsync always")

        self._patiently(look, threading.Event(), away_max_s=JOIN_MAX_S)

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any], hurry: threading.Event) -> list[Any]:
        """Return what a script replies. While the server is away or full, try again, until told to `hurry`."""

        def evaluate() -> list[Any]:
            return driver.evaluate(self._client, "lycosa.storage.sinks", script, keys, arguments)

        reply: list[Any] = self._patiently(evaluate, hurry)
        return reply

    def cut(self) -> None:
        """Close connections that another thread uses: its call fails."""
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _patiently(self, act: Callable[[], Any], hurry: threading.Event, away_max_s: float = AWAY_MAX_S) -> Any:
        since: dict[type[LycosaError], float] = {}
        while True:
            try:
                done = act()
            except driver.errors() as error:
                ours = driver.ours(self._address.place, error, tls=self._address.server.tls, what="stream=")
                now, away_s = monotonic(), away_max_s if driver.passes(error) else 0.0
                most_s = FULL_MAX_S if isinstance(ours, StorageFull) else away_s
                first = type(ours) not in since
                if hurry.is_set() or now - since.setdefault(type(ours), now) >= most_s:
                    raise ours from error
                if first and most_s > JOIN_MAX_S:
                    self._say(f"{ours}: the crawl waits for it, {most_s:g} s at most")
            else:
                if since and most_s > JOIN_MAX_S:
                    self._say(f"{self._address.place}: the crawl goes on")
                return done
            hurry.wait(PAUSE_S)
