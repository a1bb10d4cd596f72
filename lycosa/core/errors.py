"""Every exception Lycosa raises on purpose.

    LycosaError
    |-- UsageError            the user wrote something wrong: exit 2, one line says what to write instead
    |   |-- BadUrl            not an absolute http(s) URL
    |   |-- BadSetting        unknown name, or a value outside its range
    |   |-- BadProxy          not the address of a proxy, or a list with such lines
    |   `-- BadSpider         a spider file or class that cannot run
    |       `-- BadMiddleware a middleware that cannot be used, or returned nonsense
    |-- StateError            the crawl cannot start or go on: exit 3
    |   |-- StateLocked       another process owns the state
    |   |-- ForeignState      the folder holds something else
    |   |-- NewerState        written by a newer Lycosa
    |   |-- StorageFull       no room left on the device
    |   `-- StorageError      any other failure of the disk or the database
    |-- NoProxy               the pool has none for this target, now or in the time given
    |   `-- NoProxyYet        the request is to wait, and then to be sent through another one
    |-- NoJudge               no judge answers, so that nothing can be said of proxies
    |-- BadMessage            bytes that are not HTTP/1 or SOCKS, or that two readers could read in two ways
    |-- Forbidden             a client of the gateway may not do this: destination, port, login
    |-- IndexFailure          the search index is missing, foreign, or refuses the query
    |-- FetchError            a transfer failed; `retry` says whether trying again can help
    |   |-- ConnectFailed     no address, no connection: the host is to blame
    |   |   `-- ProxyFailed   no connection through a proxy; `behind` it, or to it
    |   |-- ConnectionLost    it ended before the answer was complete
    |   |-- FetchTimeout      too slow
    |   |-- TlsFailed         certificate or handshake
    |   |-- BodyTooLarge      more bytes than allowed, before or after decompression
    |   |-- PrivateAddress    a link from a public page leads to an address that is not public
    |   `-- BadResponse       bytes that are not HTTP, or cannot be decoded
    |-- BadItem               a spider's item holds something that cannot be written
    |-- DropItem              raised by a pipeline: this item goes nowhere
    |-- IgnoreRequest         raised by a middleware: the request is done, with this reason
    |   |-- HttpError         a status that the callback did not ask for
    |   `-- StopDownload      raised by a receiver of headers_received or bytes_received: enough of this body
    |-- RetryRequest          raised by a callback or middleware: fetch this again
    |-- CloseSpider           raised by a callback: end the crawl, with this reason
    |-- DontCloseSpider       raised by a receiver of spider_idle: there is more to come
    `-- NotConfigured         raised by a part that is being made: leave it out

The class docstring is the default message.
"""

from __future__ import annotations

from typing import Any

from lycosa.core.public import public


@public
class LycosaError(Exception):
    """Something went wrong in Lycosa."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class UsageError(LycosaError):
    """Bad usage."""


class BadUrl(UsageError):
    """Not an absolute http or https URL."""


class BadSetting(UsageError):
    """Unknown setting or bad value."""


class BadProxy(UsageError):
    """Not the address of a proxy."""


class BadSpider(UsageError):
    """This spider cannot run."""


@public
class BadMiddleware(BadSpider):
    """This middleware cannot be used."""


class StateError(LycosaError):
    """The state of the crawl cannot be used."""


class StateLocked(StateError):
    """The state is open in another process."""


class ForeignState(StateError):
    """The folder is not a Lycosa state."""


class NewerState(StateError):
    """The state was written by a newer version of Lycosa."""


class StorageFull(StateError):
    """No space left on the device."""


class WorkerLost(StateError):
    """A worker of a shared crawl was not heard for too long: others go on with its URLs."""


class StorageError(StateError):
    """The storage failed."""


class NoProxy(LycosaError):
    """No proxy is free for this target."""


class NoProxyYet(NoProxy):
    """The request waits for another proxy until `until` (unix seconds)."""

    def __init__(self, message: str = "", until: float = 0.0) -> None:
        super().__init__(message)
        self.until = until


class NoJudge(LycosaError):
    """No judge answers: nothing can be said of proxies."""


class BadMessage(LycosaError):
    """Not a message of HTTP/1 or SOCKS."""

    def __init__(self, message: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(LycosaError):
    """Not allowed here."""

    def __init__(self, message: str = "", status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class IndexFailure(LycosaError):
    """The search index cannot be used."""


@public
class FetchError(LycosaError):
    """The transfer failed."""

    # Through a proxy: `reached` says that there was a connection to it, so that what failed lies behind; `latency_s` is
    # how long the new connection took through it to the host, None where there was none or one was kept.

    retry = True
    reached = False
    latency_s: float | None = None

    def __init__(self, message: str = "", *, retry: bool | None = None) -> None:
        super().__init__(message)
        if retry is not None:
            self.retry = retry


class ConnectFailed(FetchError):
    """The connection failed."""


LOGIN_WANTED = "proxy wants another login"
"""The reason of a `ConnectFailed`: every way to a proxy says the same."""


class ProxyFailed(ConnectFailed):
    """No connection through the proxy."""

    def __init__(self, message: str = "", *, behind: bool = False) -> None:
        super().__init__(message)
        self.reached = behind


class ConnectionLost(FetchError):
    """The connection was lost."""


class FetchTimeout(FetchError):
    """The transfer took too long."""


class TlsFailed(FetchError):
    """The TLS handshake failed."""


class BodyTooLarge(FetchError):
    """The body is larger than allowed."""

    retry = False


class PrivateAddress(FetchError):
    """A page that anybody can write may not lead to this address."""

    retry = False


class BadResponse(FetchError):
    """The answer cannot be decoded."""

    retry = False


class BadItem(LycosaError):
    """The item cannot be written."""


@public
class DropItem(LycosaError):
    """The item was dropped."""

    def __init__(self, message: str = "", log_level: str | int | None = None) -> None:
        super().__init__(message)
        self.log_level = log_level


@public
class IgnoreRequest(LycosaError):
    """The request was ignored."""

    inline = False
    """Whether the request was that of an `await self.fetch`, and not the one whose page is in work."""


@public
class HttpError(IgnoreRequest):
    """The status was not asked for."""

    def __init__(self, response: Any, message: str = "") -> None:
        super().__init__(message or str(response.status))
        self.response = response


@public
class RetryRequest(LycosaError):
    """The request is to be tried again. It counts as a failed attempt; `delay_s` replaces the usual back-off."""

    def __init__(self, reason: str = "asked for", delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = delay_s


@public
class CloseSpider(LycosaError):
    """The spider ends the crawl."""

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


@public
class DontCloseSpider(LycosaError):
    """The spider has more to come."""


@public
class StopDownload(IgnoreRequest):
    """The rest of the body is not wanted."""

    # With `fail` the request goes to its errback, with what came so far as `response`; else the callback gets that.

    response: Any = None

    def __init__(self, *, fail: bool = True) -> None:
        super().__init__()
        self.fail = fail


@public
class NotConfigured(LycosaError):
    """The part is not configured."""
