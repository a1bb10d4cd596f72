"""Says that a worker lives, from a thread of its own: a callback that blocks the loop is not a death."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lycosa.frontier.redis.scripts import called, script
from lycosa.infra.redis.server import errors, package_redis

log = logging.getLogger(__name__)

SILENT_S = 2.0
"""As in `frontier/redis/lua/leases.lua`: who was not heard for longer is dead."""

BEAT_S = 0.5
"""A quarter of the silence after which a worker is dead."""

LAST_BEAT_S = 0.3
"""One that is under way at the end gets so long."""

REPORT_S = 1.0
"""A beat takes a report with it when the last one is so long ago."""


class Heart:
    """Beats for one worker in the first partition of its crawl, over a client of its own, which blocks.

    `heard_at` says when that partition last got a call that it answered, by the monotonic clock: it is a sign of life,
    too. `report` makes what the worker tells of itself. Both are called in the thread of the heart.
    """

    def __init__(self, client: Any, key: str, worker: str, heard_at: Callable[[], float]) -> None:
        self._client = client
        self._key = key
        self._worker = worker
        self._over = threading.Event()
        self._heard_at = heard_at
        self._beaten_at = self._answered_at = time.monotonic()
        self._reported_at = self._beaten_at - BEAT_S
        self.report: Callable[[], bytes] = bytes
        self._thread = threading.Thread(target=self._beat, name="lycosa-heart", daemon=True)
        self._thread.start()

    def is_doubtful(self) -> bool:
        """Tell whether this worker may have been given up: it was not heard for long, as far as it was answered."""
        return time.monotonic() > max(self._answered_at, self._heard_at()) + SILENT_S

    def stop(self) -> None:
        """Beat no more. A beat whose answer does not come is cut off: its server may be away."""
        self._over.set()
        self._thread.join(LAST_BEAT_S)
        self._client.close()
        self._thread.join(LAST_BEAT_S)

    def _beat(self) -> None:
        while not self._over.wait(self._rest_s()):
            if self._rest_s() > 0:  # heard meanwhile
                continue
            self._beaten_at = time.monotonic()
            try:
                with suppress(*errors()):  # the crawl itself finds out, and waits or gives up
                    if self._say("beat", self._told())[0] == b"ok":
                        self._answered_at = self._beaten_at
            except Exception:  # what a driver may raise in the middle of a failover: the next one may not
                log.exception("no sign of life of this worker")

    def _say(self, command: str, *arguments: Any) -> list[Any]:
        (text, checksum), call = script(), called(self._key, "", command, self._worker, *arguments)
        try:
            return self._client.execute_command("EVALSHA", checksum, *call)  # type: ignore[no-any-return]
        except package_redis().exceptions.NoScriptError:
            return self._client.execute_command("EVAL", text, *call)  # type: ignore[no-any-return]

    def _rest_s(self) -> float:
        quiet_since = max(self._beaten_at, self._heard_at())
        return max(0.0, min(quiet_since + BEAT_S, self._reported_at + REPORT_S) - time.monotonic())

    def _told(self) -> bytes:
        """Return what the next beat is to tell, if it is time for that."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_S:
            return b""
        self._reported_at = now
        try:
            return self.report()
        except Exception:  # a worker that cannot tell of itself lives all the same
            log.exception("no report of this worker")
            return b""
