"""Where the time of a page goes in a spider of Lycosa: `budget.py` with the parts that a spider has.

    python bench/books_budget.py TIMES_FILE runspider FILE OPTIONS

The selectors of parsel are timed; those of lexbor are calls of C, and count with the callback that makes them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import budget
from budget import ENGINE, FETCH, FRONTIER, GARBAGE, ITEM, LOOP, START
from race import Contender
from report import Part
from running import ROOT

if TYPE_CHECKING:
    from books import BookTrack

SELECT = "parse and select: charset, tree, selectors"
CALLBACK = "callback and its results"
REQUESTS = "requests to records and back, scope"
MIDDLEWARE = "middlewares"
PIPELINE = "pipelines"

NAMES = (FETCH, SELECT, CALLBACK, MIDDLEWARE, REQUESTS, PIPELINE, ITEM, FRONTIER, ENGINE, GARBAGE, LOOP, START)
PARTS = {
    **{place: part for place, part in budget.PARTS.items() if part in (FETCH, FRONTIER, ITEM, ENGINE)},
    "lycosa.crawl.spiders.response:detect_encoding": SELECT,
    "lycosa.crawl.spiders.response:parse_html": SELECT,
    "parsel.selector:Selector.__init__": SELECT,
    "parsel.selector:Selector.xpath": SELECT,
    "parsel.selector:Selector.get": SELECT,
    "parsel.selector:SelectorList.css": SELECT,
    "parsel.selector:SelectorList.xpath": SELECT,
    "parsel.selector:SelectorList.re_first": SELECT,
    "lycosa.crawl.spiders.scrape:collect": CALLBACK,
    "lycosa.crawl.engine.visit:to_request": REQUESTS,
    "lycosa.crawl.engine.visit:Visitor._children": REQUESTS,
    "lycosa.crawl.items.pipeline:Pipelines.process_page": PIPELINE,
}
"""Places as in `budget.PARTS`."""

CHAIN = "lycosa.crawl.middlewares.chain:methods"
"""The function that returns the methods of a chain; each method is a middleware."""


def install(ledger: budget.Ledger) -> None:
    """Put the clocks in: those of `budget`, and one around each method of each middleware."""
    put(ledger)
    owner, name = budget.resolve(CHAIN)
    methods = getattr(owner, name)

    def timed(*given: Any) -> list[Any]:
        return [ledger.timed(method, MIDDLEWARE) for method in methods(*given)]

    setattr(owner, name, timed)


put = budget.install


def measure(track: BookTrack, contender: Contender) -> Sequence[Part]:
    """Let a contender of Lycosa crawl once more, with clocks."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".json") as file:
        _, code, *command = contender.program
        assert "lycosa.cli.main" in code
        program = (str(ROOT / "bench" / "books_budget.py"), file.name, *command)
        run = track.run(contender._replace(program=program))
        times = json.loads(Path(file.name).read_text())
    return parts(times, run.cpu_s, run.pages)


def parts(times: Mapping[str, Any], cpu_s: float, pages: int) -> list[Part]:
    """Return the budget of a timed crawl, as `budget.rows` does."""
    spent = {name: times["spent"].get(name, 0.0) for name in NAMES if name not in (LOOP, START)}
    spent[START] = times["cpu_started_s"] + cpu_s - times["cpu_ended_s"]
    spent[LOOP] = max(0.0, cpu_s - times["clocks_s"] - sum(spent.values()))
    return [Part(name, spent[name] / pages * 1e6, "") for name in NAMES]


def table(budgets: Mapping[str, Sequence[Part]]) -> str:
    """Return the budgets side by side, in microseconds of CPU time a page."""
    if not budgets:
        return "Not measured."
    lines = [f"| us/page | {' | '.join(budgets)} |", f"|---|{'---:|' * len(budgets)}"]
    for rows in zip(*budgets.values(), strict=True):
        lines.append(f"| {rows[0].name} | {' | '.join(f'{row.micros:.0f}' for row in rows)} |")
    totals = (sum(row.micros for row in rows) for rows in budgets.values())
    return "\n".join([*lines, f"| **all** | {' | '.join(f'**{total:.0f}**' for total in totals)} |"])


if __name__ == "__main__":
    budget.PARTS = PARTS
    budget.install = install
    sys.exit(budget.main())
