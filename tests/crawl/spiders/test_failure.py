"""What an errback gets (C8): the verbs of Scrapy's failures, and the names that its users type."""

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
    """As Twisted's."""


class Answer(Response):
    """A response as far as a failure looks."""

    def __init__(self, status: int) -> None:
        self.asked = status

    @property
    def status(self) -> int:
        return self.asked


def test_the_exception_and_what_it_was_raised_for() -> None:
    error = FetchTimeout("timed out after 5 s")
    failure = Failure(error, REQUEST)
    assert (failure.value, failure.type, failure.request, failure.response) == (error, FetchTimeout, REQUEST, None)
    assert failure.getErrorMessage() == "timed out after 5 s"
    assert repr(failure) == "<Failure FetchTimeout: timed out after 5 s>"


def test_check_returns_the_first_kind_that_it_is() -> None:
    failure = Failure(FetchTimeout("late"), REQUEST)
    assert failure.check(ConnectFailed, FetchError, FetchTimeout) is FetchError
    assert failure.check(ConnectFailed, IgnoreRequest) is None
    assert failure.check() is None
    assert Failure(ZeroDivisionError(), REQUEST).check(ArithmeticError) is ArithmeticError
    assert Failure(ZeroDivisionError(), REQUEST).check("ZeroDivisionError") == "ZeroDivisionError"


def test_trap_raises_what_it_is_not() -> None:
    error = FetchTimeout("late")
    failure = Failure(error, REQUEST)
    assert failure.trap(ConnectFailed, FetchTimeout) is FetchTimeout
    with pytest.raises(FetchTimeout) as caught:
        failure.trap(ConnectFailed)
    assert caught.value is error


@pytest.mark.parametrize("cause", [lambda answer: answer, HttpError])
def test_a_status_nobody_asked_for_is_an_http_error_with_its_response(cause: Any) -> None:
    answer = Answer(404)
    failure = Failure(cause(answer), REQUEST)
    assert failure.check(HttpError) is HttpError
    assert failure.check("HttpError", IgnoreRequest)
    assert failure.response is answer
    assert failure.value.response is answer
    assert failure.getErrorMessage() == "404"


def test_the_response_that_was_there_when_a_middleware_failed() -> None:
    answer = Answer(200)
    assert Failure(ValueError(), REQUEST, answer).response is answer


def test_the_traceback() -> None:
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
def test_names_from_elsewhere(error: Exception, names: list[Any], not_these: list[Any]) -> None:
    failure = Failure(error, REQUEST)
    assert [name for name in names if failure.check(name) != name] == []
    assert failure.check(*not_these) is None


def test_every_error_of_a_transfer_has_a_name_elsewhere() -> None:
    ours = {kind for kinds in EXCEPTION_ALIASES.values() for kind in kinds}
    transfers = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FetchError)}
    assert [kind for kind in transfers - {FetchError} if not issubclass(kind, tuple(ours))] == []
    assert all(issubclass(kind, LycosaError) for kind in ours)
    assert BadResponse in ours


def test_a_lookup_that_failed_is_told_by_its_words() -> None:
    assert NOT_FOUND == LOOKUP_FAILED_PREFIX
