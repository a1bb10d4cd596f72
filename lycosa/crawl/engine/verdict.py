"""Verdicts: how a download ends without a response for the callback. Downloader middlewares return them."""

from __future__ import annotations

from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider, CloseSpider, FetchError, HttpError, IgnoreRequest
from lycosa.core.retry import RetryDecision
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request

REASON_MAX = 120


class Failed(NamedTuple):
    """The request failed: it is retried at `retry_at`, or dead if `retry_at` is None. Times are unix seconds.

    The host is blocked until `block_until`. `cause` is the exception or response for the errback.
    """

    reason: str
    retry_at: float | None = None
    block_until: float = 0.0
    contacted: bool = True
    cause: Any = None


class Replace(NamedTuple):
    """The record is done for this reason; `request` is fetched instead, at the same depth.

    `status` is the HTTP status of the response, or 0.
    """

    request: Request
    reason: str = "replaced"
    bytes: int = 0
    contacted: bool = True
    status: int = 0


class Ignored(NamedTuple):
    """The record is done for this reason, without a page. `cause` is the exception or response for the errback."""

    reason: str
    contacted: bool = True
    bytes: int = 0
    cause: Any = None


class Unchanged(NamedTuple):
    """The page has not changed since the last fetch (304)."""

    validators: Validators
    bytes: int = 0


class AnsweredWithItem(NamedTuple):
    """A middleware returned an item instead of a response: it goes to the pipelines, and the record is done."""

    item: Any
    contacted: bool = True


class CloseCrawl(NamedTuple):
    """The crawl closes for this reason. The record stays queued for the next run."""

    reason: str


class Deferred(NamedTuple):
    """The host is blocked until `until` (unix seconds). The record stays queued."""

    until: float


Verdict = Failed | Replace | Ignored | Unchanged | AnsweredWithItem | CloseCrawl | Deferred
VERDICTS = (Failed, Replace, Ignored, Unchanged, AnsweredWithItem, CloseCrawl, Deferred)


def failed_after(decision: RetryDecision, cause: Any = None) -> Failed:
    """Convert a retry decision to a verdict."""
    return Failed(decision.reason, decision.retry_at, decision.block_host_until, cause=cause)


def exception_of(verdict: Verdict) -> Exception:
    """Return the exception of a request without a response, for `fetch` and errbacks."""
    cause = verdict.cause if isinstance(verdict, (Failed, Ignored)) else None
    if isinstance(cause, Exception):
        return cause
    if isinstance(cause, Response):
        return HttpError(cause)
    if isinstance(verdict, CloseCrawl):
        return CloseSpider(verdict.reason)
    if isinstance(verdict, AnsweredWithItem):
        return BadSpider("a middleware answered an inline request with an item: return a Response instead")
    if isinstance(verdict, Ignored):
        return IgnoreRequest(verdict.reason)
    return FetchError(verdict.reason if isinstance(verdict, (Failed, Replace)) else "no response", retry=False)


def without_contact(verdict: Verdict) -> Verdict:
    """Return the verdict with `contacted` False, so that the next request to the host need not wait."""
    if isinstance(verdict, (Failed, Replace, Ignored, AnsweredWithItem)):
        return verdict._replace(contacted=False)
    return verdict


def reason_text(text: str) -> str:
    """Return the first line of the text, at most REASON_MAX characters, without lone surrogates."""
    line = text.split("\n", 1)[0]
    shown = line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 3]}..."
    return shown.encode("utf-8", "replace").decode()
