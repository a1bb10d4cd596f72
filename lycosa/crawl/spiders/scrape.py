"""The spider's side of a visit: passes a response through the spider middlewares to the callback, and its results back.

    process_spider_input (lowest number first)        an exception goes to the errback, if the request has one
    callback, on the loop or in a thread              or the errback, for an earlier failure
    process_results / process_spider_output (highest number first)
    process_spider_exception (highest number first)   for an exception in any of these: the first method that returns
                                                      results handles it, and its results continue through the
                                                      middlewares with lower numbers

`RetryRequest` is not passed to `process_spider_exception`. If a callback or middleware raises `CloseSpider`, its
earlier results are kept; if `process_spider_input` or `process_results` raises it, the visit ends without results. All
cases: `docs/middlewares.md`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from lycosa.core.errors import BadMiddleware, BadSpider, CloseSpider, RetryRequest, StateError
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.engine.records import resolve_callback
from lycosa.crawl.middlewares.chain import Method, SpiderChain
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect, collect_now, name_of
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Scraper:
    """Runs the callbacks of one spider. With `in_thread`, plain functions run in a thread."""

    def __init__(self, spider: Spider, chain: SpiderChain, in_thread: InThread | None = None) -> None:
        self._spider = spider
        self._chain = chain
        self._in_thread = in_thread

    async def scrape(self, request: Request, response: Response) -> Results:
        """Return the results of the callback. Raises exceptions that neither the errback nor a middleware handles."""
        try:
            for method in self._chain.inputs:
                returned = method(response)
                if returned is not None and (
                    not hasattr(returned, "__await__") or (returned := await returned) is not None
                ):
                    raise _bad_return(method, returned)  # noqa: TRY301
        except (RetryRequest, CloseSpider, StateError):
            raise
        except Exception as error:  # noqa: BLE001  raised again if nothing handles it
            results = await self.run_errback(request, error, response)
            return await self._handle_exception(response, error) if results is None else results
        callback, arguments = resolve_callback(self._spider, request.callback), request.callback_arguments()
        try:
            return await self._run(response, callback, response, **arguments)
        except TypeError as error:
            if complaint := user_errors.check_arguments(callback, arguments):
                raise BadSpider(complaint) from error
            raise

    async def run_errback(self, request: Request, cause: Any, response: Response | None = None) -> Results | None:
        """Return the results of the errback, or None without an errback."""
        if request.errback is None:
            return None
        errback = resolve_callback(self._spider, request.errback)
        failure = Failure(cause, request, response)
        return await self._run(response or Response(request.url, 0, request=request), errback, failure)

    async def _run(self, response: Response, callback: Method, /, *args: Any, **kwargs: Any) -> Results:
        try:
            if self._in_thread is None:
                results = await _collect_call(callback, *args, **kwargs)
            else:
                name = name_of(callback)
                returned = await self._in_thread(lambda: collect_now(lambda: callback(*args, **kwargs), name))
                results = await collect(returned, name)
        except (RetryRequest, StateError):
            raise
        except Exception as error:  # noqa: BLE001
            return await self._handle_exception(response, error)
        return await self._process_output(response, results) if self._chain.outputs else results

    async def _handle_exception(self, response: Response, error: Exception, after: int = -1) -> Results:
        """Return the results of the first middleware after place `after` that handles the error, or raise the error."""
        for place, method in self._chain.exceptions:
            if place > after:
                try:
                    returned = method(response, error)
                    returned = await returned if hasattr(returned, "__await__") else returned
                except CloseSpider as close:
                    returned = Results([], [], [], close.reason)
                if returned is not None:
                    return await self._process_output(response, await collect(returned, name_of(method)), place)
        raise error

    async def _process_output(self, response: Response, results: Results, after: int = -1) -> Results:
        for place, is_process_results, method in self._chain.outputs:
            if place <= after:
                continue
            try:
                if not is_process_results:
                    found = await _collect_call(method, response, _ResultList(results.elements()))
                    results = found._replace(closing=found.closing or results.closing)
                    continue
                returned: Any = method(response, results)
                results = await returned if hasattr(returned, "__await__") else returned
                if type(results) is not Results:
                    raise _bad_return(method, results)  # noqa: TRY301
            except (RetryRequest, StateError):
                raise
            except Exception as error:  # noqa: BLE001
                return await self._handle_exception(response, error, place)
        return results


async def _collect_call(function: Method, /, *args: Any, **kwargs: Any) -> Results:
    try:
        return await collect(function(*args, **kwargs), name_of(function))
    except CloseSpider as close:  # raised by the call itself: the function is not a generator
        return Results([], [], [], close.reason)


def _bad_return(method: Method, returned: object) -> BadMiddleware:
    return BadMiddleware(user_errors.check_returned(getattr(method, "__qualname__", "a middleware"), returned))


class _ResultList(list[Any]):
    """Results for a middleware, which may loop with `for` or `async for`."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for result in self:
            yield result
