"""The outcomes of responses and errors of other HTTP clients."""

from __future__ import annotations

import http.client
import ssl
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from lycosa.core.errors import ConnectFailed, UsageError
from lycosa.proxies.core.outcomes.clients import outcome_of_error, outcome_of_response
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule


def response_of_requests(status: int, body: bytes | None = b"", **headers: str) -> requests.Response:
    """Return a response of the package requests. `body=None`: the body was not read."""
    response = requests.Response()
    response.status_code, response.url = status, "http://shop.example/a"
    response.headers.update(headers)
    if body is not None:
        response._content = body
    return response


class Stream:
    """A response of httpx with an unread body."""

    status_code, headers, url, is_stream_consumed = 200, {"Server": "x"}, "http://a.example/", False

    @property
    def content(self) -> bytes:
        raise RuntimeError("attempted to access streaming response content, without having called `read()`")


@pytest.mark.parametrize(
    ("response", "blame", "reason"),
    [
        (200, Blame.NONE, ""),
        (403, Blame.SITE, "403"),
        (SimpleNamespace(status=429), Blame.SITE, "429"),
        (SimpleNamespace(status=407, headers=None), Blame.PROXY, "proxy refused the login (407)"),
        (response_of_requests(404), Blame.NOBODY, "404"),
        (
            response_of_requests(503, b"<div class='h-captcha' data-x='hcaptcha.com'>"),
            Blame.SITE,
            "captcha (hcaptcha.com)",
        ),
        (response_of_requests(200, None), Blame.NONE, ""),
        (Stream(), Blame.NONE, ""),
        (response_of_requests(302, Location="/sorry"), Blame.SITE, "redirected away"),
        (response_of_requests(200, b"no such luck"), Blame.MISS, "luck"),
    ],
)
def test_responses_of_clients_have_an_outcome(response: Any, blame: Blame, reason: str) -> None:
    rules = (
        OutcomeRule(Blame.SITE, "redirected away", location=r"^http://shop\.example/sorry$"),
        OutcomeRule(Blame.MISS, "luck", body="such luck"),
    )
    assert outcome_of_response(response, rules=rules) == Outcome(blame, reason)


def test_the_body_argument_and_retry_after_are_used() -> None:
    assert outcome_of_response(response_of_requests(429, **{"Retry-After": "7"})).rest_s == 7.0
    rules = (OutcomeRule(Blame.SITE, "limited", body="slow down"),)
    assert (
        outcome_of_response(response_of_requests(200, None), body=b"slow down, please", rules=rules).blame is Blame.SITE
    )


class UnreadStream:
    """A response of httpx whose body is not read: its `elapsed` is not known yet."""

    status_code, headers, url = 200, {}, "http://shop.example/a"

    @property
    def elapsed(self) -> timedelta:
        raise RuntimeError("'.elapsed' may only be accessed after the response has been read or closed.")


def timed(**times: Any) -> SimpleNamespace:
    return SimpleNamespace(status=200, headers={}, **times)


@pytest.mark.parametrize(
    ("response", "latency_s"),
    [
        (timed(elapsed=timedelta(milliseconds=250)), 0.25),  # requests, httpx
        (timed(elapsed=0.25), 0.25),  # curl_cffi
        (timed(elapsed=timedelta(0)), None),  # the initial value in requests, before anything was received
        (timed(elapsed="soon"), None),
        (timed(elapsed=1e9), None),
        (timed(latency_s=0.1, elapsed=timedelta(seconds=1)), 0.1),
        (timed(timings=SimpleNamespace(first_byte_s=0.3)), 0.3),  # a spider's response
        (timed(), None),
        (UnreadStream(), None),
        (200, None),
    ],
)
def test_the_latency_of_a_response_is_read(response: Any, latency_s: float | None) -> None:
    assert outcome_of_response(response).latency_s == latency_s
    assert outcome_of_response(response, latency_s=7.0).latency_s == 7.0


@pytest.mark.parametrize("response", [None, "200", True, 7, object(), SimpleNamespace(status=None), {}])
def test_objects_that_are_no_responses_are_refused(response: Any) -> None:
    with pytest.raises(UsageError, match="is not a response: report a response, its status, or an exception"):
        outcome_of_response(response)


def error_named(name: str, *bases: type[Exception], **attributes: object) -> Exception:
    """Return an exception of a class with this name."""
    return type(name, bases or (Exception,), attributes)()


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        (requests.exceptions.ProxyError(), Blame.PROXY),
        (requests.exceptions.ConnectTimeout(), Blame.PROXY),
        (requests.exceptions.ReadTimeout(), Blame.MISS),
        (requests.exceptions.SSLError(), Blame.MISS),
        (requests.exceptions.ConnectionError(), Blame.MISS),
        (requests.exceptions.ChunkedEncodingError(), Blame.MISS),
        (TimeoutError(), Blame.MISS),
        (ConnectionRefusedError(), Blame.PROXY),
        (ConnectionResetError(), Blame.MISS),
        (http.client.RemoteDisconnected(), Blame.MISS),
        (ssl.SSLCertVerificationError(), Blame.MISS),
        (
            error_named("ConnectError", type("NetworkError", (type("TransportError", (Exception,), {}),), {})),
            Blame.PROXY,
        ),
        (error_named("ReadError", type("NetworkError", (type("TransportError", (Exception,), {}),), {})), Blame.MISS),
        (error_named("ClientProxyConnectionError", type("ClientConnectorError", (OSError,), {})), Blame.PROXY),
        (error_named("ServerDisconnectedError", type("ClientConnectionError", (Exception,), {})), Blame.MISS),
        (error_named("PoolTimeout", type("TimeoutException", (Exception,), {})), Blame.NOBODY),
        (error_named("ConnectionTimeoutError", type("ServerTimeoutError", (TimeoutError,), {})), Blame.PROXY),
        (error_named("ClientHttpProxyError", status=407), Blame.PROXY),
        (type("ProxyError", (Exception,), {})("407 Who are you?"), Blame.PROXY),
        (type("ProxyError", (Exception,), {})("502 Bad Gateway"), Blame.MISS),
        (requests.exceptions.ProxyError("OSError('Tunnel connection failed: 503 Service Unavailable')"), Blame.MISS),
        (requests.exceptions.ProxyError("OSError('Tunnel connection failed: 407 Login')"), Blame.PROXY),
        (error_named("ClientHttpProxyError", status=502), Blame.MISS),
        (ConnectFailed("proxy refused the login (407)"), Blame.PROXY),
    ],
)
def test_errors_of_clients_have_an_outcome(error: Exception, blame: Blame) -> None:
    found = outcome_of_error(error, 0.5)
    assert found is not None
    assert found.blame is blame


def test_the_cause_of_a_user_error_is_judged() -> None:
    assert outcome_of_error(ValueError("no price on this page")) is None
    assert outcome_of_error(KeyboardInterrupt()) is None
    wrapped = RuntimeError("could not fetch")
    wrapped.__cause__ = requests.exceptions.ProxyError("secret:password@proxy")
    found = outcome_of_error(wrapped)
    assert found == Outcome(Blame.PROXY, "ProxyError"), "the message may contain a login"
    endless = ValueError()
    endless.__cause__ = endless
    assert outcome_of_error(endless) is None
