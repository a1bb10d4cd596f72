"""What a worker remembers of the crawl that it takes part in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Membership:
    """Under which name, and which crawl it is: "" before it has joined.

    `name` is what that crawl is called. `starts` are the positions of its sinks when it first took part: a server may
    lose that it ever did. `changed` is called when there is something new to remember.
    """

    worker: str
    crawl: str = ""
    name: str = ""
    starts: dict[str, int] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None
