"""Why a worker does not take part in a crawl that it found: one line that says what to do."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core.errors import ForeignState, NewerState, StateError


class Found(NamedTuple):
    """What a partition says of its crawl, "" for what it does not know."""

    crawl: str
    partitions: str
    spider: str
    layout: str
    whole: str
    keeps_done: str


class Wanted(NamedTuple):
    """What a worker wants to take part in."""

    name: str
    partitions: int
    spider: str
    keeps_done: bool


def refuse(us: Wanted, found: Found, number: int, crawl: str, layout: str) -> None:
    """Raise `StateError` for a crawl that is not there, in pieces, or not ours. `crawl` is the expected one, "" any."""
    name = f"the crawl {us.name!r}"
    if crawl and found.crawl != crawl:
        what = "another has its name" if found.crawl else "the server has lost it"
        if number:
            afresh = "give another --crawl-name, --state and -o to start afresh"
            raise StateError(f"{name} is in pieces: its partition {number} is gone: {what}; {afresh}")
        afresh = "take part in that one" if found.crawl else "start afresh"
        gone = f"{name} that this worker took part in is gone: {what}"
        raise StateError(f"{gone}; give another --state and -o to {afresh}")
    if found.layout != layout:
        if int(found.layout or 1) > int(layout):
            newer = f"{name} was begun by a newer version of Lycosa (layout {found.layout}, this one has {layout})"
            raise NewerState(f"{newer}: update this worker, or give another --crawl-name")
        older = f"{name} was begun by an older version of Lycosa (layout {found.layout or 1}, this one has {layout})"
        raise StateError(f"{older}: let workers of that version end it, or give another --crawl-name")
    if found.spider != us.spider:
        raise ForeignState(f"{name} is one of {found.spider}, not of {us.spider}: give another --crawl-name")
    if int(found.partitions) != us.partitions:
        many = f"has {found.partitions} partition{'' if found.partitions == '1' else 's'}, not {us.partitions}"
        raise StateError(f"{name} {many}: set partitions={found.partitions}")
    if found.keeps_done != str(int(us.keeps_done)):
        begun, word = ("with", "true") if found.keeps_done == "1" else ("without", "false")
        raise StateError(f"{name} was begun {begun} keep_done: set keep_done={word}")
