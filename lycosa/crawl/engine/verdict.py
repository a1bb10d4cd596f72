"""What the fetching side of a visit may end in, when it does not end in a response for the callback.

A built-in downloader middleware returns these; what a user's returns (a request, an item) is turned into them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider, CloseSpider, FetchError, HttpError, IgnoreRequest
from lycosa.core.retry import Decision
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request

REASON_MAX = 120
"""Characters of a reason that are kept."""


class Failed(NamedTuple):
    """It failed: again at `retry_at`, or dead when that is None; the host rests until `block_until` (unix seconds).

    `cause` is the exception, or the response with the status, that an errback gets to see.
    """

    reason: str
    retry_at: float | None = None
    block_until: float = 0.0
    contacted: bool = True
    cause: Any = None


class Instead(NamedTuple):
    """The record is done for this reason; `request` is fetched in its place, at the same depth."""

    request: Request
    reason: str = "replaced"
    bytes: int = 0
    contacted: bool = True


class Ignored(NamedTuple):
    """The record is done for this reason, without a page. `cause` is what an errback gets to see."""

    reason: str
    contacted: bool = True
    bytes: int = 0
    cause: Any = None


class Unchanged(NamedTuple):
    """The page is what it was when it was fetched last."""

    validators: Validators
    bytes: int = 0


class Answered(NamedTuple):
    """An item came in place of a response: it goes through the pipelines, and the record is done."""

    item: Any
    contacted: bool = True


class Closing(NamedTuple):
    """The crawl is to end for this reason; the record stays as it was, for the next run."""

    reason: str


class NotYet(NamedTuple):
    """The host rests until then (unix seconds); the record stays as it was."""

    until: float


Verdict = Failed | Instead | Ignored | Unchanged | Answered | Closing | NotYet
VERDICTS = (Failed, Instead, Ignored, Unchanged, Answered, Closing, NotYet)


def failed(decision: Decision, cause: Any = None) -> Failed:
    """Return the failure that a retry decision means."""
    return Failed(decision.reason, decision.retry_at, decision.block_host_until, cause=cause)


def exception_of(found: Verdict) -> Exception:
    """Return what is raised, or given to an errback, for a request that came to nothing."""
    cause = found.cause if isinstance(found, (Failed, Ignored)) else None
    if isinstance(cause, Exception):
        return cause
    if isinstance(cause, Response):
        return HttpError(cause)
    if isinstance(found, Closing):
        return CloseSpider(found.reason)
    if isinstance(found, Answered):
        return BadSpider("a middleware answered an inline request with an item: return a Response there")
    if isinstance(found, Ignored):
        return IgnoreRequest(found.reason)
    return FetchError(found.reason if isinstance(found, (Failed, Instead)) else "nothing came back", retry=False)


def without_contact(found: Verdict) -> Verdict:
    """Return a verdict as one for which the host was not asked: its next turn need not wait."""
    return found._replace(contacted=False) if isinstance(found, (Failed, Instead, Ignored, Answered)) else found


def storable(text: str) -> str:
    """Return a reason as it is kept: one line, bounded, without halves of surrogate pairs."""
    line = text.split("\n", 1)[0]
    shown = line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 3]}..."
    return shown.encode("utf-8", "replace").decode()
