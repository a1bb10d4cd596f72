"""Helpers of the spider classes: methods and regular expressions that users write, and the results of callbacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect_now


def find_method(spider: object, method: Any, where: str) -> Callable[..., Any]:
    """Return the bound method for a name or a function. Raises `BadSpider` if the spider has none of that name.

    Other functions are returned as they are. `where` begins the error message.
    """
    if isinstance(method, str):
        found = getattr(spider, method, None)
        if not callable(found):
            raise BadSpider(f"{where}: {type(spider).__name__} has no method {method!r}")
        return found  # type: ignore[no-any-return]
    if not callable(method):
        raise BadSpider(f"{where}: {method!r:.60} is no method: write the name of one")
    name = getattr(method, "__name__", "")
    # In a class body, as in `rules = [Rule(callback=parse_item)]`, a method is still a plain function.
    is_unbound = any(vars(each).get(name) is method for each in type(spider).__mro__)
    return getattr(spider, name) if is_unbound else method  # type: ignore[no-any-return]


def stored_method_name(spider: object, method: Any, where: str) -> str:
    """Return the name of a method, to be stored with a request. Raises `BadSpider` for other functions."""
    method = find_method(spider, method, where)
    name = getattr(method, "__name__", "")
    if getattr(spider, name, None) != method:
        message = f"{where}: {name or method!r} is not a method of {type(spider).__name__}"
        raise BadSpider(message + ", so it could not be found again after a restart: make it one")
    return name


def compile_regex(regex: Any, where: str) -> re.Pattern[str]:
    """Compile a regular expression, if it is not compiled yet. Raises `BadSpider`."""
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise BadSpider(f"{where}: {regex!r} is not a regular expression: {error}") from error


def apply_process_results(
    process_results: Callable[[Response, list[Any]], Any], response: Response, results: Results
) -> Results:
    """Return the results as the user's method changes them. A `CloseSpider` of the callback is kept."""
    found: Results = collect_now(lambda: process_results(response, results.elements()), "process_results")
    return found._replace(closing=found.closing or results.closing)


def yield_results(results: Results) -> Iterator[Any]:
    """Yield the results one by one. Raises the `CloseSpider` that they end with."""
    yield from results.elements()
    if results.closing:
        raise CloseSpider(results.closing)
