"""Middlewares: what stands between the engine and the fetcher, and between the engine and the spider.

A middleware is any object with one or more of these methods; each may be `async`. A class is made without arguments, or
by its `from_crawler(crawler)`. They are called in the order of their numbers: requests and what goes to the spider
upwards, responses, exceptions and what comes from the spider downwards.
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
    """A downloader middleware that sees requests on their way out."""

    def process_request(self, request: Request) -> Any:
        """Return None to go on; a Response, Request or item to have that instead of a download."""
        ...


@runtime_checkable
class ProcessesResponses(Protocol):
    """A downloader middleware that sees responses on their way in."""

    def process_response(self, request: Request, response: Response) -> Any:
        """Return a Response to go on with, or a Request or item to have that instead."""
        ...


@runtime_checkable
class ProcessesExceptions(Protocol):
    """A downloader middleware that sees what the download, or a `process_request`, raised."""

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Return None to let others see it; a Response, Request or item to have that instead."""
        ...


@runtime_checkable
class ProcessesStart(Protocol):
    """A spider middleware that sees the first requests."""

    def process_start(self, start: AsyncIterable[Any]) -> AsyncIterable[Any]:
        """Yield the requests to begin with."""
        ...


@runtime_checkable
class ProcessesSpiderInput(Protocol):
    """A spider middleware that sees responses before their callback."""

    def process_spider_input(self, response: Response) -> Any:
        """Return None; an exception goes to the errback."""
        ...


@runtime_checkable
class ProcessesSpiderOutput(Protocol):
    """A spider middleware that sees what callbacks yield."""

    def process_spider_output(self, response: Response, result: Any) -> Iterable[Any] | AsyncIterable[Any]:
        """Yield items and requests."""
        ...


@runtime_checkable
class ProcessesSpiderExceptions(Protocol):
    """A spider middleware that sees what callbacks raise."""

    def process_spider_exception(self, response: Response, exception: Exception) -> Any:
        """Return None to let others see it, or what the callback should have yielded."""
        ...


@runtime_checkable
class ProcessesResults(Protocol):
    """The quick form of a spider middleware: the results of a page, sorted already, all at once."""

    def process_results(self, response: Response, results: Results) -> Results:
        """Return the results to go on with."""
        ...


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
"""The methods of a middleware, and how many arguments each takes; one more is the spider."""

Method = Callable[..., Any]


class PlacedMiddleware(NamedTuple):
    """A middleware and its place: lower numbers are nearer to the engine."""

    order: int
    part: Any


class DownloaderChain:
    """The downloader middlewares in order, as lists of what is to be called. Raises `BadMiddleware`."""

    def __init__(self, placed: Sequence[PlacedMiddleware], spider: object) -> None:
        parts = [each.part for each in sorted(placed, key=lambda each: each.order)]
        _check(parts, spider)
        self.requests = methods(parts, "process_request", spider)
        self.responses = methods(parts[::-1], "process_response", spider)
        self.exceptions = methods(parts[::-1], "process_exception", spider)


class SpiderChain:
    """The spider middlewares in order, as lists of what is to be called. Raises `BadMiddleware`.

    `outputs` and `exceptions` come with the place of their part, 0 for the one nearest to the spider: what one of them
    gives back goes on to those of higher places. `outputs` holds `process_results` and `process_spider_output`,
    whichever a part has; the former is marked True.
    """

    def __init__(self, placed: Sequence[PlacedMiddleware], spider: object) -> None:
        parts = [each.part for each in sorted(placed, key=lambda each: each.order)]
        _check(parts, spider)
        self.starts = methods(parts[::-1], "process_start", spider)
        self.inputs = methods(parts, "process_spider_input", spider)
        self.outputs: list[tuple[int, bool, Method]] = []
        self.exceptions: list[tuple[int, Method]] = []
        for place, part in enumerate(reversed(parts)):
            quick = isinstance(part, ProcessesResults)
            name = "process_results" if quick else "process_spider_output"
            self.outputs += [(place, quick, each) for each in methods([part], name, spider)]
            self.exceptions += [(place, each) for each in methods([part], "process_spider_exception", spider)]


def methods(parts: Iterable[Any], name: str, spider: object) -> list[Method]:
    """Return this method of each part that has it, with the spider given where it asks for one."""
    found = (getattr(part, name, None) for part in parts)
    return [with_spider(method, METHODS[name], spider) for method in found if method is not None]


def with_spider(method: Method, count: int, spider: object) -> Method:
    """Return the method as one of `count` arguments. Raises `BadMiddleware`."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return method
    arguments = [None] * count
    if "spider" in signature.parameters and _takes(signature, arguments, spider=spider):
        return wraps(method)(lambda *given: method(*given, spider=spider))
    if _takes(signature, arguments):
        return method
    if _takes(signature, [*arguments, spider]):
        return wraps(method)(lambda *given: method(*given, spider))
    raise BadMiddleware(f"{method.__qualname__}{signature} does not take what it is called with")


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
