"""Signs of life of a process, from a thread of their own: a main thread or loop that is blocked is not a death."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread


class Heartbeat:
    """Calls `beat` whenever `due_s` (seconds until the next beat) is 0 or less, until it is stopped.

    `pause` sleeps until then, for at most the seconds it is given. All three are called in the thread of the heartbeat
    and handle their own errors.
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
        """Beat no more."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        """Wait for a beat that is under way."""
        if self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            due_s = self._due_s()
            if due_s > 0:
                self._pause(due_s)
            else:
                self._beat()
