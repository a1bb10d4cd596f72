"""A queue object as a member of a queue on Redis: its calls, its heartbeat, and the wake-ups of its waiting threads.

A separate thread waits for wake-ups and sends a heartbeat every BEAT_S, even while the main thread is blocked. A member
that is silent for SILENT_MAX_S is declared dead by others, and its leased items are returned. If it is still alive,
it continues as a new member. A call whose reply was lost is repeated. Each call has a slot and a number, by which the
server recognizes a repeated call and does not run it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from threading import Condition, RLock
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from lycosa.core.errors import LycosaError
from lycosa.infra.redis.heartbeat import Heartbeat
from lycosa.queues.redis.server import QueueServer, refusal

VERSION = 1
MEMBERS_MAX = 10_000
BEAT_S = 0.25
SILENT_MAX_S = 1.4
"""Silence after which a member is declared dead: the items of a killed process are returned within 2 s."""
GAP_MAX_S = 1.0
"""If no member has sent a heartbeat for this long, the server is assumed to have been down."""
RECOUNT_S = 2.0
"""Time between two comparisons of the leases on the server with the leases that this member holds."""
REPLY_KEPT_S = 120.0
"""How long the replies to a dead member are kept."""
LEAVE_MAX_S = 1.0
FAILED_PAUSE_S = 0.05

Read = TypeVar("Read")


class QueueFormat(NamedTuple):
    """An existing queue must have the same `order` and `codec`. A `maxsize` of None leaves the maximum unchanged."""

    order: str
    codec: str
    maxsize: int | None


@dataclass(slots=True)
class CallSlot:
    """A slot for one call at a time: the numbers of its last call, and of the last call whose reply arrived."""

    index: int
    number: int = 0
    arrived: int = 0


class QueueMember:
    """One open queue object. Raises `ValueError` once it is closed, and the errors of `QueueServer`."""

    def __init__(self, server: QueueServer, expected: QueueFormat) -> None:
        self._server = server
        self._expected = expected
        self.closed = False
        self._incarnation = b""
        """Distinguishes this queue from a later queue of the same name, created after the server was emptied."""
        self._reset()
        self._join("")
        _members.add(self)

    def _reset(self) -> None:
        self._name = ""
        self._slots: list[CallSlot] = []
        self._free: list[CallSlot] = []
        self._held: set[str] = set()
        self.wakeup_count = 0
        self._sleepers = 0
        self._changed = Condition(RLock())
        self._lock = RLock()
        self._heartbeat: Heartbeat | None = None
        self._beat_at = self._recount_at = 0.0
        self._failed = False

    def call(self, script: str, *arguments: Any, read: Callable[[list[Any]], Read], lease: bool = False) -> Read:
        """Run a script exactly once, even if the connection is lost. Return the result of `read` for its reply.

        If `read` raises or is never called, the items in the reply go back to the queue.
        """
        while True:
            name = self._joined_name()
            slot = self._free_slot()
            token = f"{slot.index}.{slot.number + 1}"
            if lease:
                self._held.add(token)
            slot.number += 1  # after `_held`: a heartbeat that counts this call must report its lease, too
            kept = False
            try:
                reply = self._server.run(script, name, slot.index, slot.number, slot.arrived, *arguments)
                if reply[0] not in {"unknown member", "leased again"}:
                    result = self._read(reply, read, name, slot)
                    slot.arrived = slot.number
                    kept = reply[0] == "ok"
                    return result
            finally:
                if not kept:
                    self._held.discard(token)
                self._free.append(slot)
            if reply[0] == "unknown member":
                self._join(name)

    def ask(self, script: str, *arguments: Any) -> list[Any]:
        """Run a script that may be run twice."""
        while True:
            name = self._joined_name()
            reply = self._server.run(script, name, 0, 0, 0, *arguments)
            if reply[0] != "unknown member":
                return self._checked(reply)
            self._join(name)

    def lease_ended(self, lease: bytes) -> None:
        self._held.discard(lease.split(b":", 2)[1].decode())

    def sleep(self, wakeup_count: int, timeout_s: float) -> None:
        """Sleep until there are more wake-ups than `wakeup_count`, or until the timeout."""
        with self._changed:
            if self.wakeup_count == wakeup_count and not self.closed:
                self._sleepers += 1
                try:
                    self._changed.wait(timeout_s)
                finally:
                    self._sleepers -= 1

    def close(self) -> None:
        """Leave the queue: leased items are returned, waiting threads wake up."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._wake_sleepers()
        if not self._name:
            return
        if self._heartbeat:
            self._heartbeat.stop()
        arrived = [slot.arrived for slot in self._slots]
        with suppress(LycosaError):  # if the server does not get the call, the other members declare us dead
            self._server.run("leave", self._name, 0, 0, 0, *arrived, reconnect_max_s=LEAVE_MAX_S)
        if self._heartbeat:
            self._heartbeat.join(LEAVE_MAX_S)
        self._server.close()

    def after_fork(self) -> None:
        """Let a forked child join as a new member on its first call."""
        self._server.forget_connections()
        self._reset()

    def _joined_name(self) -> str:
        self._refuse_closed()
        return self._name or self._join("")

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ValueError(f"the queue {self._server.text} is closed")

    def _free_slot(self) -> CallSlot:
        try:
            return self._free.pop()
        except IndexError:
            with self._lock:
                self._slots.append(CallSlot(len(self._slots)))
                return self._slots[-1]

    def _read(self, reply: list[Any], read: Callable[[list[Any]], Read], name: str, slot: CallSlot) -> Read:
        try:
            return read(self._checked(reply))
        except LycosaError:
            slot.number += 1
            with suppress(LycosaError):
                self._server.run("undo", name, slot.index, slot.number, slot.arrived)
            raise

    def _checked(self, reply: list[Any]) -> list[Any]:
        if reply[0] in {"missing", "newer", "other order", "other codec", "too many"}:
            raise refusal(self._server.text, reply)
        return reply

    def _join(self, old: str) -> str:
        """Join as a new member that replaces `old`, unless another thread has done so."""
        with self._lock:
            self._refuse_closed()
            if self._name != old:
                return self._name
            name, expected, first = token_hex(8), self._expected, not self._incarnation
            maxsize = expected.maxsize if first and expected.maxsize is not None else ""
            bounds = (MEMBERS_MAX, round(SILENT_MAX_S * 1000))
            # Only the first join may create the queue. A queue that is missing later was lost with its items.
            incarnation = token_hex(8) if first else ""
            arguments = (VERSION, expected.order, expected.codec, incarnation, maxsize, *bounds)
            reply = self._server.run("join", name, 0, 0, 0, *arguments, reconnect_max_s=0.0 if first else None)
            self._checked(reply)
            if not first and reply[1] != self._incarnation:
                raise refusal(self._server.text, ["missing"])
            self._incarnation, self._name = reply[1], name
            self._held.clear()
            if self._heartbeat is None:
                label = f"lycosa queue {self._server.queue}"
                self._heartbeat = Heartbeat(label, self._due_s, self._beat, self._wait_for_wakeup)
            self._wake_sleepers()
            return name

    # The thread of the heartbeat ------------------------------------------------------------------------------------

    def _due_s(self) -> float:
        return self._beat_at - monotonic()

    def _beat(self) -> None:
        now = monotonic()
        recount = self._failed or now >= self._recount_at
        self._beat_at = now + BEAT_S
        if recount:
            self._recount_at = now + RECOUNT_S
        bounds = (round(each * 1000) for each in (SILENT_MAX_S, GAP_MAX_S, REPLY_KEPT_S))
        held = self._held_leases() if recount else []
        name = self._name
        try:
            reply = self._server.run("beat", name, 0, 0, 0, *bounds, *held, reconnect_max_s=0.0)
            if reply[0] == "unknown member":
                with suppress(ValueError):  # closed in the meantime
                    self._join(name)
            elif reply[0] != "ok":
                raise refusal(self._server.text, reply)
        except LycosaError:
            self._call_failed()

    def _wait_for_wakeup(self, timeout_s: float) -> None:
        try:
            woken = self._server.wait_for_wakeup(self._name, max(0.01, timeout_s))
        except LycosaError:
            self._call_failed()
            return
        # If no thread sleeps, the thread that waited has continued without this wake-up. Beat now: a heartbeat wakes
        # another member.
        if (woken or self._failed) and not self._wake_sleepers():
            self._beat_at = 0.0
        self._failed = False

    def _call_failed(self) -> None:
        # Woken threads repeat their calls, and raise the error once their own timeout is over.
        self._failed, self._beat_at = True, 0.0
        self._wake_sleepers()
        sleep(FAILED_PAUSE_S)

    def _held_leases(self) -> list[object]:
        """Return the number of slots, the number of each slot's last call, and the leases held.

        The numbers tell the server which leases to check: it does not check leases of later calls.
        """
        numbers = [slot.number for slot in self._slots]
        return [len(numbers), *numbers, *self._held.copy()]

    def _wake_sleepers(self) -> int:
        """Return how many threads were woken."""
        with self._changed:
            self.wakeup_count += 1
            self._changed.notify_all()
            return self._sleepers


_members: WeakSet[QueueMember] = WeakSet()


def _after_fork() -> None:
    for member in list(_members):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)
