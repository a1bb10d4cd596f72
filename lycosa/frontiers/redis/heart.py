"""Says that a worker lives, from a thread of its own: a callback that blocks the loop is not a death."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from lycosa.frontiers.redis.scripts import script

BEAT_S = 0.5
"""A quarter of the silence after which a worker is dead."""


class Heart:
    """Beats for one worker, by its name in each of the partitions, over a client of its own, which blocks."""

    def __init__(self, client: Any, names: Sequence[tuple[str, str]]) -> None:
        self._client = client
        self._names = names
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
            for key, worker in self._names:
                with suppress(RedisError):  # the crawl itself finds out, and waits or gives up
                    try:
                        self._client.execute_command("EVALSHA", checksum, 1, key, "", "beat", worker)
                    except NoScriptError:
                        self._client.execute_command("EVAL", text, 1, key, "", "beat", worker)
