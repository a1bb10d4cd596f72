"""A heartbeat in a thread of its own, which goes on while the main thread or the event loop is blocked."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread


class Heartbeat:
    """Calls `beat` whenever `due_s` (seconds until the next beat) returns 0 or less, until it is stopped.

    `pause` sleeps for at most the given seconds. All three run in the heartbeat's thread, and must not raise.
    """

    def __init__(
        self,
        name: str,
        due_s: Callable[[], float],
        beat: Callable[[], None],
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._due_s = due_s
        self._beat = beat
        self._stopped = Event()
        self._pause = pause or self._stopped.wait
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        if self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            due_s = self._due_s()
            if due_s > 0:
                self._pause(due_s)
            else:
                self._beat()
