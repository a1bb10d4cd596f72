"""The argument of errbacks (C8): the methods of Scrapy's failures, and the exception names that its users write."""

from __future__ import annotations

from typing import Any

import pytest

from lycosa.core import errors
from lycosa.core.errors import (
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    HttpError,
    IgnoreRequest,
    LycosaError,
    TlsFailed,
)
from lycosa.crawl.spiders.failure import EXCEPTION_ALIASES, LOOKUP_FAILED_PREFIX, Failure
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request
from lycosa.http.resolver import NOT_FOUND

REQUEST = Request("http://a.example/")


class DNSLookupError(Exception):
    """An exception with the name of an exception of Twisted."""


class Answer(Response):
    """A response of which only the status is used."""

    def __init__(self, status: int) -> None:
        self._status = status

    @property
    def status(self) -> int:
        return self._status


def test_a_failure_has_the_exception_and_the_request() -> None:
    error = FetchTimeout("timed out after 5 s")
    failure = Failure(error, REQUEST)
    assert (failure.value, failure.type, failure.request, failure.response) == (error, FetchTimeout, REQUEST, None)
    assert failure.getErrorMessage() == "timed out after 5 s"
    assert repr(failure) == "<Failure FetchTimeout: timed out after 5 s>"


def test_check_returns_the_first_match() -> None:
    failure = Failure(FetchTimeout("late"), REQUEST)
    assert failure.check(ConnectFailed, FetchError, FetchTimeout) is FetchError
    assert failure.check(ConnectFailed, IgnoreRequest) is None
    assert failure.check() is None
    assert Failure(ZeroDivisionError(), REQUEST).check(ArithmeticError) is ArithmeticError
    assert Failure(ZeroDivisionError(), REQUEST).check("ZeroDivisionError") == "ZeroDivisionError"


def test_trap_raises_the_exception_if_nothing_matches() -> None:
    error = FetchTimeout("late")
    failure = Failure(error, REQUEST)
    assert failure.trap(ConnectFailed, FetchTimeout) is FetchTimeout
    with pytest.raises(FetchTimeout) as caught:
        failure.trap(ConnectFailed)
    assert caught.value is error


@pytest.mark.parametrize("cause", [lambda answer: answer, HttpError])
def test_an_unexpected_status_is_an_http_error_with_its_response(cause: Any) -> None:
    answer = Answer(404)
    failure = Failure(cause(answer), REQUEST)
    assert failure.check(HttpError) is HttpError
    assert failure.check("HttpError", IgnoreRequest)
    assert failure.response is answer
    assert failure.value.response is answer
    assert failure.getErrorMessage() == "404"


def test_a_failure_has_the_response_for_which_a_middleware_failed() -> None:
    answer = Answer(200)
    assert Failure(ValueError(), REQUEST, answer).response is answer


def test_the_traceback_is_formatted() -> None:
    def callback() -> None:
        raise ValueError("here")

    try:
        callback()
    except ValueError as error:
        text = Failure(error, REQUEST).getTraceback()
    assert "in callback" in text
    assert text.endswith("ValueError: here\n")


@pytest.mark.parametrize(
    ("error", "names", "not_these"),
    [
        (FetchTimeout("late"), ["TimeoutError", TimeoutError, "UserTimeoutError"], ["DNSLookupError", ConnectionError]),
        (ConnectFailed(NOT_FOUND), ["DNSLookupError", DNSLookupError], [ConnectionRefusedError, TimeoutError]),
        (ConnectFailed("host not found within 5 s"), ["DNSLookupError"], [ConnectionRefusedError]),
        (ConnectFailed("connection refused"), [ConnectionRefusedError, ConnectionError], ["DNSLookupError"]),
        (ConnectFailed("no connection after 5 s"), ["TCPTimedOutError"], ["DNSLookupError"]),
        (ConnectionLost("connection lost"), ["ResponseFailed", "ConnectionLost"], ["TimeoutError"]),
        (TlsFailed("certificate expired"), ["SSLError", "ConnectError"], ["ResponseFailed"]),
        (BodyTooLarge("body too large"), ["DownloadCancelledError"], ["ResponseFailed"]),
    ],
)
def test_names_of_scrapy_twisted_and_python_match(error: Exception, names: list[Any], not_these: list[Any]) -> None:
    failure = Failure(error, REQUEST)
    assert [name for name in names if failure.check(name) != name] == []
    assert failure.check(*not_these) is None


def test_every_fetch_error_has_an_alias() -> None:
    ours = {kind for kinds in EXCEPTION_ALIASES.values() for kind in kinds}
    transfers = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FetchError)}
    assert [kind for kind in transfers - {FetchError} if not issubclass(kind, tuple(ours))] == []
    assert all(issubclass(kind, LycosaError) for kind in ours)
    assert BadResponse in ours


def test_a_failed_lookup_is_recognised_by_its_message() -> None:
    assert NOT_FOUND == LOOKUP_FAILED_PREFIX
