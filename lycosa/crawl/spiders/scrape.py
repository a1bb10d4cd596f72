"""The spider's side of a visit: the response goes in through the spider middlewares to the callback, and what that
yields comes out through them.

    process_spider_input, upwards          what it raises goes to the errback, if the request has one
    callback, on the loop or in a thread   or the errback, for what failed before
    process_results / process_spider_output, downwards
    process_spider_exception, downwards    for what any of these raised: the first to return something rescues the page,
                                           and what it returns goes on through those below it

`RetryRequest` is an order, not a failure: no `process_spider_exception` sees it. `CloseSpider` ends the results where
it is raised; before the callback it ends the visit. The whole of it is a table in `docs/middlewares.md`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from lycosa.core.errors import BadMiddleware, BadSpider, CloseSpider, RetryRequest, StateError
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.engine.records import resolve_callback
from lycosa.crawl.middlewares.chain import Method, SpiderChain
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Scraper:
    """Runs the callbacks of one spider; with `in_thread`, plain functions run there."""

    def __init__(self, spider: Spider, chain: SpiderChain, in_thread: InThread | None = None) -> None:
        self._spider = spider
        self._chain = chain
        self._in_thread = in_thread

    async def scrape(self, request: Request, response: Response) -> Results:
        """Return what the callback makes of the response. Raises what nobody rescued."""
        try:
            for method in self._chain.inputs:
                found = method(response)
                if found is not None and (not hasattr(found, "__await__") or (found := await found) is not None):
                    raise _nonsense(method, found)  # noqa: TRY301
        except (RetryRequest, CloseSpider, StateError):
            raise
        except Exception as error:  # noqa: BLE001  raised again where nobody rescues the page
            results = await self.run_errback(request, error, response)
            return await self._saved(response, error) if results is None else results
        callback, arguments = resolve_callback(self._spider, request.callback), request.callback_arguments()
        try:
            return await self._called(response, callback, response, **arguments)
        except TypeError as error:
            if complaint := user_errors.check_arguments(callback, arguments):
                raise BadSpider(complaint) from error
            raise

    async def run_errback(self, request: Request, cause: Any, response: Response | None = None) -> Results | None:
        """Return what the errback of the request makes of its failure; None when it has none."""
        if request.errback is None:
            return None
        errback = resolve_callback(self._spider, request.errback)
        failure = Failure(cause, request, response)
        return await self._called(response or Response(request.url, 0, request=request), errback, failure)

    async def _called(self, response: Response, callback: Method, /, *given: Any, **arguments: Any) -> Results:
        try:
            if self._in_thread is None:
                results = await _sorted(callback, *given, **arguments)
            else:
                results = await self._in_its_thread(callback, *given, **arguments)
        except (RetryRequest, StateError):
            raise
        except Exception as error:  # noqa: BLE001  as above
            return await self._saved(response, error)
        return await self._out(response, results) if self._chain.outputs else results

    async def _in_its_thread(self, callback: Method, /, *given: Any, **arguments: Any) -> Results:
        assert self._in_thread is not None
        name = _name_of(callback)
        found = await self._in_thread(lambda: collect_now(lambda: callback(*given, **arguments), name))
        return await collect(found, name)

    async def _saved(self, response: Response, error: Exception, after: int = -1) -> Results:
        """Return what the middlewares behind the place `after` make of an exception. Raises it when that is nothing."""
        for place, method in self._chain.exceptions:
            if place > after:
                try:
                    found = method(response, error)
                    found = await found if hasattr(found, "__await__") else found
                except CloseSpider as close:
                    found = Results([], [], [], close.reason)
                if found is not None:
                    return await self._out(response, await collect(found, _name_of(method)), place)
        raise error

    async def _out(self, response: Response, results: Results, after: int = -1) -> Results:
        for place, quick, method in self._chain.outputs:
            if place <= after:
                continue
            try:
                if not quick:
                    found = await _sorted(method, response, _Either(results))
                    results = found._replace(closing=found.closing or results.closing)
                    continue
                given: Any = method(response, results)
                results = await given if hasattr(given, "__await__") else given
                if type(results) is not Results:
                    raise _nonsense(method, results)  # noqa: TRY301
            except (RetryRequest, StateError):
                raise
            except Exception as error:  # noqa: BLE001  as above
                return await self._saved(response, error, place)
        return results


async def _sorted(function: Method, /, *given: Any, **arguments: Any) -> Results:
    try:
        return await collect(function(*given, **arguments), _name_of(function))
    except CloseSpider as close:  # of a function that yields nothing
        return Results([], [], [], close.reason)


def _nonsense(method: Method, found: object) -> BadMiddleware:
    return BadMiddleware(user_errors.check_returned(getattr(method, "__qualname__", "a middleware"), found))


class _Either:
    """Results as what a middleware loops over, with `for` or with `async for`."""

    def __init__(self, results: Results) -> None:
        self._all = [*results.items, *results.requests, *results.links]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._all:
            yield each


def _name_of(callback: Callable[..., Any]) -> str:
    return getattr(callback, "__name__", "the callback")
