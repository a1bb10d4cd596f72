"""Middlewares: downloader middlewares between engine and fetcher, spider middlewares between engine and spider.

A middleware is any object with one or more of these methods; each may be `async`. A class is instantiated by its
`from_crawler(crawler)` or `from_settings(settings)`, else without arguments. The methods for requests and for the input
of a spider are called in ascending order of the middlewares' numbers, the others in descending order.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lycosa.core.errors import BadMiddleware
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.http.core.request import Request

log = logging.getLogger(__name__)


@runtime_checkable
class ProcessesRequests(Protocol):
    """A downloader middleware for requests before the download."""

    def process_request(self, request: Request) -> Any:
        """Return None to continue, or a Response, Request or item to use instead of a download."""


@runtime_checkable
class ProcessesResponses(Protocol):
    """A downloader middleware for responses."""

    def process_response(self, request: Request, response: Response) -> Any:
        """Return a Response to continue with, or a Request or item to use instead."""


@runtime_checkable
class ProcessesExceptions(Protocol):
    """A downloader middleware for exceptions of the download or of a `process_request`."""

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Return None to pass the exception on, or a Response, Request or item to use instead."""


@runtime_checkable
class ProcessesStart(Protocol):
    """A spider middleware for the start requests."""

    def process_start(self, start: AsyncIterable[Any]) -> AsyncIterable[Any]: ...


@runtime_checkable
class ProcessesSpiderInput(Protocol):
    """A spider middleware for responses before their callback."""

    def process_spider_input(self, response: Response) -> Any:
        """Return None to continue, or raise an exception, which goes to the errback."""


@runtime_checkable
class ProcessesSpiderOutput(Protocol):
    """A spider middleware for the items and requests of callbacks."""

    def process_spider_output(self, response: Response, result: Any) -> Iterable[Any] | AsyncIterable[Any]:
        """Yield items and requests."""


@runtime_checkable
class ProcessesSpiderExceptions(Protocol):
    """A spider middleware for the exceptions of callbacks."""

    def process_spider_exception(self, response: Response, exception: Exception) -> Any:
        """Return None to pass the exception on, or items and requests to use as the result of the callback."""


@runtime_checkable
class ProcessesResults(Protocol):
    """The fast kind of spider middleware: it receives all results of a page at once, grouped by type."""

    def process_results(self, response: Response, results: Results) -> Results:
        """Return the results to continue with."""


METHODS = {
    "process_request": 1,
    "process_response": 2,
    "process_exception": 2,
    "process_start": 1,
    "process_spider_input": 1,
    "process_spider_output": 2,
    "process_spider_exception": 2,
    "process_results": 2,
}
"""The methods of a middleware and their number of arguments, without the optional `spider`."""

Method = Callable[..., Any]


class PlacedMiddleware(NamedTuple):
    """A middleware and its number: lower numbers are nearer to the engine."""

    order: int
    part: Any


class DownloaderChain:
    """The downloader middlewares, as ordered lists of the methods to call. Raises `BadMiddleware`."""

    def __init__(self, placed: Sequence[PlacedMiddleware], spider: object) -> None:
        parts = [each.part for each in sorted(placed, key=lambda each: each.order)]
        _check(parts, spider)
        self.requests = methods(parts, "process_request", spider)
        self.responses = methods(parts[::-1], "process_response", spider)
        self.exceptions = methods(parts[::-1], "process_exception", spider)


class SpiderChain:
    """The spider middlewares, as ordered lists of the methods to call. Raises `BadMiddleware`.

    Each entry of `outputs` and `exceptions` begins with the place of its middleware; 0 is nearest to the spider. The
    results of a middleware go to the middlewares at higher places. For each middleware, `outputs` has its
    `process_results` (marked True), or else its `process_spider_output`.
    """

    def __init__(self, placed: Sequence[PlacedMiddleware], spider: object) -> None:
        parts = [each.part for each in sorted(placed, key=lambda each: each.order)]
        _check(parts, spider)
        self.starts = methods(parts[::-1], "process_start", spider)
        self.inputs = methods(parts, "process_spider_input", spider)
        self.outputs: list[tuple[int, bool, Method]] = []
        self.exceptions: list[tuple[int, Method]] = []
        for place, part in enumerate(reversed(parts)):
            fast = isinstance(part, ProcessesResults)
            name = "process_results" if fast else "process_spider_output"
            self.outputs += [(place, fast, each) for each in methods([part], name, spider)]
            self.exceptions += [(place, each) for each in methods([part], "process_spider_exception", spider)]


def methods(parts: Iterable[Any], name: str, spider: object) -> list[Method]:
    """Return the method `name` of each middleware that has one, and pass the spider to methods that take it."""
    found = (getattr(part, name, None) for part in parts)
    return [with_spider(method, METHODS[name], spider) for method in found if method is not None]


def with_spider(method: Method, count: int, spider: object) -> Method:
    """Return a function of `count` arguments that also passes the spider if needed. Raises `BadMiddleware`."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C, without a signature: call it without the spider
        return method
    arguments = [None] * count
    # Try by name first, because a method may have optional arguments before `spider`.
    if "spider" in signature.parameters and _takes(signature, arguments, spider=spider):
        return wraps(method)(lambda *args: method(*args, spider=spider))
    if _takes(signature, arguments):
        return method
    if _takes(signature, [*arguments, spider]):
        return wraps(method)(lambda *args: method(*args, spider))
    raise BadMiddleware(f"{method.__qualname__}{signature} must take {count} argument(s) and, optionally, spider")


def _takes(signature: inspect.Signature, arguments: Sequence[object], **named: object) -> bool:
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        return False
    return True


def _check(parts: Iterable[Any], spider: object) -> None:
    for part in parts:
        if not any(callable(getattr(part, name, None)) for name in METHODS):
            what = f"the middleware {type(part).__name__} of {type(spider).__name__}"
            raise BadMiddleware(f"{what} has none of the methods {', '.join(METHODS)}")
        if complaint := user_errors.check_methods(part, METHODS):
            log.warning("%s", complaint)
