"""Warns about leases that were released after their deadline: `lease_s` is then too short."""

from __future__ import annotations

import logging
import time

from lycosa.proxies.ports import ProxyLease

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0


class LateReleases:
    """Logs late releases. Each warning has the number since the previous one."""

    def __init__(self) -> None:
        self._logged_at = -LOG_INTERVAL_S
        self._count = 0

    def add(self, lease: ProxyLease) -> None:
        self._count += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            more = f" ({self._count:,} late releases since the last warning)" if self._count > 1 else ""
            log.warning("the lease of %s for %s ended before it was released%s", lease.proxy.name, lease.target, more)
            self._logged_at, self._count = now, 0
