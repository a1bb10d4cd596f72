"""What a client's connection and the protocol spoken on it know of each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lycosa.core.errors import LycosaError
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.leases import GatewayLease


class Speaker(Protocol):
    """A protocol that clients speak."""

    def came(self, data: bytes) -> None:
        """Bytes came."""
        ...

    def ended(self) -> bool:
        """No more bytes come. Return whether something is still to be said."""
        ...

    def writable(self, *, yes: bool) -> None:
        """Whether the client takes more bytes now."""
        ...

    def next(self) -> None:
        """What was under way is over."""
        ...

    def is_stuck(self, now: float) -> bool:
        """Whether the client holds up what is under way. `now` in the loop's time."""
        ...

    def too_slow(self) -> None:
        """Nothing is under way, and nothing came in time."""
        ...


class SpeakerConnection(Protocol):
    """The connection, as speakers use it."""

    @property
    def is_ending(self) -> bool:
        """Whether the gateway takes no more requests."""
        ...

    def send(self, data: bytes) -> None:
        """Write."""
        ...

    def pause(self) -> None:
        """Read nothing for now."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def wait(self, seconds: float) -> None:
        """Something has to come within this time."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this, which must not raise; then `next` is called."""
        ...

    def close(self) -> None:
        """Write no more."""
        ...

    def cut(self) -> None:
        """End it at once, in the middle of whatever it is."""
        ...

    def open(
        self,
        asked: GatewayUser,
        to: Destination,
        early: bytes,
        opened: Callable[[GatewayLease], bytes],
        failed: Callable[[LycosaError], None],
    ) -> None:
        """Open a tunnel; `early` is what came behind the request for it."""
        ...
