"""Reports the outcomes of one process to the pool script, in batches.

The script stores only what concerns a proxy on all targets, such as latency and failed connections.
"""

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
"""Seconds between two reports. An outcome that blames the proxy is sent at once."""

PROXIES_MAX = 10_000
"""Maximum number of proxies with unsent outcomes. Outcomes of further proxies are dropped."""

OUTCOMES_MAX = 16
"""A report contains the last OUTCOMES_MAX outcomes of a proxy. Of the older outcomes, it contains the last
OUTCOMES_MAX that have a latency, because only the first request of a connection has one.
"""

BUFFER_MAX = 4 * OUTCOMES_MAX
"""When a proxy has this many unsent outcomes, those that the report would not contain are dropped."""

PROXY = Blame.PROXY


class OutcomeReporter:
    """Collects outcomes. `send` sends reports by proxy key; `draw` returns a random number (0 to 1)."""

    def __init__(self, send: Callable[[Mapping[str, Any]], Awaitable[None]], draw: Callable[[], float]) -> None:
        self._send = send
        self._draw = draw
        self._outcomes: dict[str, list[Outcome]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def record(self, key: str, outcomes: Sequence[Outcome]) -> None:
        """Raises `StateError` if the outcomes must be sent at once and sending fails."""
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
        """Raises `StateError`."""
        recorded, self._outcomes = self._outcomes, {}
        for outcomes in recorded.values():
            _drop_old(outcomes)
        if recorded:
            reports = {key: {"outcomes": outcomes, "draw": self._draw()} for key, outcomes in recorded.items()}
            await self._send(reports)

    async def close(self) -> None:
        """Send the remaining outcomes now. If sending fails, drop them."""
        self._closing.set()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        with suppress(StateError):
            await self.flush()

    async def _flush_soon(self) -> None:
        # A loop: `record` starts no second task during a flush, and `close` waits for this task only.
        try:
            while self._outcomes:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), FLUSH_S)
                await self.flush()
        except StateError as error:
            log.warning("proxy outcomes were not reported: %s", error)
        finally:
            self._flushing = None


def _drop_old(outcomes: list[Outcome]) -> None:
    outcomes[:-OUTCOMES_MAX] = [each for each in outcomes[:-OUTCOMES_MAX] if each.latency_s is not None][-OUTCOMES_MAX:]
