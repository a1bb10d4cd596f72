"""Reports the outcomes of one process, as far as they concern a proxy on all targets, to the server in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lycosa.core.errors import StateError
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

log = logging.getLogger(__name__)

FLUSH_S = 0.2
"""Outcomes are sent so soon; at once when a proxy could not be reached."""

PROXIES_MAX = 10_000
"""Proxies with unsent outcomes; those of further ones are dropped."""

OUTCOMES_MAX = 16
"""Outcomes sent for a proxy: the last ones, and as many older ones with a latency. Only a new connection has a latency,
and the many requests that follow on it must not push it out."""

BUFFER_MAX = 4 * OUTCOMES_MAX
"""Outcomes kept for a proxy before the older ones are sorted out."""

PROXY = Blame.PROXY


class OutcomeReporter:
    """`send` sends reports by key of the proxy; `draw` returns a random number for each proxy."""

    def __init__(self, send: Callable[[Mapping[str, Any]], Awaitable[None]], draw: Callable[[], float]) -> None:
        self._send = send
        self._draw = draw
        self._outcomes: dict[str, list[Outcome]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def record(self, key: str, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes of one lease. Raises `StateError` when they must be sent at once and that fails."""
        recorded = self._outcomes.get(key)
        if recorded is None and len(self._outcomes) < PROXIES_MAX:
            recorded = self._outcomes[key] = []
        if recorded is not None:
            recorded += outcomes
            if len(recorded) >= BUFFER_MAX:
                _drop_old(recorded)
        if any(outcome.blame is PROXY for outcome in outcomes):
            await self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_soon())

    async def flush(self) -> None:
        """Send all outcomes now. Raises `StateError`."""
        recorded, self._outcomes = self._outcomes, {}
        for outcomes in recorded.values():
            _drop_old(outcomes)
        if recorded:
            reports = {key: {"outcomes": outcomes, "draw": self._draw()} for key, outcomes in recorded.items()}
            await self._send(reports)

    async def close(self) -> None:
        """Send the rest without delay; drop it when that fails."""
        self._closing.set()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        with suppress(StateError):
            await self.flush()

    async def _flush_soon(self) -> None:
        # A loop, as outcomes that come while others are sent start no task: `close` waits for this one.
        try:
            while self._outcomes:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), FLUSH_S)
                await self.flush()
        except StateError as error:
            log.warning("outcomes of proxies were not reported: %s", error)
        finally:
            self._flushing = None


def _drop_old(outcomes: list[Outcome]) -> None:
    outcomes[:-OUTCOMES_MAX] = [each for each in outcomes[:-OUTCOMES_MAX] if each.latency_s is not None][-OUTCOMES_MAX:]
