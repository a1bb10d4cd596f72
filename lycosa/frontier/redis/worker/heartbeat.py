"""The heartbeat of a worker, in the first partition of its crawl."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lycosa.frontier.redis.scripts import SILENT_S, WORKER_SCRIPT, keys_of
from lycosa.infra.redis.driver import driver_errors
from lycosa.infra.redis.heartbeat import Heartbeat

log = logging.getLogger(__name__)

BEAT_S = SILENT_S / 4

LAST_BEAT_S = 0.3
"""Seconds that an ending worker waits for a beat in progress."""

REPORT_S = 1.0


class WorkerHeartbeat:
    """Beats for one worker, in a thread with a separate blocking client.

    `answered_at` returns the time (monotonic seconds) at which this worker sent the last exchange that the first
    partition has answered. Such an exchange counts as a beat. `report` builds the worker's report. Both are called in
    the heartbeat thread; `answered_at` is also called by `may_be_expired`.
    """

    def __init__(self, client: Any, key: str, worker: str, answered_at: Callable[[], float]) -> None:
        self._client = client
        self._key = key
        self._worker = worker
        self._partition_answered_at = answered_at
        self._beaten_at = self._answered_at = time.monotonic()
        self._reported_at = self._beaten_at - BEAT_S
        self.report: Callable[[], bytes] = bytes
        self._heartbeat = Heartbeat("lycosa-heartbeat", self._due_s, self._beat)

    def may_be_expired(self) -> bool:
        """Whether this worker may have expired: the server has not answered for SILENT_S."""
        return time.monotonic() > max(self._answered_at, self._partition_answered_at()) + SILENT_S

    def stop(self) -> None:
        """Stop beating. A beat without an answer within LAST_BEAT_S is aborted: the server may be down."""
        self._heartbeat.stop()
        self._heartbeat.join(LAST_BEAT_S)
        self._client.close()
        self._heartbeat.join(LAST_BEAT_S)

    def _beat(self) -> None:
        self._beaten_at = time.monotonic()
        try:
            with suppress(*driver_errors()):  # the calls of the worker get the same error, and retry or fail
                arguments = ("", "beat", self._worker, self._report_if_due())
                if WORKER_SCRIPT.run(self._client, keys_of(self._key), arguments)[0] == b"ok":
                    self._answered_at = self._beaten_at
        except Exception:  # a driver may raise anything during a failover: the next beat may succeed
            log.exception("the heartbeat of this worker failed")

    def _due_s(self) -> float:
        silent_since = max(self._beaten_at, self._partition_answered_at())
        return min(silent_since + BEAT_S, self._reported_at + REPORT_S) - time.monotonic()

    def _report_if_due(self) -> bytes:
        now = time.monotonic()
        if now - self._reported_at < REPORT_S:
            return b""
        self._reported_at = now
        try:
            return self.report()
        except Exception:  # the worker is alive, even if its report fails
            log.exception("the report of this worker failed")
            return b""
