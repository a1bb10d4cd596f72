"""What a worker remembers of the crawl that it takes part in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Membership:
    """Under which name, and which crawl it is: "" before it has joined."""

    worker: str
    crawl: str = ""
