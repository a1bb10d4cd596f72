"""The two tables of `docs/middlewares.md` as data: the outcome of what callbacks, middlewares and the fetcher return.

`SPIDER_SIDE` and `FETCH_SIDE` have the outcome of the record, in the words of the document, for each value that is
returned or raised (a row) at each stage (a column). `outcome` translates these words for a crawl of one page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NOTHING, RESPONSE, REQUEST, ITEM, SEVERAL, NONSENSE = (
    "nothing (`None`)",
    "a Response",
    "a Request",
    "an item",
    "a list or generator of items and Requests",
    "anything else",
)
IGNORE, RETRY, CLOSE, DROP, FAILED_AGAIN, FAILED, BROKEN = (
    "`IgnoreRequest(why)`",
    "`RetryRequest(why)`",
    "`CloseSpider(why)`",
    "`DropItem`",
    "a `FetchError` that can be tried again",
    "a `FetchError` that is final",
    "another exception",
)
ROWS = (
    NOTHING, RESPONSE, REQUEST, ITEM, SEVERAL, NONSENSE, IGNORE, RETRY, CLOSE, DROP, FAILED_AGAIN, FAILED, BROKEN
)  # fmt: skip

GOES_ON, THE_RESPONSE, REPLACED, ANSWERED = "continues", "the response", "done: replaced", "done: answered"
DEAD, DONE_WHY, RETRIED = "errback, else dead", "errback, else done: why", "retried, then errback, else dead"
WAITS, KEPT_END = "the crawl ends, the record stays queued", "the crawl ends, earlier results are kept"
DONE, QUEUED, WRITTEN, EACH = "done, nothing kept", "done, queued", "done, written", "done, each of them"
WHY, JUST_DEAD, RETRIED_DEAD = "done: why", "dead", "retried, then dead"
DROPPED, DROPPED_END = "the item is dropped", "the item is dropped, the crawl ends"

FETCH_STAGES = ("process_request", "the fetcher", "process_response", "process_exception")
FETCH_SIDE = {
    NOTHING: (GOES_ON, DEAD, DEAD, GOES_ON),
    RESPONSE: (THE_RESPONSE,) * 4,
    REQUEST: (REPLACED, DEAD, REPLACED, REPLACED),
    ITEM: (ANSWERED, DEAD, ANSWERED, ANSWERED),
    SEVERAL: (DEAD,) * 4,
    NONSENSE: (DEAD,) * 4,
    IGNORE: (DONE_WHY,) * 4,
    RETRY: (RETRIED,) * 4,
    CLOSE: (WAITS,) * 4,
    DROP: (DEAD,) * 4,
    FAILED_AGAIN: (RETRIED, RETRIED, DEAD, DEAD),
    FAILED: (DEAD,) * 4,
    BROKEN: (DEAD,) * 4,
}

SPIDER_STAGES = (
    "process_spider_input", "callback", "errback", "process_spider_output", "process_spider_exception", "process_item"
)  # fmt: skip
SPIDER_SIDE = {
    NOTHING: (GOES_ON, DONE, DONE, DONE, GOES_ON, JUST_DEAD),
    RESPONSE: (DEAD, *[JUST_DEAD] * 5),
    REQUEST: (DEAD, *[QUEUED] * 4, JUST_DEAD),
    ITEM: (DEAD, *[WRITTEN] * 5),
    SEVERAL: (DEAD, *[EACH] * 4, JUST_DEAD),
    NONSENSE: (DEAD, *[JUST_DEAD] * 5),
    IGNORE: (DONE_WHY, *[WHY] * 4, JUST_DEAD),
    RETRY: (RETRIED, RETRIED, RETRIED_DEAD, RETRIED, RETRIED, RETRIED_DEAD),
    CLOSE: (WAITS, *[KEPT_END] * 4, DROPPED_END),
    DROP: (DEAD, *[JUST_DEAD] * 4, DROPPED),
    FAILED_AGAIN: (DEAD, *[JUST_DEAD] * 5),
    FAILED: (DEAD, *[JUST_DEAD] * 5),
    BROKEN: (DEAD, *[JUST_DEAD] * 5),
}

CELLS = [
    (row, stage, text)
    for stages, table in ((FETCH_STAGES, FETCH_SIDE), (SPIDER_STAGES, SPIDER_SIDE))
    for row, texts in table.items()
    for stage, text in zip(stages, texts, strict=True)
]

START = {"process_exception": "/drop", "errback": "/missing"}
"""The start path of the crawl for a stage; /good for the others."""

TRIES = 2
"""How often a page is tried: the crawls run with one retry."""

BEFORE_CONTACT = ("process_request", "the fetcher")
"""Stages whose outcomes need no contact with the host: the fetcher of the tests returns or raises the value of the row
instead of fetching."""

REASONS = {
    NOTHING: "None",
    RESPONSE: "Response|model.Response",
    REQUEST: "Request|<GET",
    ITEM: "dict|{'item'",
    SEVERAL: r"list|\[",
    NONSENSE: "42",
    BROKEN: r"ValueError in (?!parse)\w+: why",
}
"""What the reason of a dead record contains, by row; "why" in other rows."""

RAISED = {
    IGNORE: "IgnoreRequest",
    RETRY: "RetryRequest",
    DROP: "DropItem",
    FAILED_AGAIN: "FetchTimeout",
    FAILED: "BodyTooLarge",
    BROKEN: "ValueError",
}
"""The exception that an errback receives, by row; `BadMiddleware` in other rows."""


class Outcome(NamedTuple):
    """The expected result of the crawl. `reason` is a pattern; `hits` are those of the start URL."""

    state: str
    reason: str
    items: list[Any]
    hits: int
    children: tuple[str, ...] = ()
    closing: str = ""


def outcome(row: str, stage: str, text: str, *, has_errback: bool) -> Outcome:
    """Return the expected outcome for the words of a cell."""
    once = 0 if stage in BEFORE_CONTACT else 1
    status = "404" if stage == "errback" else "200"
    item, page = {"item": 1}, {"page": "/good"}
    reason_pattern = REASONS.get(row, "why")
    if stage == "callback":
        reason_pattern = reason_pattern.replace("(?!parse)", "")
    if text == GOES_ON:
        if stage == "process_exception":
            return Outcome("dead", "connection closed without an answer", [], TRIES)
        if stage == "process_spider_exception":
            return Outcome("dead", "ValueError in parse: of the callback", [], 1)
        return Outcome("done", "200", [page], 1)
    tries = (TRIES if text.startswith("retried") else 1) * once
    if has_errback and "errback" in text:
        reason = "200" if stage == "process_spider_input" and text != RETRIED else reason_pattern
        return Outcome("done", reason, [{"errback": RAISED.get(row, "BadMiddleware")}], tries)
    return {
        THE_RESPONSE: Outcome("done", "200", [{"page": "/made"}], once),
        REPLACED: Outcome("done", "replaced", [{"page": "/good?replaced"}], once, ("/good?replaced",)),
        ANSWERED: Outcome("done", "answered", [item], once),
        DEAD: Outcome("dead", reason_pattern, [], tries),
        JUST_DEAD: Outcome("dead", reason_pattern, [], 1),
        DONE_WHY: Outcome("done", "why", [], once),
        WHY: Outcome("done", "why", [], 1),
        RETRIED: Outcome("dead", "why", [], tries),
        RETRIED_DEAD: Outcome("dead", "why", [], tries),
        WAITS: Outcome("queued", "", [], once, closing="why"),
        KEPT_END: Outcome("done", status, [item], 1, closing="why"),
        DONE: Outcome("done", status, [], 1),
        QUEUED: Outcome("done", status, [{"page": "/good?child"}], 1, ("/good?child",)),
        WRITTEN: Outcome("done", status, [item], 1),
        EACH: Outcome("done", status, [item, {"page": "/good?child"}], 1, ("/good?child",)),
        DROPPED: Outcome("done", "200", [], 1),
        DROPPED_END: Outcome("done", "200", [], 1, closing="why"),
    }[text]
