"""Cookies shared by all workers of a crawl, stored in the first partition.

A worker sends changes before its other reports, and reads changes before it hands out new leases. So a page found in a
login session is fetched in that session by any worker.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lycosa.frontier.redis.worker.session import Session

OnChange = Callable[[str, bytes], None]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


class RedisCookies:
    """Implements `frontier.ports.SharedCookies`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last_change = b"0"
        self._subscribers: list[OnChange] = []

    def publish(self, jar: str, key: str, cookie: bytes) -> None:
        self._session.partitions[0].add("cookie", f"{jar}\n{key}", _encode((jar, cookie)))
        self._session.first_partition_first = True

    def subscribe(self, on_change: OnChange) -> None:
        self._subscribers.append(on_change)
        self._last_change = b"0"  # the new subscriber needs all changes since the crawl began

    async def update(self) -> None:
        first = self._session.partitions[0]
        _, self._last_change, cookies = await self._session.calls.run(first, "cookies", self._last_change)
        for packed in cookies:
            jar, cookie = _decode(packed)
            for on_change in self._subscribers:
                on_change(jar, cookie)
