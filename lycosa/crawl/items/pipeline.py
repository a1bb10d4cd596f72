"""Item pipelines: each takes an item and returns it, changed or not, or raises `DropItem`.

A pipeline is an object with `process_item(item)`, which may take a second argument, the spider; `open_spider` and
`close_spider` are optional and may take the spider; each may be `async`. A class is made by its `from_crawler(crawler)`
or `from_settings(settings)` if it has one, else without arguments; `NotConfigured` raised there leaves it out.

    an item is returned           it goes on to the next pipeline, and at last to the sinks
    DropItem is raised            the item goes nowhere, the page goes on
    CloseSpider is raised         likewise, and the crawl ends
    anything else is raised       the page is dead with that reason: no item of it is written, so none is lost;
                                  `lycosa frontier requeue` gives all of them again

The items of a page begin in order and come out in order. Where a pipeline awaits, the next items of the page go on
beside it, at most `concurrent_items` of them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider, CloseSpider, DropItem
from lycosa.crawl.crawler import build_part
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.items.items import is_item
from lycosa.crawl.spiders.spider import wrap_user_errors

log = logging.getLogger(__name__)

CONCURRENT_ITEMS = 100
DROP_LOG_LEVEL = logging.INFO

Hook = Callable[..., Any]
"""`on_dropped(item, response, exception)`, `on_error(item, response, exception)`."""


class Step(NamedTuple):
    """The `process_item` of one pipeline, taking the item only, and the name to complain by."""

    name: str
    process: Callable[[Any], Any]


class PipelineResults(NamedTuple):
    """The items of a page that were kept, how many were dropped, and why the crawl is to end, "" when it is not."""

    items: Sequence[Any]
    dropped: int = 0
    closing: str = ""


class Page:
    """What became of the items of a page so far: each an item, or the exception that ended it."""

    __slots__ = ("failed", "outcomes")

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.failed = False

    def fail(self, number: int, error: BaseException) -> None:
        """End an item. What ends a program, or a task, ends the page only."""
        if not isinstance(error, Exception):
            error = BadSpider(f"a pipeline ended with {type(error).__name__}: {error}")
        self.outcomes[number] = error
        self.failed = self.failed or not isinstance(error, (DropItem, CloseSpider))


class Pipelines:
    """The pipelines of a crawl. `parts` are in order, or a mapping of each to its number, None for not at all.

    The hooks are called when the items of a page have been through; then `deliver` waits until somebody has taken
    those that were kept.
    Raises `BadSpider` for a part that cannot process items.
    """

    def __init__(
        self,
        parts: Mapping[Any, int | None] | Sequence[Any],
        spider: Any,
        crawler: Any = None,
        *,
        concurrent_items: int = CONCURRENT_ITEMS,
        on_dropped: Hook | None = None,
        on_error: Hook | None = None,
        deliver: Callable[[Sequence[Any]], Awaitable[None]] | None = None,
    ) -> None:
        each = (build_part("pipeline", part, crawler) for part in _in_order(parts))
        self._parts = [part for part in each if part is not None]
        self._spider = spider
        self._steps = [_step(part, spider) for part in self._parts]
        self._concurrent_items = concurrent_items
        self._on_dropped = on_dropped
        self._on_error = on_error
        self._deliver = deliver
        if self._parts:
            _teach_itemadapter()

    def __bool__(self) -> bool:
        """Whether there is anything to do for an item."""
        return bool(self._steps) or self._deliver is not None

    async def open(self) -> None:
        """Call `open_spider` of each; when one fails, close those before it."""
        for number, part in enumerate(self._parts):
            try:
                await _told(part, "open_spider", self._spider)
            except BaseException:
                await self._close(self._parts[:number])
                raise

    async def close(self) -> None:
        """Call `close_spider` of each, the last one first. The first that fails is raised when all were called."""
        failed = await self._close(self._parts)
        if failed is not None:
            raise failed

    async def _close(self, parts: Sequence[Any]) -> Exception | None:
        first = None
        for part in reversed(parts):
            try:
                await _told(part, "close_spider", self._spider)
            except Exception as error:  # noqa: BLE001  the others are to be closed, too
                first = first or error
        return first

    async def process_page(self, items: Sequence[Any], response: Any = None) -> PipelineResults:
        """Pass the items of a page through all pipelines and return those that were kept, in order.

        Raises what a pipeline raised that is not `DropItem`: of the first such item, when those under way have ended.
        """
        outcomes = await self._outcomes(items) if self._steps else items
        kept: list[Any] = []
        dropped, closing, failure = 0, "", None
        for item, outcome in zip(items, outcomes, strict=False):
            if not isinstance(outcome, Exception):
                kept.append(outcome)
            elif isinstance(outcome, DropItem):
                dropped += 1
                _log_drop(outcome)
                await _hear(self._on_dropped, item, response, outcome)
            elif isinstance(outcome, CloseSpider):
                closing = closing or outcome.reason
            else:
                failure = failure or outcome
                await _hear(self._on_error, item, response, outcome)
        if failure is not None:
            raise failure
        if self._deliver is not None and kept:
            await self._deliver(kept)
        return PipelineResults(kept, dropped, closing)

    async def process(self, item: Any) -> Any:
        """Pass one item through all of them. Raises `DropItem`, or whatever a pipeline raises. Calls no hook."""
        return await self._on(item, 0)

    async def _outcomes(self, items: Sequence[Any]) -> list[Any]:
        """Return what became of each item: an item or an exception. After a failure no further item is begun."""
        page = Page()
        tasks: set[asyncio.Task[None]] = set()
        try:
            for item in items:
                rest = self._begin(page, item)
                if rest is not None and len(items) == 1:
                    await rest
                elif rest is not None:
                    tasks.add(asyncio.create_task(rest))
                if len(tasks) >= self._concurrent_items:
                    _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if page.failed:
                    break
            if tasks:
                await asyncio.wait(tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return page.outcomes

    def _begin(self, page: Page, item: Any) -> Coroutine[Any, Any, None] | None:
        """Process an item as far as nothing awaits; return a coroutine for the rest, None when it is done."""
        page.outcomes.append(item)
        number = len(page.outcomes) - 1
        try:
            for place, step in enumerate(self._steps):
                result = step.process(item)
                if result is not item:
                    if hasattr(result, "__await__"):
                        return self._rest(page, number, result, place)
                    page.outcomes[number] = item = _checked(result, step)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is: the page is dead, not the crawl
            page.fail(number, error)
        return None

    async def _rest(self, page: Page, number: int, result: Awaitable[Any], place: int) -> None:
        try:
            item = _checked(await result, self._steps[place])
            page.outcomes[number] = await self._on(item, place + 1)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            page.fail(number, error)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            page.fail(number, error)  # what it awaited was cancelled

    async def _on(self, item: Any, place: int) -> Any:
        for step in self._steps[place:]:
            result = step.process(item)
            if hasattr(result, "__await__"):
                result = await result
            if result is not item:
                item = _checked(result, step)
        return item


def _in_order(parts: Mapping[Any, int | None] | Sequence[Any]) -> list[Any]:
    if not isinstance(parts, Mapping):
        return list(parts)
    for part, number in parts.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise BadSpider(
                f"the pipeline {_name(part)} has the order {number!r}: write a number, or None for not at all"
            )
    numbered = [(number, part) for part, number in parts.items() if number is not None]
    return [part for _, part in sorted(numbered, key=lambda each: each[0])]


def _step(part: Any, spider: Any) -> Step:
    if not callable(getattr(part, "process_item", None)):
        raise BadSpider(f"the pipeline {_name(part)} has no method process_item(self, item)")
    return Step(f"{_name(part)}.process_item", _method(part, "process_item", ["item"], spider))


def _method(part: Any, name: str, takes: list[str], spider: Any) -> Callable[..., Any]:
    """Return a method of a part as one that takes no spider. Raises `BadSpider` when it takes something else."""
    method: Callable[..., Any] = getattr(part, name)
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C
        return method
    with suppress(TypeError):
        if "spider" in signature.parameters:
            signature.bind(*takes, spider=spider)
            return partial(method, spider=spider)
        signature.bind(*takes)
        return method
    with suppress(TypeError):
        signature.bind(*takes, spider)
        return lambda *given: method(*given, spider)
    right = ", ".join(["self", *takes])
    raise BadSpider(f"{_name(part)}.{name}{signature} takes the wrong arguments: write def {name}({right})")


async def _told(part: Any, name: str, spider: Any) -> None:
    if getattr(part, name, None) is not None:
        method = _method(part, name, [], spider)
        with wrap_user_errors(f"{_name(part)}.{name}"):
            result = method()
            if hasattr(result, "__await__"):
                await result


async def _hear(hook: Hook | None, *heard: Any) -> None:
    if hook is not None:
        result = hook(*heard)
        if hasattr(result, "__await__"):
            await result


def _checked(result: Any, step: Step) -> Any:
    if result is None:
        raise BadSpider(f"{step.name} returned None: return the item, or raise DropItem")
    if not is_item(result):
        raise BadSpider(f"{step.name} returned a {type(result).__name__} ({result!r:.60}): return the item")
    return result


def _log_drop(drop: DropItem) -> None:
    level = drop.log_level
    if isinstance(level, str):
        level = logging.getLevelNamesMapping().get(level.upper())
    log.log(DROP_LOG_LEVEL if level is None else level, "dropped: %s", drop)


def _name(part: Any) -> str:
    return part.__name__ if isinstance(part, type) else part if isinstance(part, str) else type(part).__name__


def _teach_itemadapter() -> None:
    """Let pipelines that look into items with itemadapter's own `ItemAdapter` see those of ours, too."""
    if "itemadapter" in sys.modules:
        import lycosa.crawl.items.adapters  # noqa: F401
