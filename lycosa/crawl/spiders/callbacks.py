"""What the spiders here share: methods that users name, and what becomes of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect_now


def find_method(spider: object, given: Any, where: str) -> Callable[..., Any]:
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


def stored_method_name(spider: object, given: Any, where: str) -> str:
    """Return the name of a method, for a request that is stored. Raises `BadSpider` for any other function."""
    method = find_method(spider, given, where)
    name = getattr(method, "__name__", "")
    if getattr(spider, name, None) != method:
        message = f"{where}: {name or given!r} is not a method of {type(spider).__name__}"
        raise BadSpider(message + ", so it could not be found again after a restart: make it one")
    return name


def apply_process_results(
    process: Callable[[Response, list[Any]], Any], response: Response, results: Results
) -> Results:
    """Return the results as a method of the user's wants them. What ended the callback early still counts."""
    everything = [*results.items, *results.requests, *results.links]
    found: Results = collect_now(lambda: process(response, everything), "process_results")
    return found._replace(closing=found.closing or results.closing)


def yield_results(results: Results) -> Iterator[Any]:
    """Yield the results one by one. Raises the `CloseSpider` that they end with."""
    yield from results.items
    yield from results.requests
    yield from results.links
    if results.closing:
        raise CloseSpider(results.closing)
