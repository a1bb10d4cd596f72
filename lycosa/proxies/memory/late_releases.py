"""Warns if leases are released after their deadline, which means that `lease_s` is too short."""

from __future__ import annotations

import logging
import time

from lycosa.proxies.ports import ProxyLease

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0
"""Minimum time between two warnings."""


class LateReleases:
    """Logs a late release at once, but only one per LOG_INTERVAL_S. The next warning says how many there were."""

    def __init__(self) -> None:
        self._logged_at = -LOG_INTERVAL_S
        self._count = 0

    def add(self, lease: ProxyLease) -> None:
        self._count += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            more = f" ({self._count:,} late releases since the last warning)" if self._count > 1 else ""
            log.warning("%s was released for %s after its lease had ended%s", lease.proxy.name, lease.target, more)
            self._logged_at, self._count = now, 0
