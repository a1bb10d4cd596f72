"""Named pipes with which the processes of a queue wake each other, and notice at once when one of them dies.

Every member of the queue has a pipe in `bells/`, and sleeps until another member writes a byte to it. When a process
ends, in any way, the operating system closes its pipe and notifies all processes that hold the other end: no polling,
no heartbeat. If several threads of a process wait, one sleeps on the pipe and wakes the others.

Requires Linux (epoll).
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Condition, get_ident

WAKEUP = b"!"
DRAIN_BYTES = 65536


class WakeupPipes:
    """Our own pipe, and the write ends of the other members' pipes.

    Raises `OSError` if the folder does not support pipes.
    """

    def __init__(self, folder: Path, me: int) -> None:
        folder.mkdir(exist_ok=True)
        self._path = folder / str(me)
        self._folder = folder
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path)
        self._me = me
        self._pipe = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Because of our own writer, the pipe never reports that the last writer has hung up.
        self._writers = {me: os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)}
        self._members = {-1: me}
        self._epoll = select.epoll()
        self._epoll.register(self._pipe, select.EPOLLIN)
        self.count = 0
        self._sleeper = 0
        self._leaving = False
        self._changed = Condition()

    def watch(self, members: Collection[int]) -> None:
        """Open the pipes of new members, and close the pipes of members that have left."""
        for member in set(self._writers) - set(members) - {self._me}:
            self._close_writer(member)
        for member in set(members) - set(self._writers):
            writer = _open_writer(self._folder / str(member))
            self._writers[member] = writer
            if writer >= 0:
                self._members[writer] = member
                self._epoll.register(writer, 0)

    def dead(self) -> set[int]:
        found = {member for member, writer in self._writers.items() if writer < 0}
        for handle, event in self._epoll.poll(0):
            if event & (select.EPOLLERR | select.EPOLLHUP) and handle != self._pipe:
                found.add(self._members[handle])
        return found

    def remove(self, member: int) -> None:
        with suppress(OSError):
            (self._folder / str(member)).unlink(missing_ok=True)

    def wake(self, members: Iterable[int]) -> None:
        for member in members:
            # A full pipe holds enough wake-ups, and a closed pipe belongs to a dead member.
            with suppress(OSError, KeyError):
                os.write(self._writers[member], WAKEUP)

    def sleep(self, count: int, timeout_s: float) -> None:
        """Sleep until there are more wake-ups than `count`, a member dies, or the timeout passes."""
        with self._changed:
            if self.count != count:
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
                self.count += 1
                self._changed.notify_all()
                if self._leaving:
                    self.abandon()

    def close(self) -> None:
        """Wake our own sleeping threads, then close the pipe. The other members then regard this one as dead."""
        with self._changed:
            self._leaving = True
            self.wake([self._me])
            # If a signal handler closes the queue in the sleeping thread itself, do not wait: that thread closes the
            # pipes when it continues.
            while self._sleeper not in {0, get_ident()}:
                self._changed.wait()
            if not self._sleeper:
                self.count += 1
                self.abandon()
        self.remove(self._me)

    def abandon(self) -> None:
        """Close our pipe ends. A forked child calls this, too: the pipe belongs to its parent."""
        if self._epoll.closed:
            return
        self._epoll.close()
        for handle in (self._pipe, *self._writers.values()):
            if handle >= 0:
                os.close(handle)
        self._writers = {}

    def _close_writer(self, member: int) -> None:
        writer = self._writers.pop(member)
        if writer >= 0:
            del self._members[writer]
            self._epoll.unregister(writer)
            os.close(writer)


def _open_writer(path: Path) -> int:
    """Return -1 if nobody reads the pipe, or if it is not a pipe."""
    try:
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1
    if stat.S_ISFIFO(os.fstat(writer).st_mode):
        return writer
    os.close(writer)
    return -1
