"""The exceptions of Lycosa. Some that only one part of it uses are defined in that part.

    LycosaError
    |-- UsageError            the user wrote something wrong: exit 2, one line says what to write instead
    |   |-- BadUrl            not an absolute http(s) URL
    |   |-- BadSetting        an unknown setting, or a value out of range
    |   |-- BadProxy          not the address of a proxy, or a list with invalid lines
    |   |-- BadMagnet         not a magnet link or an infohash
    |   |-- BadTorrentFile    not a torrent file
    |   `-- BadSpider         a spider file or class that cannot run
    |       `-- BadMiddleware a middleware that cannot be used, or returned something that is not allowed
    |-- StateError            the crawl cannot start or continue: exit 3
    |   |-- StateLocked       another process owns the state
    |   |-- ForeignState      the folder holds something else
    |   |-- NewerState        written by a newer Lycosa
    |   |-- StorageFull       no room left on the device
    |   |-- WorkerLost        a worker of a shared crawl missed too many heartbeats
    |   `-- StorageError      any other failure of the disk or the database
    |       |-- StorageUnavailable   no connection to the database, or the database is locked; this may end by itself
    |       `-- DamagedState         a part of the state is damaged or missing
    |-- NoProxy               the pool had no proxy for this target within the timeout
    |   `-- NoProxyYet        the request waits, and is then sent through another proxy
    |-- NoJudge               no judge answers: proxies cannot be checked
    |-- NoMetadata            no peer delivered the info dict of a torrent
    |-- BadMessage            bytes that are not HTTP/1 or SOCKS, or are ambiguous
    |-- Forbidden             a client of the gateway may not do this: destination, port, login
    |-- IndexFailure          the search index cannot be used: it is missing, empty or foreign, for example
    |   |-- IndexUnavailable  the server of the search index does not answer now
    |   |-- IndexFull         no room left on the device of the index
    |   |-- IndexLocked       another process writes the index
    |   |-- IndexTaken        another process has opened the index for writing since we did, or has emptied it
    |   |-- IndexDamaged      files of the index are damaged or missing: it must be built again
    |   `-- BadQuery          the query cannot be parsed, or exceeds a limit
    |-- FetchError            a transfer failed; `retry` says whether another attempt can help
    |   |-- ConnectFailed     no address or no connection: the host is at fault
    |   |   `-- ProxyFailed   no connection to a proxy, or (`behind`) from the proxy to the host
    |   |-- ConnectionLost    the connection ended before the response was complete
    |   |-- FetchTimeout      the transfer took too long
    |   |-- TlsFailed         bad certificate, or the handshake failed
    |   |-- BodyTooLarge      more bytes than allowed, before or after decompression
    |   |-- PrivateAddress    a link on a public page leads to an address that is not public
    |   `-- BadResponse       bytes that are not HTTP, or cannot be decoded
    |-- BadItem               an item holds something that cannot be written
    |-- DropItem              raised by a pipeline: drop this item
    |-- IgnoreRequest         raised by a middleware: the request is done, with this reason
    |   |-- HttpError         a status that the callback does not handle
    |   `-- StopDownload      raised by a receiver of headers_received or bytes_received: stop reading the body
    |-- RetryRequest          raised by a callback or middleware: fetch this again
    |-- CloseSpider           raised by a callback, middleware, pipeline or receiver: end the crawl, with this reason
    |-- DontCloseSpider       raised by a receiver of spider_idle: do not end the crawl yet
    `-- NotConfigured         raised while a part is created: leave the part out

The class docstring is the default message, except in `HttpError`, `RetryRequest` and `CloseSpider`.
"""

from __future__ import annotations

from typing import Any

from lycosa.core.public import public


@public
class LycosaError(Exception):
    """Something went wrong in Lycosa."""

    # `values` replace the placeholders in `message`. Both are kept for pages that show the error in another language.

    def __init__(self, message: str = "", **values: object) -> None:
        self.message, self.values = message or (type(self).__doc__ or "").strip(), values
        super().__init__(self.message.format(**values) if values else self.message)


class UsageError(LycosaError):
    """Bad usage."""


class BadUrl(UsageError):
    """Not an absolute http or https URL."""


class BadSetting(UsageError):
    """Unknown setting, or a bad value."""


class BadProxy(UsageError):
    """Not the address of a proxy."""


class BadMagnet(UsageError):
    """Not a magnet link."""


class BadTorrentFile(UsageError):
    """Not a torrent file."""


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
    """This worker of a shared crawl missed too many heartbeats: the other workers have taken over its URLs."""


class StorageError(StateError):
    """The storage failed."""


class StorageUnavailable(StorageError):
    """The database does not answer."""


class DamagedState(StorageError):
    """A part of the state is damaged or missing."""

    def __init__(self, problem: str = "", *, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem


class NoProxy(LycosaError):
    """No proxy is free for this target."""


class NoProxyYet(NoProxy):
    """The request waits for another proxy until `until` (unix seconds)."""

    def __init__(self, message: str = "", until: float = 0.0) -> None:
        super().__init__(message)
        self.until = until


class NoJudge(LycosaError):
    """No judge answers: proxies cannot be checked."""


class NoMetadata(LycosaError):
    """No peer delivered the metadata."""


class BadMessage(LycosaError):
    """Not an HTTP/1 or SOCKS message."""

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


class IndexUnavailable(IndexFailure):
    """The server of the search index does not answer now."""


class IndexFull(IndexFailure):
    """No space left on the device of the index."""


class IndexLocked(IndexFailure):
    """Another process writes the index."""


class IndexTaken(IndexFailure):
    """Another process has opened or emptied the index."""


class IndexDamaged(IndexFailure):
    """Files of the index are damaged or missing: it must be built again."""


class BadQuery(IndexFailure):
    """The query cannot be parsed, or exceeds a limit."""


@public
class FetchError(LycosaError):
    """The transfer failed."""

    # For transfers through a proxy. `reached`: a connection to the proxy was made, so the proxy itself did not fail.
    # `latency_s`: the time for a new connection through the proxy to the host; None if none was made.

    retry = True
    reached = False
    latency_s: float | None = None

    def __init__(self, message: str = "", *, retry: bool | None = None) -> None:
        super().__init__(message)
        if retry is not None:
            self.retry = retry


class ConnectFailed(FetchError):
    """The connection failed."""


PROXY_LOGIN_REFUSED = "proxy refused the login"
"""Reason of a `ConnectFailed`, the same for HTTP and SOCKS. Outcomes are classified by this text."""


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
    """A link on a public page leads to a private address."""

    retry = False


class BadResponse(FetchError):
    """The response cannot be decoded."""

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
    """True for a request of `await self.fetch`; False for the leased request itself."""


@public
class HttpError(IgnoreRequest):
    """The callback does not handle this status."""

    def __init__(self, response: Any, message: str = "") -> None:
        super().__init__(message or str(response.status))
        self.response = response


@public
class RetryRequest(LycosaError):
    """Fetch the request again. It counts as a failed attempt; `delay_s` replaces the usual back-off."""

    def __init__(self, reason: str = "requested", delay_s: float | None = None) -> None:
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
    """Stop reading the body."""

    # `response` has the part of the body that was read. With `fail` the errback gets this exception, otherwise the
    # callback gets `response`.

    response: Any = None

    def __init__(self, *, fail: bool = True) -> None:
        super().__init__()
        self.fail = fail


@public
class NotConfigured(LycosaError):
    """The part is not configured."""
