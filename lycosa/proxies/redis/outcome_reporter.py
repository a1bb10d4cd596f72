"""What the uses of one process say of proxies as such, on its way to a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lycosa.core.errors import StateError
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

log = logging.getLogger(__name__)

HEAR_S = 0.2
"""What was heard is told so soon; that a proxy cannot be reached, at once."""

HEARD_MAX = 10_000
"""Proxies of which something waits to be told; of further ones it is not told."""

EACH_MAX = 16
"""The last outcomes of a proxy, and as many older ones that have a latency: only those of new connections have one, and
the requests that go on through a connection must not push it out."""

PROXY = Blame.PROXY

HELD_MAX = 4 * EACH_MAX
"""So many are kept before the older ones are looked through."""


class Hearing:
    """`tell` tells it; `draw` returns chance for each proxy."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], Awaitable[None]], draw: Callable[[], float]) -> None:
        self._tell_them = tell
        self._draw = draw
        self._heard: dict[str, list[Outcome]] = {}
        self._telling: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def hear(self, key: str, outcomes: Sequence[Outcome]) -> None:
        """Take what a lease has shown. Raises `StateError` when it has to be told and cannot."""
        heard = self._heard.get(key)
        if heard is None and len(self._heard) < HEARD_MAX:
            heard = self._heard[key] = []
        if heard is not None:
            heard += outcomes
            if len(heard) >= HELD_MAX:
                forget_old(heard)
        if any(outcome.blame is PROXY for outcome in outcomes):
            await self.tell()
        elif self._telling is None:
            self._telling = asyncio.create_task(self._tell_soon())

    async def tell(self) -> None:
        """Tell all now. Raises `StateError`."""
        heard, self._heard = self._heard, {}
        for each in heard.values():
            forget_old(each)
        if heard:
            await self._tell_them({key: {"outcomes": each, "draw": self._draw()} for key, each in heard.items()})

    async def close(self) -> None:
        """Tell the rest, if that can be, and at once."""
        self._closing.set()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        with suppress(StateError):
            await self.tell()

    async def _tell_soon(self) -> None:
        """Tell all, and what has come meanwhile: nothing waits without a task that `close` can wait for."""
        try:
            while self._heard:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), HEAR_S)
                await self.tell()
        except StateError as error:
            log.warning("what is known of proxies was not told: %s", error)
        finally:
            self._telling = None


def forget_old(heard: list[Outcome]) -> None:
    """Keep what is told of one proxy."""
    heard[:-EACH_MAX] = [each for each in heard[:-EACH_MAX] if each.latency_s is not None][-EACH_MAX:]
