"""A queue object's place in a queue on Redis: its calls, its sign of life, and the bell that wakes its sleepers.

One thread of its own waits for the bell and says every BEAT_S that this member lives, so that a main thread that is
blocked is not a death. Of two members that hear of each other, each finds the other dead after SILENT_MAX_S of silence.
A member that was taken for dead goes on as a new one; what it leased has gone back. A call has a slot and a number, so
that the server knows one that is made again because its reply was lost, and does not do it twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from threading import Condition, RLock
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from lycosa.core.errors import LycosaError
from lycosa.queues.redis.server import RETRY_PAUSE_S, Server, refusal

VERSION = 1
MEMBERS_MAX = 10_000
BEAT_S = 0.25
SILENT_MAX_S = 1.4
"""With BEAT_S: what a killed process leased is back in less than 2 s."""
GAP_MAX_S = 1.0
"""When nobody was heard for so long, it was the server that was away."""
RECOUNT_S = 2.0
"""How often the leases on the server are compared with those that are held."""
REPLY_KEPT_S = 120.0
"""How long the replies to a member that was taken for dead are kept."""
LEAVE_MAX_S = 1.0

Read = TypeVar("Read")


class Made(NamedTuple):
    """How the queue is made, or has to be made."""

    order: str
    packing: str
    maxsize: int | None


@dataclass(slots=True)
class Slot:
    """A place for one call at a time. `arrived` is the last call whose reply did."""

    index: int
    number: int = 0
    arrived: int = 0


class Member:
    """See above. Raises `ValueError` once it is closed, and what `Server` raises."""

    def __init__(self, server: Server, made: Made) -> None:
        self._server = server
        self._made = made
        self.closed = False
        self._era = b""
        self._begin()
        self._join("")
        _members.add(self)

    def _begin(self) -> None:
        self._name = ""
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self._held: set[str] = set()
        self._rings = 0
        self._sleepers = 0
        self._changed = Condition(RLock())
        self._turn = RLock()
        self._thread: threading.Thread | None = None

    def call(self, script: str, *arguments: Any, read: Callable[[list[Any]], Read], lend: bool = False) -> Read:
        """Run a script once, whatever happens to the connection, and return what `read` makes of its reply.

        When that raises, or is never reached, what the reply hands out goes back.
        """
        while True:
            name = self._living()
            slot = self._borrow()
            token = f"{slot.index}.{slot.number + 1}"
            if lend:
                self._held.add(token)
            slot.number += 1  # not before: see `_recounted`
            kept = False
            try:
                reply = self._server.run(script, name, slot.index, slot.number, slot.arrived, *arguments)
                if reply[0] not in {"stranger", "again"}:
                    result = self._read(reply, read, name, slot)
                    slot.arrived = slot.number
                    kept = reply[0] == "ok"
                    return result
            finally:
                if not kept:
                    self._held.discard(token)
                self._free.append(slot)
            if reply[0] == "stranger":
                self._join(name)

    def ask(self, script: str, *arguments: Any) -> list[Any]:
        """Run a script that may be run twice."""
        while True:
            name = self._living()
            reply = self._server.run(script, name, 0, 0, 0, *arguments)
            if reply[0] != "stranger":
                return self._accepted(reply)
            self._join(name)

    def release(self, lease: bytes) -> None:
        """A lease has ended."""
        self._held.discard(lease.split(b":", 2)[1].decode())

    @property
    def rings(self) -> int:
        """How often we were woken."""
        return self._rings

    def sleep(self, rings: int, timeout_s: float) -> None:
        """Return at the next ring, at once if there was one after the first `rings`, or in time."""
        with self._changed:
            if self._rings == rings and not self.closed:
                self._sleepers += 1
                try:
                    self._changed.wait(timeout_s)
                finally:
                    self._sleepers -= 1

    def close(self) -> None:
        """Leave: what is leased goes back, sleepers wake."""
        with self._turn:
            if self.closed:
                return
            self.closed = True
        self._ring()
        if not self._name:
            return
        arrived = [slot.arrived for slot in self._slots]
        with suppress(LycosaError):
            self._server.run("leave", self._name, 0, 0, 0, *arrived, patience_s=LEAVE_MAX_S)
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(LEAVE_MAX_S)
        self._server.close()

    def after_fork(self) -> None:
        """Be nobody in a forked child, until the first call: a member of its own then."""
        self._server.forget()
        self._begin()

    def _living(self) -> str:
        self._refuse_closed()
        return self._name or self._join("")

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ValueError(f"the queue {self._server.address.text} is closed")

    def _borrow(self) -> Slot:
        try:
            return self._free.pop()
        except IndexError:
            with self._turn:
                self._slots.append(Slot(len(self._slots)))
                return self._slots[-1]

    def _read(self, reply: list[Any], read: Callable[[list[Any]], Read], name: str, slot: Slot) -> Read:
        try:
            return read(self._accepted(reply))
        except LycosaError:
            slot.number += 1
            with suppress(LycosaError):
                self._server.run("undo", name, slot.index, slot.number, slot.arrived)
            raise

    def _accepted(self, reply: list[Any]) -> list[Any]:
        if reply[0] in {"gone", "newer", "order", "packing", "crowd"}:
            raise refusal(self._server.address.text, reply)
        return reply

    def _join(self, old: str) -> str:
        """Become a member, unless another thread has done it for the one that was `old`."""
        with self._turn:
            self._refuse_closed()
            if self._name != old:
                return self._name
            name, made, first = token_hex(8), self._made, not self._era
            maxsize = made.maxsize if first and made.maxsize is not None else ""
            bounds = (MEMBERS_MAX, round(SILENT_MAX_S * 1000))
            era = token_hex(8) if first else ""
            patience_s = 0.0 if first else None
            reply = self._accepted(
                self._server.run(
                    "join",
                    name,
                    0,
                    0,
                    0,
                    VERSION,
                    made.order,
                    made.packing,
                    era,
                    maxsize,
                    *bounds,
                    patience_s=patience_s,
                )
            )
            if not first and reply[1] != self._era:
                raise refusal(self._server.address.text, ["gone"])
            self._era, self._name = reply[1], name
            self._held.clear()
            if self._thread is None:
                label = f"lycosa queue {self._server.address.queue}"
                self._thread = threading.Thread(target=self._live, name=label, daemon=True)
                self._thread.start()
            self._ring()
            return name

    def _live(self) -> None:
        """Say that we live, and listen for the bell, until the queue is closed."""
        pid, next_beat, next_recount, failed = os.getpid(), 0.0, 0.0, False
        while not self.closed and pid == os.getpid():
            name = self._name
            try:
                now = monotonic()
                if now >= next_beat:
                    next_beat = now + BEAT_S
                    recount = failed or now >= next_recount
                    next_recount = now + RECOUNT_S if recount else next_recount
                    self._beat(name, recount)
                rung = self._server.listen(name, max(0.01, next_beat - monotonic()))
                if rung or failed:
                    # Rung for one who sleeps no more: the beat wakes another.
                    next_beat = next_beat if self._ring() else 0.0
                failed = False
            except LycosaError:
                # Sleepers try themselves, and fail in their own time.
                failed, next_beat = True, 0.0
                self._ring()
                sleep(RETRY_PAUSE_S)

    def _beat(self, name: str, recount: bool) -> None:
        bounds = (round(each * 1000) for each in (SILENT_MAX_S, GAP_MAX_S, REPLY_KEPT_S))
        held = self._recounted() if recount else []
        reply = self._server.run("beat", name, 0, 0, 0, *bounds, *held, patience_s=0.0)
        if reply[0] == "stranger":
            with suppress(ValueError):  # closed in the meantime
                self._join(name)
        elif reply[0] != "ok":
            raise refusal(self._server.address.text, reply)

    def _recounted(self) -> list[object]:
        """Return the last call of every slot, and the leases held of those up to it: later ones are not in question."""
        numbers = [slot.number for slot in self._slots]
        return [len(numbers), *numbers, *self._held.copy()]

    def _ring(self) -> int:
        """Wake the sleepers, and return how many there are."""
        with self._changed:
            self._rings += 1
            self._changed.notify_all()
            return self._sleepers


_members: WeakSet[Member] = WeakSet()


def _after_fork() -> None:
    for member in list(_members):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)
