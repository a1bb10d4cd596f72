"""The interfaces between a client's connection and the protocol on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lycosa.core.errors import LycosaError
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.leases import GatewayLease


class ClientProtocol(Protocol):
    """A protocol that clients speak."""

    def on_data(self, data: bytes) -> None: ...

    def on_writable(self, *, is_writable: bool) -> None: ...

    def on_task_done(self) -> None:
        """Called when the task of `start` or `open_tunnel` has ended and no tunnel is open."""

    def is_stalled(self, now: float) -> bool:
        """Return whether the client blocks the running task. `now` is loop time."""

    def on_timeout(self) -> None:
        """Called when the deadline passes while no task runs."""


class ClientTransport(Protocol):
    """The part of a client's connection that the protocol uses."""

    def send(self, data: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def set_deadline(self, seconds: float) -> None:
        """Call `on_timeout` after `seconds`, unless a task is running at that time."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task, which must not raise, then call `on_task_done`. Only one task may run at a time."""

    def close(self) -> None:
        """Close after all data is written."""

    def abort(self) -> None:
        """Close at once."""

    def open_tunnel(
        self,
        user: GatewayUser,
        to: Destination,
        early: bytes,
        opened: Callable[[GatewayLease], bytes],
        failed: Callable[[LycosaError], None],
    ) -> None:
        """Open a tunnel in a task. `early`: the bytes that the client sent after its request.

        `opened` returns the reply to the client; `failed` is called if the tunnel could not be opened.
        """
