"""Where the time of a page goes in Lycosa: the command itself, with a clock around its parts.

    python bench/budget.py TIMES_FILE crawl URL... OPTIONS        the same as lycosa crawl URL... OPTIONS

Every part of `PARTS` is timed in a real crawl, so caches are as warm as usual. No time is counted twice: while a part
calls another one, only the called part is charged. Coroutines are timed step by step, so what they wait for is not
counted, and the clock is CPU time. TIMES_FILE gets JSON: seconds by part, what the clocks took themselves (left out of
the parts), and the CPU seconds of the process when the engine started and when it ended.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import sys
import types
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from time import process_time, thread_time
from typing import Any

from report import Part

FETCH = "fetch: libcurl, headers, body, socket events"
PARSE = "parse: charset, tree (lexbor)"
LINKS = "links: walk, join, fingerprint"
TEXT = "title, headings, text, language"
CHILDREN = "which links are new and in scope"
FRONTIER = "frontier: lease, ack, push, commit"
ITEM = "item: encode, write"
ENGINE = "engine: tasks, visit, settle"
GARBAGE = "garbage collector"
LOOP = "event loop and everything not measured"
START = "start and end of the process"

REMEDIES = {
    FETCH: "a fully compiled HTTP client; the libcurl calls themselves stay",
    PARSE: "a compiled scanner can find links without a tree, but the text still needs one",
    LINKS: "a compiled `html/links.py` (parse and links in one call)",
    TEXT: "a compiled walk over the tree that joins the text",
    CHILDREN: "the same compiled module, with the recent fingerprints",
    FRONTIER: "keys and records encoded by compiled code; a batch of acks in one call",
    ITEM: "nothing: msgspec and one system call per commit",
    ENGINE: "fewer tasks: a task that takes many leases",
    GARBAGE: "fewer live objects; `gc.freeze` after start",
    LOOP: "more events per wake-up",
    START: "paid once: negligible on a larger site",
}

PARTS = {
    "lycosa.http.curl.fetcher:CurlFetcher.fetch": FETCH,
    "lycosa.http.curl.fetcher:CurlFetcher._report_events": FETCH,
    "lycosa.http.curl.sockets:EpollSockets._serve": FETCH,
    "lycosa.crawl.spiders.generic:detect_encoding": PARSE,
    "lycosa.crawl.spiders.generic:parse_html": PARSE,
    "lycosa.crawl.spiders.generic:extract_links": LINKS,
    "lycosa.crawl.spiders.generic:extract_page": TEXT,
    "lycosa.crawl.engine.visit:Visitor._children": CHILDREN,
    "lycosa.frontier.local:LocalFrontier.lease": FRONTIER,
    "lycosa.frontier.local:LocalFrontier.ack": FRONTIER,
    "lycosa.frontier.local:LocalFrontier.expire": FRONTIER,
    "lycosa.frontier.local:LocalFrontier.commit": FRONTIER,
    "lycosa.frontier.local:LocalFrontier.next_ready": FRONTIER,
    "lycosa.storage.sinks.file:FileSink.prepare": ITEM,
    "lycosa.storage.sinks.file:FileSink.write": ITEM,
    "lycosa.storage.sinks.file:FileSink.flush": ITEM,
    "lycosa.crawl.engine.engine:Engine._pump": ENGINE,
    "lycosa.crawl.engine.engine:Engine._work": ENGINE,
}


CALIBRATION = 5_000


class Ledger:
    """Attributes the time to the part entered last. `spent` has seconds by part; "" is the time of no part."""

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        self.spent: dict[str, float] = {}
        self.charges: dict[str, int] = {}
        self._clock = clock
        self._stack = [""]
        self._since = clock()

    def restart(self) -> None:
        """Reset the clocks."""
        self.spent.clear()
        self.charges.clear()
        self._since = self._clock()

    def enter(self, part: str) -> None:
        self._charge()
        self._stack.append(part)

    def leave(self) -> None:
        self._charge()
        self._stack.pop()

    def _charge(self) -> None:
        now = self._clock()
        part = self._stack[-1]
        self.spent[part] = self.spent.get(part, 0.0) + now - self._since
        self.charges[part] = self.charges.get(part, 0) + 1
        self._since = now

    def timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return the function or coroutine function with a clock around it."""
        if inspect.iscoroutinefunction(call):

            async def stepped(*arguments: Any, **options: Any) -> Any:
                return await self._steps(call(*arguments, **options), part)

            return stepped

        def timed(*arguments: Any, **options: Any) -> Any:
            self.enter(part)
            try:
                return call(*arguments, **options)
            finally:
                self.leave()

        return timed

    @types.coroutine
    def _steps(self, coroutine: Any, part: str) -> Generator[Any, Any, Any]:
        """Drive a coroutine; the time between its steps belongs to other parts."""
        step: Callable[..., Any] = coroutine.send
        given: Any = None
        while True:
            self.enter(part)
            try:
                waiting = step(given)
            except StopIteration as end:
                return end.value
            finally:
                self.leave()
            try:
                given = yield waiting
                step = coroutine.send
            except BaseException as error:  # noqa: BLE001  whatever it is, it belongs into the coroutine
                given, step = error, coroutine.throw


