"""Signals: call the user's functions (receivers) on events of a crawl. Names and arguments are Scrapy's.

    crawler.signals.connect(self.on_item, signals.item_scraped)

A receiver takes the arguments it needs, by name; `signal` (the event) and `sender` (the crawler) are available too. A
receiver may be async. `send` waits for it; `post` runs it as a task, for which `settle` waits at the end of the crawl.

    a receiver raises        meaning
    CloseSpider(reason)      close the crawl with this reason; any signal
    DontCloseSpider          keep the crawl open, more requests will come; `spider_idle` only, overrides CloseSpider
    StopDownload             stop this download; `headers_received` and `bytes_received` only
    anything else            a bug: it is logged with the receiver's name, and the crawl continues

Signals keep strong references to receivers: lambdas work, and so do methods of objects to which nothing else refers. A
signal without receivers costs only the check of a list:

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
"""Maximum running async receivers of `post`. Further calls are dropped; only the first drop is logged."""

SETTLE_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """A kind of event: its name, its arguments, and the exceptions (`answers`) with which receivers may respond.

    Projects may define further signals.
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

COMMON_ARGUMENTS = ("signal", "sender")


class Hook(NamedTuple):
    """A receiver and the names of the arguments it takes."""

    receiver: Callable[..., Any]
    takes: tuple[str, ...]


Hooks = list[Hook]


