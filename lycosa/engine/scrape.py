"""The spider's side of a visit: the response goes in through the spider middlewares to the callback, and what that
yields comes out through them.

    process_spider_input, upwards          an exception goes to the errback, if the request has one
    callback, on the loop or in a thread   or the errback, for what failed before
    process_spider_exception, downwards    for what the callback raised: the first to return something rescues the page
    process_results / process_spider_output, downwards
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from lycosa.core.errors import RetryRequest
from lycosa.core.model import Request
from lycosa.engine.failure import Failure
from lycosa.engine.middleware import Method, SpiderChain
from lycosa.engine.records import method_of
from lycosa.engine.response import Response
from lycosa.engine.results import Results, collect, collect_now
from lycosa.engine.spider import Spider

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
                if found is not None and hasattr(found, "__await__"):
                    await found
        except RetryRequest:
            raise
        except Exception as error:
            results = await self.rescue(request, error, response)
            if results is None:
                raise
            return results
        return await self._called(method_of(self._spider, request.callback), request, response)

    async def rescue(self, request: Request, cause: Any, response: Response | None = None) -> Results | None:
        """Return what the errback of the request makes of its failure; None when it has none."""
        if request.errback is None:
            return None
        errback = method_of(self._spider, request.errback)
        failure = Failure(cause, request, response)
        results = await self._run(lambda: errback(failure), _name_of(errback))
        return await self._out(response or Response(request.url, 0, request=request), results)

    async def _called(self, callback: Method, request: Request, response: Response) -> Results:
        arguments = request.asked_arguments()
        try:
            if self._in_thread is None:
                results = await collect(callback(response, **arguments), _name_of(callback))
            else:
                results = await self._run(lambda: callback(response, **arguments), _name_of(callback))
            return await self._out(response, results) if self._chain.outputs else results
        except RetryRequest:
            raise
        except Exception as error:
            rescued = await self._rescued(response, error)
            if rescued is None:
                raise
            return rescued

    async def _run(self, call: Callable[[], Any], name: str) -> Results:
        if self._in_thread is None:
            return await collect(call(), name)
        return await collect(await self._in_thread(lambda: collect_now(call, name)), name)

    async def _rescued(self, response: Response, error: Exception) -> Results | None:
        for method in self._chain.exceptions:
            found = method(response, error)
            if found is not None and hasattr(found, "__await__"):
                found = await found
            if found is not None:
                return await collect(found, _name_of(method))
        return None

    async def _out(self, response: Response, results: Results) -> Results:
        for quick, method in self._chain.outputs:
            if quick:
                found = method(response, results)
                results = await found if hasattr(found, "__await__") else found
            else:
                found = await collect(method(response, _Either(results)), _name_of(method))
                results = found._replace(closing=found.closing or results.closing)
        return results


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
