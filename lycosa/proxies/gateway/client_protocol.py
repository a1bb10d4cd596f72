"""The ports between a client's connection and the protocol spoken on it."""

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
        """The task of `start` or `open_tunnel` has ended; without an open tunnel."""

    def is_stalled(self, now: float) -> bool:
        """Whether the client blocks the running task. `now` in the loop's time."""

    def on_timeout(self) -> None:
        """The deadline has passed without a task."""


class ClientTransport(Protocol):
    """The connection of a client, as its protocol uses it."""

    def send(self, data: bytes) -> None: ...

    def pause(self) -> None:
        """Stop reading for now."""

    def resume(self) -> None:
        """Continue to read."""

    def set_deadline(self, seconds: float) -> None:
        """Call `on_timeout` after so many seconds, unless a task runs then."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the only task of this connection, which must not raise; then call `on_task_done`."""

    def close(self) -> None:
        """Close after everything is written."""

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
        """Open a tunnel. `early` is what the client sent after its request; `opened` returns the reply to it."""
