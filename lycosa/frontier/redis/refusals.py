"""The errors for a worker that may not join the stored crawl: one line each, with advice."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core.errors import ForeignState, NewerState, StateError
from lycosa.frontier.redis.layout import DELETED_LAYOUT


class StoredCrawl(NamedTuple):
    """A crawl as stored in one of its partitions; "" for an unknown property."""

    crawl: str
    partitions: str
    spider: str
    layout: str
    whole: str
    keep_done: str


class ExpectedCrawl(NamedTuple):
    """The crawl that a worker wants to join."""

    name: str
    partitions: int
    spider: str
    keep_done: bool


def refuse_other_crawl(expected: ExpectedCrawl, found: StoredCrawl, number: int, crawl: str, layout: str) -> None:
    """Raise `StateError` if partition `number` is lost, or belongs to a crawl that this worker cannot join.

    `crawl` is the number of the expected crawl, or "" for any; `layout` is our layout.
    """
    name = f"the crawl {expected.name!r}"
    if crawl and found.crawl != crawl:
        reason = "another crawl has its name" if found.crawl else "the server has lost it"
        if number:
            advice = "give another --crawl-name, --state and -o to start afresh"
            raise StateError(f"{name} is incomplete: its partition {number} is missing: {reason}; {advice}")
        advice = "join that one" if found.crawl else "start afresh"
        raise StateError(
            f"{name} that this worker had joined is missing: {reason}; give another --state and -o to {advice}"
        )
    if found.layout == str(DELETED_LAYOUT):
        raise StateError(f"{name} is being deleted: wait until this is done, or give another --crawl-name")
    if found.layout != layout:
        stored = found.layout or "1"
        if int(stored) > int(layout):
            started = f"{name} was started by a newer version of Lycosa (layout {stored}, this one has {layout})"
            raise NewerState(f"{started}: update this worker, or give another --crawl-name")
        started = f"{name} was started by an older version of Lycosa (layout {stored}, this one has {layout})"
        raise StateError(f"{started}: let workers of that version finish it, or give another --crawl-name")
    if found.spider != expected.spider:
        raise ForeignState(f"{name} belongs to {found.spider}, not to {expected.spider}: give another --crawl-name")
    if int(found.partitions) != expected.partitions:
        several = "" if found.partitions == "1" else "s"
        raise StateError(
            f"{name} has {found.partitions} partition{several}, not {expected.partitions}: "
            f"set partitions={found.partitions}"
        )
    if found.keep_done != str(int(expected.keep_done)):
        how, value = ("with", "true") if found.keep_done == "1" else ("without", "false")
        raise StateError(f"{name} was started {how} keep_done: set keep_done={value}")
