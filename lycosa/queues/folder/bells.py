"""How the processes that share a queue wake each other, and notice at once when one of them has died.

Every member has a named pipe in `bells/`, reads it and sleeps on it; the others write a byte to ring. The operating
system closes the pipe with the process, however that ends, and tells all who hold the other end. So a bell is a
doorbell and a sign of life: no polling, no time-out, no heartbeat. Of several threads that wait one sleeps on the pipe
and wakes the rest. Linux (epoll).
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Condition, get_ident

RING = b"!"
DRAIN_BYTES = 65536


class Bells:
    """The bell of one member and the cords to the others. Raises `OSError` when the folder cannot have pipes."""

    def __init__(self, folder: Path, me: int) -> None:
        folder.mkdir(exist_ok=True)
        self._path = folder / str(me)
        self._folder = folder
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path)
        self._me = me
        self._pipe = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # With a writer of our own the pipe never reports that the last one has hung up.
        self._cords = {me: os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)}
        self._members = {-1: me}
        self._epoll = select.epoll()
        self._epoll.register(self._pipe, select.EPOLLIN)
        self._rings = 0
        self._sleeper = 0
        self._leaving = False
        self._changed = Condition()

    def watch(self, members: Collection[int]) -> None:
        """These are the members now: those that are new get a cord, those that left lose it."""
        for member in set(self._cords) - set(members) - {self._me}:
            self._drop(member)
        for member in set(members) - set(self._cords):
            cord = _cord(self._folder / str(member))
            self._cords[member] = cord
            if cord >= 0:
                self._members[cord] = member
                self._epoll.register(cord, 0)

    def dead(self) -> set[int]:
        """Return the watched members that have died."""
        found = {member for member, cord in self._cords.items() if cord < 0}
        for handle, event in self._epoll.poll(0):
            if event & (select.EPOLLERR | select.EPOLLHUP) and handle != self._pipe:
                found.add(self._members[handle])
        return found

    def remove(self, member: int) -> None:
        """Take away the bell of a dead member."""
        with suppress(OSError):
            (self._folder / str(member)).unlink(missing_ok=True)

    def ring(self, members: Iterable[int]) -> None:
        """Wake them; one that has died, or that has been rung often enough, needs no more."""
        for member in members:
            with suppress(OSError, KeyError):
                os.write(self._cords[member], RING)

    @property
    def rings(self) -> int:
        """How often we were woken."""
        return self._rings

    def sleep(self, rings: int, timeout_s: float) -> None:
        """Return at the next ring, at once if there was one after the first `rings`, when a member dies, or in time."""
        with self._changed:
            if self._rings != rings:
                return
            if self._sleeper:
                self._changed.wait(timeout_s)
                return
            self._sleeper = get_ident()
        try:
            self._epoll.poll(timeout_s)
            with suppress(BlockingIOError):
                os.read(self._pipe, DRAIN_BYTES)
        finally:
            with self._changed:
                self._sleeper = 0
                self._rings += 1
                self._changed.notify_all()
                if self._leaving:
                    self.abandon()

    def close(self) -> None:
        """Wake our own sleepers, then leave: to the others we are dead."""
        with self._changed:
            self._leaving = True
            self.ring([self._me])
            # A signal handler that closes the queue runs in the sleeper itself, which then lets go when it wakes.
            while self._sleeper not in {0, get_ident()}:
                self._changed.wait()
            if not self._sleeper:
                self._rings += 1
                self.abandon()
        self.remove(self._me)

    def abandon(self) -> None:
        """Close our ends, in a forked child too: there they belong to the parent."""
        if self._epoll.closed:
            return
        self._epoll.close()
        for handle in (self._pipe, *self._cords.values()):
            if handle >= 0:
                os.close(handle)
        self._cords = {}

    def _drop(self, member: int) -> None:
        cord = self._cords.pop(member)
        if cord >= 0:
            del self._members[cord]
            self._epoll.unregister(cord)
            os.close(cord)


def _cord(path: Path) -> int:
    """Open the writing end of a bell; -1 when nobody listens, or when that is no bell."""
    try:
        cord = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1
    if stat.S_ISFIFO(os.fstat(cord).st_mode):
        return cord
    os.close(cord)
    return -1
