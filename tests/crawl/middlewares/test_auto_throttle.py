"""The auto-throttle middleware (C2): which responses count, and which delays it sets."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from lycosa.core.errors import ConnectFailed, FetchTimeout, TlsFailed
from lycosa.core.headers import Headers
from lycosa.crawl.middlewares.auto_throttle import Throttle
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.auto_throttle import AutoThrottle, ThrottleSettings
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core import model
from lycosa.http.core.model import Timings
from lycosa.http.core.request import Request

URL, HOST = "http://a.example/1", "http://a.example:80"


def response(
    request: Request, status: int = 200, latency_s: float = 1.0, at: float = 100.0, **headers: str
) -> Response:
    fields = Headers.of([(name.replace("_", "-"), value) for name, value in headers.items()])
    raw = model.HttpResponse(URL, status, fields, b"", Timings(first_byte_s=latency_s, total_s=latency_s + 1.0))
    return Response.of(raw, request, at)


class RecordedDelays:
    """A `set_delay` that records the delays, at once or asynchronously."""

    def __init__(self, is_async: bool = False) -> None:
        self.delays: list[tuple[str, float]] = []
        self.is_async = is_async

    def __call__(self, host: str, delay_s: float) -> Any:
        if self.is_async:
            return self.record_later(host, delay_s)
        self.delays.append((host, delay_s))
        return None

    async def record_later(self, host: str, delay_s: float) -> None:
        await asyncio.sleep(0)
        self.delays.append((host, delay_s))


def throttle_for(recorded: RecordedDelays, **options: Any) -> Throttle:
    return Throttle(AutoThrottle(ThrottleSettings(5.0)), recorded, lambda: 200.0, **options)


def test_a_response_adapts_the_delay_and_is_passed_on() -> None:
    recorded = RecordedDelays()
    request = Request(URL)
    received = response(request)
    assert throttle_for(recorded).process_response(request, received) is received
    assert recorded.delays == [(HOST, 3.0)]


def test_an_async_set_delay_is_awaited() -> None:
    recorded, request = RecordedDelays(is_async=True), Request(URL)
    received = response(request)
    found: Any = throttle_for(recorded).process_response(request, received)
    assert asyncio.run(found) is received
    assert recorded.delays == [(HOST, 3.0)]


def test_the_delay_is_set_for_the_host_of_the_record() -> None:
    recorded, request = RecordedDelays(), Request(URL)
    request.record = UrlRecord(1, 1, URL, "http://other.example:80")
    throttle_for(recorded).process_response(request, response(request))
    assert recorded.delays == [("http://other.example:80", 3.0)]


@pytest.mark.parametrize(("latency_s", "meta"), [(0.0, {}), (1.0, {"autothrottle_dont_adjust_delay": True})])
def test_responses_without_latency_or_with_the_meta_key_are_ignored(latency_s: float, meta: dict[str, Any]) -> None:
    recorded, request = RecordedDelays(is_async=True), Request(URL, meta=meta)
    received = response(request, latency_s=latency_s)
    throttle = throttle_for(recorded)
    assert throttle.process_response(request, received) is received
    if meta:
        asyncio.run(throttle.process_exception(request, ConnectFailed()))
    assert recorded.delays == []


def test_retry_after_counts_for_an_overloaded_host() -> None:
    recorded, request = RecordedDelays(), Request(URL)
    throttle = throttle_for(recorded)
    throttle.process_response(request, response(request, 404, Retry_After="77"))
    throttle.process_response(request, response(request, 429, Retry_After="30"))
    throttle.process_response(request, response(request, 503, at=200.0, Retry_After="soon"))
    assert recorded.delays == [(HOST, 5.0), (HOST, 30.0), (HOST, 20.0)]


@pytest.mark.parametrize(
    ("error", "delays"),
    [(ConnectFailed(), [(HOST, 10.0)]), (FetchTimeout(), [(HOST, 10.0)]), (TlsFailed(), []), (ValueError(), [])],
)
def test_connection_failures_and_timeouts_count_for_the_host(error: Exception, delays: list[tuple[str, float]]) -> None:
    recorded = RecordedDelays(is_async=True)
    assert asyncio.run(throttle_for(recorded).process_exception(Request(URL), error)) is None
    assert recorded.delays == delays


def test_with_the_option_debug_changes_of_the_delay_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    request = Request(URL)
    throttle_for(RecordedDelays()).process_response(request, response(request))
    assert caplog.text == ""
    throttle_for(RecordedDelays(), debug=True).process_response(request, response(request))
    assert "http://a.example:80: 200 after 1000 ms, delay now 3.000 s" in caplog.text
