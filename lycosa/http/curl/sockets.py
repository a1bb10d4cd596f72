"""Watch sockets for libcurl and report which are ready.

On Linux the loop watches one epoll set, so one wake-up serves all ready sockets. libcurl starts and stops watching a
socket in every transfer on a reused connection. With epoll, each start or stop is one system call and costs a third of
`add_reader` or `remove_reader`. On other systems the loop watches each socket itself.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import pycurl

Ready = Callable[[list[tuple[int, int]]], None]
"""Called with (descriptor, CSELECT_* bits) of the ready sockets."""

READY_MAX = 256
"""Maximum sockets served in one wake-up, so that other tasks are not delayed."""


class Sockets(Protocol):
    """Watches sockets for libcurl."""

    def watch(self, fd: int, poll: int) -> None:
        """Watch a socket for POLL_IN, POLL_OUT or both; POLL_REMOVE stops watching it."""

    def close(self) -> None: ...


def sockets_of(loop: asyncio.AbstractEventLoop, ready: Ready) -> Sockets:
    """Return the best implementation for this system."""
    return EpollSockets(loop, ready) if hasattr(select, "epoll") else LoopSockets(loop, ready)


class EpollSockets:
    """An epoll set watched by the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        loop.add_reader(self._epoll.fileno(), self._serve)

    def watch(self, fd: int, poll: int) -> None:
        if poll == pycurl.POLL_REMOVE:
            self._watched.discard(fd)
            with suppress(OSError):  # it was closed, so the kernel has removed it already
                self._epoll.unregister(fd)
            return
        events = (select.EPOLLIN if poll & pycurl.POLL_IN else 0) | (select.EPOLLOUT if poll & pycurl.POLL_OUT else 0)
        if fd in self._watched:
            with suppress(FileNotFoundError):  # it was closed, and another socket has its descriptor now
                self._epoll.modify(fd, events)
                return
        self._watched.add(fd)
        self._epoll.register(fd, events)

    def close(self) -> None:
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _serve(self) -> None:
        self._ready([(fd, CSELECT[events & 31]) for fd, events in self._epoll.poll(0, READY_MAX)])


CSELECT = [
    (pycurl.CSELECT_IN if events & (1 | 8 | 16) else 0)
    | (pycurl.CSELECT_OUT if events & 4 else 0)
    | (pycurl.CSELECT_ERR if events & 8 else 0)
    for events in range(32)
]
"""Maps epoll bits (IN 1, OUT 4, ERR 8, HUP 16) to libcurl's. ERR and HUP also set IN, so that libcurl reads from the
socket, and finds the error or the end of the stream.
"""


class LoopSockets:
    """Lets the loop watch each socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}

    def watch(self, fd: int, poll: int) -> None:
        before = self._watched.pop(fd, 0)
        after = 0 if poll == pycurl.POLL_REMOVE else poll
        if after:
            self._watched[fd] = after
        if after & pycurl.POLL_IN and not before & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._ready, [(fd, pycurl.CSELECT_IN)])
        elif before & pycurl.POLL_IN and not after & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if after & pycurl.POLL_OUT and not before & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._ready, [(fd, pycurl.CSELECT_OUT)])
        elif before & pycurl.POLL_OUT and not after & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def close(self) -> None:
        for fd in list(self._watched):
            self.watch(fd, pycurl.POLL_REMOVE)