def cost_of_charge() -> float:
    """Return the seconds one reading of the clock takes, with all that is around it."""
    ledger = Ledger()
    call = ledger.timed(len, "len")
    started = thread_time()
    for _ in range(CALIBRATION):
        len("")
    plain = thread_time() - started
    for _ in range(CALIBRATION):
        call("")
    return max(0.0, (thread_time() - started - 2 * plain) / CALIBRATION / 2)


def resolve(place: str) -> tuple[Any, str]:
    """Return the module or class and the name in it of one of `PARTS`. Raises `AttributeError` when it is gone."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    getattr(owner, name)
    return owner, name


def install(ledger: Ledger) -> None:
    """Put a clock around each of `PARTS` and around the garbage collector."""
    for place, part in PARTS.items():
        try:
            owner, name = resolve(place)
        except (AttributeError, ImportError):
            print(f"bench/budget.py: no {place}: its time is counted elsewhere", file=sys.stderr)
            continue
        setattr(owner, name, ledger.timed(getattr(owner, name), part))

    def collecting(phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            ledger.enter(GARBAGE)
        else:
            ledger.leave()

    gc.callbacks.append(collecting)


def rows(times: Mapping[str, Any], cpu_s: float, pages: int) -> list[Part]:
    """Return the budget of a timed crawl of this many pages whose process took `cpu_s` CPU seconds in all.

    The time that the clocks took is in no row. The row of the event loop gets the time that is in no other row.
    """
    spent = times["spent"]
    parts = {part: spent.get(part, 0.0) for part in REMEDIES if part not in (LOOP, START)}
    parts[START] = times["cpu_started_s"] + cpu_s - times["cpu_ended_s"]
    parts[LOOP] = max(0.0, cpu_s - times["clocks_s"] - sum(parts.values()))
    return [Part(part, parts[part] / pages * 1e6, remedy) for part, remedy in REMEDIES.items()]


def main() -> int:
    """Run the command, then write the times."""
    file = Path(sys.argv.pop(1))
    from lycosa.cli.main import main as command
    from lycosa.crawl.engine.engine import Engine

    ledger = Ledger()
    install(ledger)
    times: dict[str, Any] = {}
    run = Engine.run
    charge_s = cost_of_charge()

    async def noted(engine: Engine, *given: Any) -> None:
        times["cpu_started_s"] = process_time()
        ledger.restart()
        await run(engine, *given)
        times["cpu_ended_s"] = process_time()
        times["clocks_s"] = charge_s * sum(ledger.charges.values())
        times["spent"] = {part: spent - charge_s * ledger.charges[part] for part, spent in ledger.spent.items()}

    setattr(Engine, "run", noted)  # noqa: B010  type checkers reject a plain assignment to a method
    try:
        return command()
    finally:
        file.write_text(json.dumps(times))


if __name__ == "__main__":
    sys.exit(main())
