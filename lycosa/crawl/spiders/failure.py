"""The argument of an errback: says why a request failed. It has methods of Twisted's `Failure`, as in Scrapy.

    def on_error(self, failure):
        if failure.check("TimeoutError", "DNSLookupError"):
            yield failure.request.replace(dont_filter=True)
        elif failure.check(HttpError):
            self.logger.info("%s: %d", failure.request.url, failure.response.status)

`check` and `trap` take classes of Lycosa's exceptions, and classes or names of Scrapy's.
"""

from __future__ import annotations

import traceback
from typing import Any, NoReturn

from lycosa.core.errors import (
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchTimeout,
    HttpError,
    PrivateAddress,
    TlsFailed,
)
from lycosa.core.public import public
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

EXCEPTION_ALIASES: dict[str, tuple[type[Exception], ...]] = {
    "TimeoutError": (FetchTimeout,),
    "TCPTimedOutError": (FetchTimeout, ConnectFailed),
    "DownloadTimeoutError": (FetchTimeout,),
    "UserTimeoutError": (FetchTimeout,),
    "DNSLookupError": (ConnectFailed,),
    "CannotResolveHostError": (ConnectFailed,),
    "ConnectionRefusedError": (ConnectFailed,),
    "DownloadConnectionRefusedError": (ConnectFailed,),
    "ConnectError": (ConnectFailed, TlsFailed),
    "ConnectionError": (ConnectFailed, ConnectionLost),
    "ConnectionLost": (ConnectionLost,),
    "ConnectionDone": (ConnectionLost,),
    "ConnectionResetError": (ConnectionLost,),
    "ResponseFailed": (ConnectionLost, BadResponse),
    "ResponseNeverReceived": (ConnectionLost,),
    "ResponseDataLossError": (ConnectionLost,),
    "DownloadFailedError": (ConnectionLost, BadResponse, ConnectFailed, TlsFailed),
    "DownloadCancelledError": (BodyTooLarge, PrivateAddress),
    "SSLError": (TlsFailed,),
    "TunnelError": (ConnectFailed,),
    "HttpError": (HttpError,),
}
"""Names of exceptions of Scrapy, Twisted and Python, with Lycosa's classes for these errors.

A failed DNS lookup and a refused connection are both `ConnectFailed`; its text says which.
"""

LOOKUP_FAILED_PREFIX = "host not found"
LOOKUP_ERRORS = frozenset({"DNSLookupError", "CannotResolveHostError"})
REFUSAL_ERRORS = frozenset({"ConnectionRefusedError", "DownloadConnectionRefusedError"})


@public
class Failure:
    """Why a request failed. `value` is the exception: `cause`, or an `HttpError` if `cause` is a response.

    `request` is None if the failure concerns an item without a response: one that a middleware returned instead of a
    response, or one of an errback after a failed download.
    """

    __slots__ = ("request", "response", "value")

    def __init__(self, cause: Any, request: Request | None, response: Response | None = None) -> None:
        self.value: BaseException = HttpError(cause) if isinstance(cause, Response) else cause
        self.request = request
        self.response: Response | None = response or getattr(self.value, "response", None)

    @property
    def type(self) -> type[BaseException]:
        return type(self.value)

    def check(self, *kinds: Any) -> Any:
        """Return the first of these classes and names that matches the exception, or None."""
        return next((kind for kind in kinds if _matches(self.value, kind)), None)

    def trap(self, *kinds: Any) -> Any:
        """Return what `check` returns, or raise the exception."""
        kind = self.check(*kinds)
        if kind is None:
            self.raiseException()
        return kind

    def raiseException(self) -> NoReturn:  # noqa: N802  as in Scrapy
        raise self.value

    def getErrorMessage(self) -> str:  # noqa: N802
        return str(self.value)

    def getTraceback(self) -> str:  # noqa: N802
        return "".join(traceback.format_exception(self.value))

    def __repr__(self) -> str:
        return f"<Failure {type(self.value).__name__}: {self.value}>"


def _matches(value: BaseException, kind: Any) -> bool:
    if isinstance(kind, type) and isinstance(value, kind):
        return True
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    if name == type(value).__name__:
        return True
    if not isinstance(value, EXCEPTION_ALIASES.get(name, ())):
        return False
    is_lookup = str(value).startswith(LOOKUP_FAILED_PREFIX)
    return not (name in LOOKUP_ERRORS and not is_lookup) and not (name in REFUSAL_ERRORS and is_lookup)
