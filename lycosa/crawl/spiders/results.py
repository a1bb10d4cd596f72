"""Sorts the results of a callback into items, requests and links.

| the callback returns                | results                         |
|-------------------------------------|---------------------------------|
| None                                | none                            |
| a `Request`, a link or an item      | that value                      |
| a list, tuple, generator, iterator  | each of its elements            |
| an async generator                  | each of its elements            |
| a coroutine                         | as above, for its return value  |
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

RESULTS_MAX = 1_000_000
"""Maximum items and requests of one callback, without links: they are held in memory until it ends."""


class Results(NamedTuple):
    """The results of one callback. `closing` is the reason if it ended with `CloseSpider`, else ""."""

    items: list[Any]
    requests: list[Request]
    links: list[PageLink]
    closing: str = ""

    def elements(self) -> list[Any]:
        return [*self.items, *self.requests, *self.links]


async def collect(returned: Any, name: str) -> Results:
    """Sort the return value of the callback `name`. Raises `BadSpider` for anything but items, requests and links."""
    if type(returned) is Results:
        return returned
    results = Results([], [], [])
    try:
        if inspect.iscoroutine(returned):
            returned = await returned
        if inspect.isasyncgen(returned) or isinstance(returned, AsyncIterable):
            async for result in returned:
                _add(result, results, name)
        else:
            for result in _elements(returned):
                _add(result, results, name)
    except CloseSpider as close:  # the results that were yielded before it are kept
        return results._replace(closing=close.reason)
    return results


def collect_now(call: Callable[[], Any], name: str) -> Any:
    """Call a plain function and sort its results, in this thread. Return an awaitable or async iterable unchanged."""
    results = Results([], [], [])
    try:
        returned = call()
        if type(returned) is Results or inspect.isawaitable(returned) or isinstance(returned, AsyncIterable):
            return returned
        for result in _elements(returned):
            _add(result, results, name)
    except CloseSpider as close:
        return results._replace(closing=close.reason)
    return results


def name_of(callback: object) -> str:
    """Return the name of a callback for messages."""
    return getattr(callback, "__name__", "the callback")


def _elements(returned: Any) -> Iterable[Any]:
    if returned is None:
        return ()
    if isinstance(returned, (list, tuple, Iterator)) and not isinstance(returned, PageLink):  # a PageLink is a tuple
        return returned
    return (returned,)


def _add(result: Any, results: Results, name: str) -> None:
    if type(result) is PageLink:
        results.links.append(result)
    elif isinstance(result, Request):
        results.requests.append(result)
    elif is_item(result):
        results.items.append(result)
    elif result is not None:
        raise BadSpider(user_errors.check_result(result, name))
    if len(results.items) + len(results.requests) > RESULTS_MAX:
        raise BadSpider(f"{name} yielded more than {RESULTS_MAX} results for one page: yield requests for its parts")
