"""Helpers of the spider classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lycosa.core.errors import BadSpider, CloseSpider
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results, collect_now


def compile_regex(regex: Any, where: str) -> re.Pattern[str]:
    """Compile a regular expression, unless it is compiled already. Raises `BadSpider`."""
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise BadSpider(f"{where}: {regex!r} is not a regular expression: {error}") from error


def apply_process_results(
    process_results: Callable[[Response, list[Any]], Any], response: Response, results: Results
) -> Results:
    """Apply the user's `process_results`. Keep the reason of a `CloseSpider` that it or the callback has raised."""
    found: Results = collect_now(lambda: process_results(response, results.elements()), "process_results")
    return found._replace(closing=found.closing or results.closing)


def yield_results(results: Results) -> Iterator[Any]:
    """Yield the results one by one, then raise their `CloseSpider`, if any."""
    yield from results.elements()
    if results.closing:
        raise CloseSpider(results.closing)
