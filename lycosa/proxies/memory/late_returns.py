"""Says that leases come back too late, which means that they are too short for what is done with them."""

from __future__ import annotations

import logging
import time

from lycosa.proxies.ports import ProxyLease

log = logging.getLogger(__name__)

SAY_S = 60.0
"""Between two lines, however many there are."""


class LateReturns:
    """The first one is said at once, those that follow are counted for the next line."""

    def __init__(self) -> None:
        self._said_at = -SAY_S
        self._since = 0

    def note(self, lease: ProxyLease) -> None:
        """A return was refused."""
        self._since += 1
        now = time.monotonic()
        if now - self._said_at >= SAY_S:
            more = f" ({self._since:,} such since the last line)" if self._since > 1 else ""
            log.warning("%s came back for %s when its lease was over: refused%s", lease.proxy.name, lease.target, more)
            self._said_at, self._since = now, 0
