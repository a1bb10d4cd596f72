"""Says that a worker lives, from a thread of its own: a callback that blocks the loop is not a death."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from lycosa.frontiers.redis.scripts import script

BEAT_S = 0.5
"""A quarter of the silence after which a worker is dead."""


class Heart:
    """Beats for one worker in the first partition of its crawl, over a client of its own, which blocks."""

    def __init__(self, client: Any, key: str, worker: str) -> None:
        self._client = client
        self._key = key
        self._worker = worker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lycosa-heart", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._over.set()
        self._thread.join()
        self._client.close()

    def _beat(self) -> None:
        text, checksum = script()
        while not self._over.wait(BEAT_S):
            beat = (1, self._key, "", "beat", self._worker)
            with suppress(RedisError):  # the crawl itself finds out, and waits or gives up
                try:
                    self._client.execute_command("EVALSHA", checksum, *beat)
                except NoScriptError:
                    self._client.execute_command("EVAL", text, *beat)
