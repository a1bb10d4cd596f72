"""Every exception Lycosa raises on purpose.

    LycosaError
    |-- UsageError            the user wrote something wrong: exit 2, one line says what to write instead
    |   |-- BadUrl            not an absolute http(s) URL
    |   |-- BadSetting        unknown name, or a value outside its range
    |   `-- BadSpider         a spider file or class that cannot run
    |-- StateError            the crawl cannot start or go on: exit 3
    |   |-- StateLocked       another process owns the state
    |   |-- ForeignState      the folder holds something else
    |   |-- NewerState        written by a newer Lycosa
    |   |-- StorageFull       no room left on the device
    |   `-- StorageError      any other failure of the disk or the database
    |-- IndexFailure          the search index is missing, foreign, or refuses the query
    |-- FetchError            a transfer failed; `retry` says whether trying again can help
    |   |-- ConnectFailed     no address, no connection: the host is to blame
    |   |-- ConnectionLost    it ended before the answer was complete
    |   |-- FetchTimeout      too slow
    |   |-- TlsFailed         certificate or handshake
    |   |-- BodyTooLarge      more bytes than allowed, before or after decompression
    |   `-- BadResponse       bytes that are not HTTP, or cannot be decoded
    |-- BadItem               a spider's item holds something that cannot be written
    `-- DropItem              raised by a pipeline: this item goes nowhere

The class docstring is the default message.
"""


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


class BadSpider(UsageError):
    """This spider cannot run."""


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


class StorageError(StateError):
    """The storage failed."""


class IndexFailure(LycosaError):
    """The search index cannot be used."""


class FetchError(LycosaError):
    """The transfer failed."""

    retry = True

    def __init__(self, message: str = "", *, retry: bool | None = None) -> None:
        super().__init__(message)
        if retry is not None:
            self.retry = retry


class ConnectFailed(FetchError):
    """The connection failed."""


class ConnectionLost(FetchError):
    """The connection was lost."""


class FetchTimeout(FetchError):
    """The transfer took too long."""


class TlsFailed(FetchError):
    """The TLS handshake failed."""


class BodyTooLarge(FetchError):
    """The body is larger than allowed."""

    retry = False


class BadResponse(FetchError):
    """The answer cannot be decoded."""

    retry = False


class BadItem(LycosaError):
    """The item cannot be written."""


class DropItem(LycosaError):
    """The item was dropped."""
