"""Delays set by single requests (`download_delay` in meta).

A request reserves the delay of its host before its download. Until the delay is over, other leased requests to the host
are deferred: they go back to the frontier unchanged, and the host is blocked there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.crawl.engine.records import host_of
from lycosa.http.core.request import Request

DELAY_MAX_S = 86_400.0

HOSTS_MAX = 10_000
"""Maximum reservations. If there are more, those that end last are dropped; the frontier still blocks their hosts."""


class RequestDelays:
    """The time until which each host is delayed (unix seconds), by host key."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def reserve(self, request: Request, now: Callable[[], float]) -> float:
        """Reserve the delay of a request. Return the time until which the request itself is deferred, or 0.

        `now` (unix seconds) is called only if delays are in use. Raises `BadSpider` for an invalid delay.
        """
        delay = request.get_meta("download_delay")
        if delay is None and not self._until:
            return 0.0
        host, at = host_of(request), now()
        until = self._until.get(host, 0.0)
        if until > at:
            return until
        self._until.pop(host, None)
        if delay is not None:
            self._until[host] = at + _seconds(delay)
            self._evict(at)
        return 0.0

    def started(self, request: Request, now: float) -> float:
        """Start the delay of a request that is sent `now`. Return when it ends."""
        until = self._until[host_of(request)] = now + _seconds(request.get_meta("download_delay"))
        return until

    def cancel(self, request: Request) -> None:
        self._until.pop(host_of(request), None)

    def _evict(self, now: float) -> None:
        if len(self._until) > HOSTS_MAX:
            self._until = {host: until for host, until in self._until.items() if until > now}
        while len(self._until) > HOSTS_MAX:
            del self._until[max(self._until, key=self._until.__getitem__)]


def _seconds(delay: Any) -> float:
    if isinstance(delay, (int, float)) and 0 <= delay <= DELAY_MAX_S:
        return float(delay)
    raise BadSpider(f"download_delay in meta is {delay!r:.60}: write seconds, from 0 to {DELAY_MAX_S:.0f}")
