"""Logs each step of a request as one line at level DEBUG, in Scrapy's format.

    Crawled (200) <GET https://example.com/> (referer: None)
    Retrying <GET https://example.com/> (failed 1 times): 503
    Ignored <GET https://example.com/login>: robots
    Filtered request (scope): <GET https://elsewhere.example/>
    Scraped from <200 https://example.com/>: 2 items

JSON logs have the values in separate fields, too. Callers check `is_enabled` first.
"""

from __future__ import annotations

import logging
from typing import Any

from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)


def is_enabled() -> bool:
    """Whether level DEBUG is logged."""
    return log.isEnabledFor(logging.DEBUG)


def log_crawled(spider: str, request: Request, response: Response) -> None:
    """Log a response that a callback gets."""
    status, referer = response.raw.status, request.headers.get("referer")
    flags = f" {response.flags}" if response.flags else ""
    fields = {"status": status, "method": request.method, "referer": referer, "bytes": response.raw.size_bytes}
    _log(spider, request.url, f"Crawled ({status}) {_shown(request)} (referer: {referer}){flags}", **fields)


def log_scraped(spider: str, response: Response, count: int) -> None:
    """Log the number of items scraped from a page."""
    source = f"<{response.raw.status} {response.url}>"
    _log(spider, response.url, f"Scraped from {source}: {count} item{'s' * (count != 1)}", items=count)


def log_redirect(spider: str, record: UrlRecord, target: UrlRecord, reason: str, status: int) -> None:
    """Log that `target` is fetched instead of `record`."""
    verb = "Redirecting" if reason == "redirect" else "Replacing"
    why = f" ({status})" if status else ""
    text = f"{verb}{why} to {_shown(target)} from {_shown(record)}"
    _log(spider, record.url, text, status=status, target=target.url)


def log_failed(spider: str, record: UrlRecord, reason: str, *, is_retried: bool) -> None:
    """Log that a request failed, and whether it is retried."""
    failures = record.attempts + 1
    verb = "Retrying" if is_retried else "Gave up"
    text = f"{verb} {_shown(record)} (failed {failures} times): {reason}"
    _log(spider, record.url, text, reason=reason, failures=failures)


def log_ignored(spider: str, record: UrlRecord, reason: str) -> None:
    """Log a request that ends without a page."""
    _log(spider, record.url, f"Ignored {_shown(record)}: {reason}", reason=reason)


def log_duplicate(spider: str, url: str) -> None:
    """Log a link that is known already."""
    _log(spider, url, f"Filtered duplicate request: <GET {url}>", reason="duplicate")


def log_filtered(spider: str, url: str, reason: str) -> None:
    """Log a link that the scope rejects."""
    _log(spider, url, f"Filtered request ({reason}): <GET {url}>", reason=reason)


def _log(spider: str, url: str, text: str, **fields: Any) -> None:
    log.debug("%s", text, extra={"url": url, "spider": spider, **fields})


def _shown(request: Request | UrlRecord) -> str:
    if isinstance(request, UrlRecord):
        return f"<{request.extras.method if request.extras is not None else 'GET'} {request.url}>"
    return f"<{request.method} {request.url}>"
