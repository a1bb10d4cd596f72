"""What the spiders here share: methods that users name, and what these return, as a list."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.engine.results import RESULTS_MAX


def method_named(spider: object, given: Any, where: str) -> Callable[..., Any]:
    """Return the method that was given, by name or as a function. Raises `BadSpider` when the spider has none.

    A function of the class body is not bound to a spider yet; a function of its own stays what it is.
    """
    if isinstance(given, str):
        found = getattr(spider, given, None)
        if not callable(found):
            raise BadSpider(f"{where}: {type(spider).__name__} has no method {given!r}")
        return found  # type: ignore[no-any-return]
    if not callable(given):
        raise BadSpider(f"{where}: {given!r:.60} is no method: write the name of one")
    name = getattr(given, "__name__", "")
    of_class = any(vars(each).get(name) is given for each in type(spider).__mro__)
    return getattr(spider, name) if of_class else given  # type: ignore[no-any-return]


def name_of_method(spider: object, given: Any, where: str) -> str:
    """Return the name of a method, for a request that is stored. Raises `BadSpider` for any other function."""
    method = method_named(spider, given, where)
    name = getattr(method, "__name__", "")
    if getattr(spider, name, None) != method:
        message = f"{where}: {name or given!r} is not a method of {type(spider).__name__}"
        raise BadSpider(message + ", so it could not be found again after a restart: make it one")
    return name


def is_later(returned: Any) -> bool:
    """Return whether something has to be awaited to know what was returned."""
    return inspect.isawaitable(returned) or isinstance(returned, AsyncIterable)


def listed(returned: Any) -> list[Any]:
    """Return what a callback returned as a list, without Nones. Raises `BadSpider` when there is no end to it."""
    elements = returned if isinstance(returned, (list, tuple, Iterator)) else (returned,)
    return _bounded(elements)


async def listed_later(returned: Any) -> list[Any]:
    """Wait for what a callback returned, and return it as a list. See `listed`."""
    if inspect.isawaitable(returned):
        returned = await returned
    if not isinstance(returned, AsyncIterable):
        return listed(returned)
    found: list[Any] = []
    async for each in returned:
        found.append(each)
        if len(found) > RESULTS_MAX:
            break
    return _bounded(found)


def _bounded(elements: Iterable[Any]) -> list[Any]:
    found = [each for each in islice(elements, RESULTS_MAX + 1) if each is not None]
    if len(found) > RESULTS_MAX:
        raise BadSpider(f"more than {RESULTS_MAX} results for one page: yield requests for parts of it")
    return found
