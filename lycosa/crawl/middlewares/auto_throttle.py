"""Auto-throttle: adapts the crawl delay of each host to its latency and errors (`frontier.core.auto_throttle`).

The delay is never shorter than the host's Crawl-delay. Responses from the cache or a middleware do not count, nor do
requests with `autothrottle_dont_adjust_delay` in their meta.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from lycosa.core.errors import ConnectFailed, FetchTimeout
from lycosa.core.retry import parse_retry_after
from lycosa.crawl.engine.records import host_of
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.auto_throttle import OVERLOADED, AutoThrottle
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)

SetDelay = Callable[[str, float], Awaitable[None] | None]
"""Takes a host key and the delay in seconds."""


class Throttle:
    """Feeds responses and failures to `throttle`, and passes its delays to `set_delay`.

    `now` returns unix seconds. `debug`: whether to log every change.
    """

    def __init__(
        self, throttle: AutoThrottle, set_delay: SetDelay, now: Callable[[], float], *, debug: bool = False
    ) -> None:
        self._throttle = throttle
        self._set_delay = set_delay
        self._now = now
        self._debug = debug

    def process_response(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        timings = response.raw.timings
        # A response without a time to the first byte did not come from the host.
        if not timings.first_byte_s or request.get_meta("autothrottle_dont_adjust_delay"):
            return response
        host, now, status = host_of(request), response.fetched_at, response.status
        after_s = parse_retry_after(response.headers.get("retry-after"), now) if status in OVERLOADED else None
        delay_s = self._throttle.record_response(
            host, status, timings.first_byte_s, now - timings.total_s, now, after_s or 0.0
        )
        if delay_s is None:
            return response
        if self._debug:
            log.info("%s: %d after %.0f ms, delay now %.3f s", host, status, timings.first_byte_s * 1000, delay_s)
        pending = self._set_delay(host, delay_s)
        return response if pending is None else _after(pending, response)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        if not isinstance(exception, (ConnectFailed, FetchTimeout)) or request.get_meta(
            "autothrottle_dont_adjust_delay"
        ):
            return
        host = host_of(request)
        delay_s = self._throttle.record_failure(host, self._now())
        if delay_s is None:
            return
        if self._debug:
            log.info("%s: %s, delay now %.3f s", host, exception, delay_s)
        pending = self._set_delay(host, delay_s)
        if pending is not None:
            await pending


async def _after(pending: Awaitable[None], response: Response) -> Response:
    await pending
    return response
