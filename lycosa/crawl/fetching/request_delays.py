"""Hosts that rest because a request asked for it (`download_delay` in meta).

The request reserves the rest when it is taken up, so that those that were lent together with it are held back: they go
back to the frontier untouched, and the host is blocked there. A request that the host is not asked for, after all,
takes its reservation back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.crawl.engine.records import host_of
from lycosa.http.core.request import Request

DELAY_MAX_S = 86_400.0
"""Longest delay that a request may ask of its host."""

HOSTS_MAX = 10_000
"""Hosts that rest at a time; of more, those that rest longest are forgotten here, and only here."""


class RequestDelays:
    """Until when hosts rest, by host key, in unix seconds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def begin(self, request: Request, clock: Callable[[], float]) -> float:
        """Take up a request. Return until when it is held back, 0 when it is not. `clock` tells unix seconds.

        Raises `BadSpider`.
        """
        delay = request.asked("download_delay")
        if delay is None and not self._until:
            return 0.0
        host, now = host_of(request), clock()
        until = self._until.get(host, 0.0)
        if until > now:
            return until
        self._until.pop(host, None)
        if delay is not None:
            self._until[host] = now + _seconds(delay)
            self._forget(now)
        return 0.0

    def started(self, request: Request, now: float) -> float:
        """The host is asked now, for a request with a delay. Return until when it rests."""
        until = self._until[host_of(request)] = now + _seconds(request.asked("download_delay"))
        return until

    def never_mind(self, request: Request) -> None:
        """The host was not asked, after all."""
        self._until.pop(host_of(request), None)

    def _forget(self, now: float) -> None:
        if len(self._until) > HOSTS_MAX:
            self._until = {host: until for host, until in self._until.items() if until > now}
        while len(self._until) > HOSTS_MAX:
            del self._until[max(self._until, key=self._until.__getitem__)]


def _seconds(delay: Any) -> float:
    if isinstance(delay, (int, float)) and 0 <= delay <= DELAY_MAX_S:
        return float(delay)
    raise BadSpider(f"download_delay in meta is {delay!r:.60}: write seconds, from 0 to {DELAY_MAX_S:.0f}")