class Signals:
    """The receivers of one crawl. If one raises `CloseSpider`, `close` gets the reason. Receivers get `sender`.

    Each of SIGNALS has a list `on_<signal>`, which stays the same object. Callers check the lists annotated below
    before they create the arguments of a signal.
    """

    on_scheduler_empty: Hooks
    on_spider_idle: Hooks
    on_spider_error: Hooks
    on_item_scraped: Hooks
    on_request_scheduled: Hooks
    on_request_dropped: Hooks
    on_request_reached_downloader: Hooks
    on_request_left_downloader: Hooks
    on_response_received: Hooks
    on_response_downloaded: Hooks
    on_headers_received: Hooks
    on_bytes_received: Hooks
    on_robots_parsed: Hooks

    def __init__(self, close: Callable[[str], None] | None = None, sender: Any = None) -> None:
        self._close = close
        self._sender = sender
        self._hooks: dict[Signal, Hooks] = {signal: [] for signal in SIGNALS.values()}
        for signal, hooks in self._hooks.items():
            setattr(self, f"on_{signal.name}", hooks)
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self.bugs = BugLog()
        """Logs the failures of receivers. The run replaces it with its own log."""

    def connect(self, receiver: Callable[..., Any], signal: Signal | str, *, weak: bool = False) -> None:
        """Call the receiver whenever the signal is sent. Connecting it twice has no effect. Raises `BadSpider`.

        `weak` is ignored; it exists for compatibility with Scrapy.
        """
        signal = _signal_of(signal)
        hooks = self._hooks.setdefault(signal, [])
        if all(hook.receiver != receiver for hook in hooks):
            hooks.append(Hook(receiver, _arguments_taken(receiver, signal)))

    def disconnect(self, receiver: Callable[..., Any], signal: Signal | str) -> None:
        """Raises `BadSpider` if the receiver is not connected."""
        signal = _signal_of(signal)
        hooks = self._hooks.get(signal, [])
        kept = [hook for hook in hooks if hook.receiver != receiver]
        if len(kept) == len(hooks):
            raise BadSpider(f"{_name_of(receiver)} is not connected to {signal.name}")
        hooks[:] = kept

    def disconnect_all(self, signal: Signal | str) -> None:
        """Raises `BadSpider` for an unknown name."""
        self._hooks.get(_signal_of(signal), []).clear()

    async def send(self, signal: Signal, **values: Any) -> None:
        """Call all receivers, and wait for async ones, which run concurrently. Raises only the signal's `answers`."""
        answers: list[Exception] = []
        awaited = list(self._call_all(signal, values, answers))
        if len(awaited) == 1:  # the most frequent case needs no task
            await self._finish(*awaited[0], answers, signal)
        elif awaited:
            await asyncio.gather(*(self._finish(*each, answers, signal) for each in awaited))
        self._answer(answers)

    def post(self, signal: Signal, **values: Any) -> None:
        """Call all receivers without waiting for async ones. Raises only `answers` of receivers that are not async."""
        answers: list[Exception] = []
        for hook, awaitable in self._call_all(signal, values, answers):
            if len(self._tasks) < TASKS_MAX:
                task = asyncio.ensure_future(self._run(hook, awaitable, signal))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._drop(hook, awaitable, signal)
        self._answer(answers)

    async def settle(self) -> None:
        """Wait for running async receivers; cancel them after SETTLE_GRACE_S."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=SETTLE_GRACE_S)
        for task in late:
            task.cancel()
        if late:
            log.warning("cancelled %d signal receivers still running %g s after the end", len(late), SETTLE_GRACE_S)
            await asyncio.gather(*late, return_exceptions=True)

    def _call_all(
        self, signal: Signal, values: dict[str, Any], answers: list[Exception]
    ) -> list[tuple[Hook, Awaitable[Any]]]:
        values |= {"signal": signal, "sender": self._sender}
        awaited = []
        for hook in tuple(self._hooks.get(signal, ())):  # a copy: receivers may disconnect while they are called
            arguments = {name: values[name] for name in hook.takes}
            try:
                returned = hook.receiver(**arguments)
            except Exception as error:  # noqa: BLE001  no error of a receiver may stop the crawl
                self._on_error(error, hook, signal, answers)
            else:
                if returned is not None and inspect.isawaitable(returned):
                    awaited.append((hook, returned))
        return awaited

    async def _run(self, hook: Hook, awaitable: Awaitable[Any], signal: Signal) -> None:
        answers: list[Exception] = []
        await self._finish(hook, awaitable, answers, signal)
        with suppress(*signal.answers):  # too late: the sender did not wait
            self._answer(answers)

    async def _finish(self, hook: Hook, awaitable: Awaitable[Any], answers: list[Exception], signal: Signal) -> None:
        try:
            await awaitable
        except Exception as error:  # noqa: BLE001
            self._on_error(error, hook, signal, answers)

    def _on_error(self, error: Exception, hook: Hook, signal: Signal, answers: list[Exception]) -> None:
        if isinstance(error, (CloseSpider, *signal.answers)):
            answers.append(error)
        else:
            self.bugs.record(error, f"{_name_of(hook.receiver)}, a receiver of {signal.name},", repr(error))

    def _answer(self, answers: list[Exception]) -> None:
        """Apply the answers of receivers. Those specific to the signal take precedence over CloseSpider."""
        for error in answers:
            if not isinstance(error, CloseSpider):
                raise error
        if answers and self._close is not None:
            self._close(answers[0].reason)  # type: ignore[attr-defined]

    def _drop(self, hook: Hook, awaitable: Awaitable[Any], signal: Signal) -> None:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        if not self._dropped:
            what = f"{_name_of(hook.receiver)}, a receiver of {signal.name}"
            log.warning("%s, is too slow: %d calls are running, further calls are dropped", what, TASKS_MAX)
        self._dropped += 1


def _signal_of(signal: Signal | str) -> Signal:
    if isinstance(signal, Signal):
        return signal
    found = SIGNALS.get(str(signal))
    if found is not None:
        return found
    near = get_close_matches(str(signal), SIGNALS, n=1)
    meant = f"did you mean {near[0]}?" if near else "write one of lycosa.signals, or your own Signal"
    raise BadSpider(f"there is no signal {signal!r}: {meant}")


def _arguments_taken(receiver: Callable[..., Any], signal: Signal) -> tuple[str, ...]:
    available = (*signal.arguments, *COMMON_ARGUMENTS)
    try:
        parameters = inspect.signature(receiver).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadSpider(f"{_name_of(receiver)} cannot receive {signal.name}: give a function or method") from error
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            return available
        is_required = each.default is each.empty and each.kind is not each.VAR_POSITIONAL
        if is_required and (each.name not in available or each.kind is each.POSITIONAL_ONLY):
            has = ", ".join(signal.arguments) or "no arguments"
            raise BadSpider(f"{_name_of(receiver)} takes {each.name!r}, but {signal.name} has {has}")
    named = {each.name for each in parameters if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}}
    return tuple(name for name in available if name in named)


def _name_of(receiver: Any) -> str:
    return getattr(receiver, "__qualname__", None) or repr(receiver)
