"""Item pipelines: each takes an item and returns it, changed or not, or raises `DropItem`.

A pipeline has `process_item(item)`, and optionally `open_spider()` and `close_spider()`. Each method may take the
spider as its last argument, and may be `async`. A class is instantiated by its `from_crawler(crawler)` or
`from_settings(settings)`, else without arguments; after `NotConfigured` it is not used.

    returns an item               the item goes to the next pipeline, after the last one to the sinks
    raises DropItem               the item is dropped, the page continues
    raises CloseSpider            the item is dropped, the page continues, and the crawl ends
    raises RetryRequest           the page is fetched again later, and none of its items is written now
    raises anything else          the page is dead with that reason, and none of its items is written;
                                  `lycosa frontier requeue` fetches the page again

Items of a page start in order, and the results have the same order. While an item is awaited, the next items run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
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
"""`on_dropped(item, response, exception)` or `on_error(item, response, exception)`."""


class Step(NamedTuple):
    """`process_item` of one pipeline, without the spider argument, and its name for messages."""

    name: str
    process: Callable[[Any], Any]


class CommitStep(NamedTuple):
    """The methods of a pipeline that commits with the crawl: see `pipeline_commits`."""

    name: str
    commit: Callable[..., Any]
    takes_items: bool
    resume: Callable[..., Any] | None


class PipelineResults(NamedTuple):
    """The kept items of a page, how many were dropped, and the reason of the first `CloseSpider`, else ""."""

    items: Sequence[Any]
    dropped: int = 0
    closing: str = ""


class PageOutcomes:
    """The outcome of each item of a page: the item, or the exception that ended it."""

    __slots__ = ("failed", "outcomes")

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.failed = False

    def fail(self, number: int, error: BaseException) -> None:
        """Set an exception as the outcome. If it would end the program or a task, it ends only the page."""
        if not isinstance(error, Exception):
            error = BadSpider(f"a pipeline ended with {type(error).__name__}: {error}")
        self.outcomes[number] = error
        self.failed = self.failed or not isinstance(error, (DropItem, CloseSpider))


class Pipelines:
    """The pipelines of a spider. `parts` is a list in order, or maps each part to its order number (None: not used).

    The hooks are called when all items of a page have been processed. Then `deliver` waits until the kept items are
    received. Raises `BadSpider` for an object that cannot process items.
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
        created = (build_part("pipeline", part, crawler) for part in _in_order(parts))
        self._parts = [part for part in created if part is not None]
        self._spider = spider
        self._steps = [_step(part, spider) for part in self._parts]
        self._concurrent_items = concurrent_items
        self._on_dropped = on_dropped
        self._on_error = on_error
        self._deliver = deliver
        self._opened = AsyncExitStack()
        if self._parts and "itemadapter" in sys.modules:
            import lycosa.crawl.items.adapters  # noqa: F401  adds our items to the user's `itemadapter.ItemAdapter`

    def __bool__(self) -> bool:
        return bool(self._steps) or self._deliver is not None

    async def open(self) -> None:
        """Call each `open_spider`. If one raises, close the pipelines that were opened before it."""
        async with AsyncExitStack() as stack:
            for part in self._parts:
                await _call_method(part, "open_spider", self._spider)
                stack.push_async_callback(_call_method, part, "close_spider", self._spider)
            self._opened = stack.pop_all()

    async def close(self) -> None:
        """Call each `close_spider` in reverse order, even if some raise. Raises the last exception."""
        await self._opened.aclose()

    def commit_steps(self) -> list[CommitStep]:
        """Raises `BadSpider` for wrong arguments."""
        return [_commit_step(part) for part in self._parts if commits(part)]

    async def process_page(self, items: Sequence[Any], response: Any = None) -> PipelineResults:
        """Pass the items of a page through all pipelines.

        Raises the first exception that is not `DropItem` or `CloseSpider`, after the items in progress are done.
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
                await _call_hook(self._on_dropped, item, response, outcome)
            elif isinstance(outcome, CloseSpider):
                closing = closing or outcome.reason
            else:
                failure = failure or outcome
                await _call_hook(self._on_error, item, response, outcome)
        if failure is not None:
            raise failure
        if self._deliver is not None and kept:
            await self._deliver(kept)
        return PipelineResults(kept, dropped, closing)

    async def _outcomes(self, items: Sequence[Any]) -> list[Any]:
        """Process the items. After a failure, start no further item."""
        page = PageOutcomes()
        tasks: set[asyncio.Task[None]] = set()
        try:
            for item in items:
                rest = self._start(page, item)
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

    def _start(self, page: PageOutcomes, item: Any) -> Coroutine[Any, Any, None] | None:
        """Process an item up to the first await. Return a coroutine for the rest, or None."""
        page.outcomes.append(item)
        number = len(page.outcomes) - 1
        try:
            for place, step in enumerate(self._steps):
                result = step.process(item)
                if result is not item:
                    if hasattr(result, "__await__"):
                        return self._finish(page, number, result, place)
                    page.outcomes[number] = item = _check_item(result, step)
        except (Exception, SystemExit) as error:  # noqa: BLE001  any error ends the page, not the crawl
            page.fail(number, error)
        return None

    async def _finish(self, page: PageOutcomes, number: int, awaitable: Awaitable[Any], place: int) -> None:
        try:
            item = _check_item(await awaitable, self._steps[place])
            for step in self._steps[place + 1 :]:
                result = step.process(item)
                if hasattr(result, "__await__"):
                    result = await result
                if result is not item:
                    item = _check_item(result, step)
            page.outcomes[number] = item
        except (Exception, SystemExit) as error:  # noqa: BLE001
            page.fail(number, error)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            page.fail(number, error)  # a task that the pipeline awaited was cancelled, not this task


def _in_order(parts: Mapping[Any, int | None] | Sequence[Any]) -> list[Any]:
    if not isinstance(parts, Mapping):
        return list(parts)
    numbered = {part: number for part, number in parts.items() if number is not None}
    for part, number in numbered.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise BadSpider(
                f"the pipeline {_name(part)} has the order {number!r}: write a number, or None to disable it"
            )
    return sorted(numbered, key=numbered.__getitem__)


def _step(part: Any, spider: Any) -> Step:
    if not callable(getattr(part, "process_item", None)):
        raise BadSpider(f"the pipeline {_name(part)} has no method process_item(self, item)")
    return Step(f"{_name(part)}.process_item", _without_spider(part, "process_item", ["item"], spider))


def commits(part: Any) -> bool:
    """Whether a pipeline (a class or an object) commits its own database with the crawl."""
    return getattr(part, "before_commit", None) is not None


def _commit_step(part: Any) -> CommitStep:
    commit, resume = part.before_commit, getattr(part, "resume_from", None)
    takes_items = False
    with suppress(TypeError):
        inspect.signature(commit).bind("position", "items")
        takes_items = True
    if not takes_items:
        _check_arguments(part, "before_commit", ["position"])
    if resume is not None:
        _check_arguments(part, "resume_from", ["position"])
    return CommitStep(_name(part), commit, takes_items, resume)


def _check_arguments(part: Any, name: str, parameters: list[str]) -> None:
    signature = inspect.signature(getattr(part, name))
    try:
        signature.bind(*parameters)
    except TypeError:
        raise _wrong_arguments(part, name, signature, parameters) from None


def _without_spider(part: Any, name: str, parameters: list[str], spider: Any) -> Callable[..., Any]:
    """Return a function that takes only `parameters`. Raises `BadSpider` for other arguments."""
    method: Callable[..., Any] = getattr(part, name)
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C
        return method
    with suppress(TypeError):
        if "spider" in signature.parameters:
            signature.bind(*parameters, spider=spider)
            return partial(method, spider=spider)
        signature.bind(*parameters)
        return method
    with suppress(TypeError):
        signature.bind(*parameters, spider)
        return lambda *args: method(*args, spider)
    raise _wrong_arguments(part, name, signature, parameters)


def _wrong_arguments(part: Any, name: str, signature: inspect.Signature, parameters: list[str]) -> BadSpider:
    right = ", ".join(["self", *parameters])
    return BadSpider(f"{_name(part)}.{name}{signature} takes the wrong arguments: write def {name}({right})")


async def _call_method(part: Any, name: str, spider: Any) -> None:
    if getattr(part, name, None) is not None:
        method = _without_spider(part, name, [], spider)
        with wrap_user_errors(f"{_name(part)}.{name}"):
            await _call_hook(method)


async def _call_hook(hook: Hook | None, *args: Any) -> None:
    if hook is not None:
        result = hook(*args)
        if hasattr(result, "__await__"):
            await result


def _check_item(result: Any, step: Step) -> Any:
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
    return (part if isinstance(part, type) else type(part)).__name__
