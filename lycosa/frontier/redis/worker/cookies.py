"""Cookies that all workers of a crawl share, in its first partition: see `frontier.ports.SharedCookies`.

A change goes out before whatever the worker says next, and is asked for before what was lent is handed over: a page
that was found by a session is fetched within it, whoever fetches it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lycosa.frontier.redis.worker.session import Session

Heard = Callable[[str, bytes], None]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


class RedisCookies:
    """See `frontier.ports.SharedCookies`; every method here is documented there."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last = b"0"
        self._listeners: list[Heard] = []

    def publish(self, jar: str, key: str, cookie: bytes) -> None:
        """Let it go with the next exchange, which partitions other than the first are to wait for."""
        self._session.partitions[0].add("y", f"{jar}\n{key}", _encode((jar, cookie)))
        self._session.first_first = True

    def subscribe(self, on_change: Heard) -> None:
        """Remember whom to tell."""
        self._listeners.append(on_change)
        self._last = b"0"

    async def ask(self) -> None:
        """Tell what changed since this was asked last."""
        first = self._session.partitions[0]
        _, self._last, cookies = await self._session.wire.run(first, "cookies", self._last)
        for told in cookies:
            jar, cookie = _decode(told)
            for heard in self._listeners:
                heard(jar, cookie)
