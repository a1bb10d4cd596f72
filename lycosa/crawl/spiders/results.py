"""What a callback gave back, whatever its form: split into items, requests and links.

| the callback is or returns          | it means                        |
|-------------------------------------|---------------------------------|
| None                                | nothing                         |
| a `Request`, a link or an item      | that one                        |
| a list, tuple, generator, iterator  | each of its elements            |
| an async generator                  | each of its elements            |
| a coroutine                         | what it returns, as above       |
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.items.items import is_item
from lycosa.html.links import PageLink
from lycosa.http.core.request import Request

__all__ = ["RESULTS_MAX", "Results", "collect", "collect_now", "is_item"]

RESULTS_MAX = 1_000_000
"""Results of one callback; they are held in memory until it ends."""


class Results(NamedTuple):
    """The results of one callback. `closing` is the reason of a `CloseSpider` that it ended with, "" for none."""

    items: list[Any]
    requests: list[Request]
    links: list[PageLink]
    closing: str = ""


async def collect(returned: Any, name: str) -> Results:
    """Sort what the callback `name` returned. Raises `BadSpider` for what is neither item nor request."""
    if type(returned) is Results:
        return returned
    results = Results([], [], [])
    try:
        if inspect.iscoroutine(returned):
            returned = await returned
        if inspect.isasyncgen(returned) or isinstance(returned, AsyncIterable):
            async for result in returned:
                _sort(result, results, name)
        else:
            for result in _elements(returned):
                _sort(result, results, name)
    except CloseSpider as close:
        return results._replace(closing=close.reason)
    return results


def collect_now(call: Callable[[], Any], name: str) -> Any:
    """Call a plain function and sort what it returned, in the thread that runs; what has to be awaited is returned."""
    results = Results([], [], [])
    try:
        returned = call()
        if type(returned) is Results or inspect.isawaitable(returned) or isinstance(returned, AsyncIterable):
            return returned
        for result in _elements(returned):
            _sort(result, results, name)
    except CloseSpider as close:
        return results._replace(closing=close.reason)
    return results


def _elements(returned: Any) -> Iterable[Any]:
    if returned is None:
        return ()
    if isinstance(returned, (list, tuple, Iterator)) and not isinstance(returned, PageLink):
        return returned
    return (returned,)


def _sort(result: Any, results: Results, name: str) -> None:
    if type(result) is PageLink:
        results.links.append(result)
    elif isinstance(result, Request):
        results.requests.append(result)
    elif is_item(result):
        results.items.append(result)
    elif result is not None:
        raise BadSpider(user_errors.check_result(result, name))
    if len(results.items) + len(results.requests) > RESULTS_MAX:
        raise BadSpider(f"{name} yielded more than {RESULTS_MAX} results for one page; yield requests for parts of it")
