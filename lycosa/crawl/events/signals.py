"""Signals: functions of the user that are called when something happens in a crawl. Names and arguments as in Scrapy.

    crawler.signals.connect(self.on_item, signals.item_scraped)

A receiver takes the arguments it wants, by name; `signal` (what happened) and `sender` (the crawler) may be among them.
It may be async: where the signal is sent with `send`, the crawl waits for it; where it is sent with `post`, it runs as
a task beside the crawl, and `settle` waits for it at the end.

    a receiver raises        it means
    CloseSpider(reason)      close the crawl, with this reason; every signal
    DontCloseSpider          do not end yet, there is more to come; `spider_idle` only, and stronger than CloseSpider
    StopDownload             enough of this body; `headers_received` and `bytes_received` only
    anything else            a mistake: it is logged with the receiver's name, and the crawl goes on

Receivers are held until they are disconnected, or the crawl ends: a lambda or a method of a forgotten object works.
A signal that nobody listens to costs the look at a list:

    if signals.on_item_scraped:
        await signals.send(item_scraped, item=item, response=response, spider=spider)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider, CloseSpider, DontCloseSpider, StopDownload
from lycosa.crawl.diagnostics.bug_log import BugLog

log = logging.getLogger(__name__)

TASKS_MAX = 1000
"""Async receivers of `post` that run at a time; further calls are left out, and that is logged once."""

SETTLE_GRACE_S = 5.0
"""At the end, async receivers get so long."""


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """A kind of event: its name, the arguments it gives, and the exceptions by which a receiver answers it.

    Parts of a project may make signals of their own.
    """

    name: str
    arguments: tuple[str, ...] = ()
    answers: tuple[type[Exception], ...] = ()

    def __repr__(self) -> str:
        return f"signals.{self.name}"


engine_started = Signal("engine_started")
engine_stopped = Signal("engine_stopped")
scheduler_empty = Signal("scheduler_empty")
spider_opened = Signal("spider_opened", ("spider",))
spider_idle = Signal("spider_idle", ("spider",), (DontCloseSpider,))
spider_closed = Signal("spider_closed", ("spider", "reason"))
spider_error = Signal("spider_error", ("failure", "response", "spider"))
item_scraped = Signal("item_scraped", ("item", "response", "spider"))
item_dropped = Signal("item_dropped", ("item", "response", "exception", "spider"))
item_error = Signal("item_error", ("item", "response", "spider", "failure"))
request_scheduled = Signal("request_scheduled", ("request", "spider"))
request_dropped = Signal("request_dropped", ("request", "spider"))
request_reached_downloader = Signal("request_reached_downloader", ("request", "spider"))
request_left_downloader = Signal("request_left_downloader", ("request", "spider"))
response_received = Signal("response_received", ("response", "request", "spider"))
response_downloaded = Signal("response_downloaded", ("response", "request", "spider"))
headers_received = Signal("headers_received", ("headers", "body_length", "request", "spider"), (StopDownload,))
bytes_received = Signal("bytes_received", ("data", "request", "spider"), (StopDownload,))
robots_parsed = Signal("robots_parsed", ("robotparser", "request"))
feed_slot_closed = Signal("feed_slot_closed", ("slot",))
feed_exporter_closed = Signal("feed_exporter_closed")
memusage_warning_reached = Signal("memusage_warning_reached")

SIGNALS = {signal.name: signal for signal in list(globals().values()) if isinstance(signal, Signal)}
"""The signals that Lycosa sends, by name."""

ALWAYS = ("signal", "sender")
"""What a receiver may take of every signal."""


class Hook(NamedTuple):
    """A receiver, and the arguments it takes."""

    receiver: Callable[..., Any]
    takes: tuple[str, ...]


Hooks = list[Hook]


class Signals:
    """The receivers of one crawl. `close` is called with the reason of a `CloseSpider`; `sender` is given on.

    The lists `on_<signal>` stay the same objects for the whole crawl.
    """

    on_engine_started: Hooks
    on_engine_stopped: Hooks
    on_scheduler_empty: Hooks
    on_spider_opened: Hooks
    on_spider_idle: Hooks
    on_spider_closed: Hooks
    on_spider_error: Hooks
    on_item_scraped: Hooks
    on_item_dropped: Hooks
    on_item_error: Hooks
    on_request_scheduled: Hooks
    on_request_dropped: Hooks
    on_request_reached_downloader: Hooks
    on_request_left_downloader: Hooks
    on_response_received: Hooks
    on_response_downloaded: Hooks
    on_headers_received: Hooks
    on_bytes_received: Hooks
    on_robots_parsed: Hooks
    on_feed_slot_closed: Hooks
    on_feed_exporter_closed: Hooks
    on_memusage_warning_reached: Hooks

    def __init__(self, close: Callable[[str], None] | None = None, sender: Any = None) -> None:
        self._close = close
        self._sender = sender
        self._hooks: dict[Signal, Hooks] = {signal: [] for signal in SIGNALS.values()}
        for signal, hooks in self._hooks.items():
            setattr(self, f"on_{signal.name}", hooks)
        self._tasks: set[asyncio.Task[None]] = set()
        self._left_out = 0
        self.bugs = BugLog()
        """Where failures of receivers are logged; the run sets its own."""

    def connect(self, receiver: Callable[..., Any], signal: Signal | str, *, weak: bool = False) -> None:
        """Call the receiver from now on when the signal is sent; twice is as once. Raises `BadSpider`.

        `weak` is there for Scrapy's sake: receivers are held in any case.
        """
        signal = _known(signal)
        hooks = self._hooks.setdefault(signal, [])
        if all(hook.receiver != receiver for hook in hooks):
            hooks.append(Hook(receiver, _taken(receiver, signal)))

    def disconnect(self, receiver: Callable[..., Any], signal: Signal | str) -> None:
        """Call the receiver no more. Raises `BadSpider` when it was not connected."""
        signal = _known(signal)
        hooks = self._hooks.get(signal, [])
        kept = [hook for hook in hooks if hook.receiver != receiver]
        if len(kept) == len(hooks):
            raise BadSpider(f"{_name_of(receiver)} is not connected to {signal.name}")
        hooks[:] = kept

    def disconnect_all(self, signal: Signal | str) -> None:
        """Call no receiver of this signal any more. Raises `BadSpider` for an unknown name."""
        self._hooks.get(_known(signal), []).clear()

    async def send(self, signal: Signal, **values: Any) -> None:
        """Call all receivers, and wait for the async ones, which run side by side. Raises only the signal's answers."""
        answers: list[Exception] = []
        awaited = list(self._call_all(signal, values, answers))
        if len(awaited) == 1:
            await self._finish(*awaited[0], answers, signal)
        elif awaited:
            await asyncio.gather(*(self._finish(*each, answers, signal) for each in awaited))
        self._answer(answers)

    def post(self, signal: Signal, **values: Any) -> None:
        """Call all receivers, not waiting for the async ones. Raises only the signal's answers, of plain functions."""
        answers: list[Exception] = []
        for hook, awaitable in self._call_all(signal, values, answers):
            if len(self._tasks) < TASKS_MAX:
                task = asyncio.ensure_future(self._run(hook, awaitable, signal))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._leave_out(hook, awaitable, signal)
        self._answer(answers)

    async def settle(self) -> None:
        """Wait for the async receivers that still run, within the grace; cancel the others."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=SETTLE_GRACE_S)
        for task in late:
            task.cancel()
        if late:
            log.warning("%d receivers of signals took longer than %g s at the end", len(late), SETTLE_GRACE_S)
            await asyncio.gather(*late, return_exceptions=True)

    def _call_all(
        self, signal: Signal, values: dict[str, Any], answers: list[Exception]
    ) -> list[tuple[Hook, Awaitable[Any]]]:
        values |= {"signal": signal, "sender": self._sender}
        awaited = []
        for hook in tuple(self._hooks.get(signal, ())):
            given = {name: values[name] for name in hook.takes}
            try:
                returned = hook.receiver(**given)
            except Exception as error:  # noqa: BLE001  whatever it is: the crawl goes on
                self._caught(error, hook, signal, answers)
            else:
                if returned is not None and inspect.isawaitable(returned):
                    awaited.append((hook, returned))
        return awaited

    async def _run(self, hook: Hook, awaitable: Awaitable[Any], signal: Signal) -> None:
        answers: list[Exception] = []
        await self._finish(hook, awaitable, answers, signal)
        with suppress(*signal.answers):  # too late for these
            self._answer(answers)

    async def _finish(self, hook: Hook, awaitable: Awaitable[Any], answers: list[Exception], signal: Signal) -> None:
        try:
            await awaitable
        except Exception as error:  # noqa: BLE001  whatever it is: the crawl goes on
            self._caught(error, hook, signal, answers)

    def _caught(self, error: Exception, hook: Hook, signal: Signal, answers: list[Exception]) -> None:
        if isinstance(error, (CloseSpider, *signal.answers)):
            answers.append(error)
        else:
            self.bugs.record(error, f"{_name_of(hook.receiver)}, a receiver of {signal.name},", repr(error))

    def _answer(self, answers: list[Exception]) -> None:
        """Do what receivers asked for: the answers of a signal come before the wish to close."""
        for error in answers:
            if not isinstance(error, CloseSpider):
                raise error
        if answers and self._close is not None:
            self._close(answers[0].reason)  # type: ignore[attr-defined]

    def _leave_out(self, hook: Hook, awaitable: Awaitable[Any], signal: Signal) -> None:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        if not self._left_out:
            what = f"{_name_of(hook.receiver)}, a receiver of {signal.name}"
            log.warning("%s, is too slow: %d calls of it are waiting, further ones are left out", what, TASKS_MAX)
        self._left_out += 1


def _known(signal: Signal | str) -> Signal:
    """Return the signal, also by its name. Raises `BadSpider`."""
    if isinstance(signal, Signal):
        return signal
    found = SIGNALS.get(str(signal))
    if found is not None:
        return found
    near = get_close_matches(str(signal), SIGNALS, n=1)
    meant = f"did you mean {near[0]}?" if near else "write one of lycosa.signals, or a Signal of your own"
    raise BadSpider(f"there is no signal {signal!r}: {meant}")


def _taken(receiver: Callable[..., Any], signal: Signal) -> tuple[str, ...]:
    """Return the arguments that the receiver takes of those that the signal gives. Raises `BadSpider`."""
    given = (*signal.arguments, *ALWAYS)
    try:
        parameters = inspect.signature(receiver).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadSpider(f"{_name_of(receiver)} cannot receive {signal.name}: give a function or method") from error
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            return given
        wanted = each.default is each.empty and each.kind is not each.VAR_POSITIONAL
        if wanted and (each.name not in given or each.kind is each.POSITIONAL_ONLY):
            has = ", ".join(signal.arguments) or "no arguments"
            raise BadSpider(f"{_name_of(receiver)} takes {each.name!r}, but {signal.name} gives {has}")
    named = {each.name for each in parameters if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}}
    return tuple(name for name in given if name in named)


def _name_of(receiver: Any) -> str:
    return getattr(receiver, "__qualname__", None) or repr(receiver)
