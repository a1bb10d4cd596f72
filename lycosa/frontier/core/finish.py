"""When a crawl that many workers share is over: from what its partitions tell to a decision.

A partition tells how much of it is `live` (queued, leased, not committed, asleep, or on its way out to another one) and
how much `arrived` from elsewhere so far (from other partitions and from outside). Partitions are read in any order,
also at once, while work moves between them. Nothing comes of nothing: a partition in which nothing is live gets work by
arrivals only. So two rounds in which nothing was live anywhere, and between which nothing arrived, enclose an instant
at which nothing was live at all, and the crawl is over for good.

`docs/models/finish.pml` is the proof, by exhaustion within its bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class PartitionStatus(NamedTuple):
    """What a partition told, in one step."""

    live: int
    arrived: int


class RoundResult(Enum):
    """What to do after a round: go on with the crawl, read all partitions once more, or stop."""

    WORK = "work"
    AGAIN = "again"
    FINISHED = "finished"


class TerminationDetector:
    """What one worker knows about the end of a crawl of so many partitions, numbered from 0."""

    def __init__(self, partitions: int) -> None:
        self._partitions = frozenset(range(partitions))
        self._arrived: dict[int, int] | None = None

    def round(self, readings: Mapping[int, PartitionStatus]) -> RoundResult:
        """Judge one reading of every partition, all asked for after the answers of the round before were in.

        Raises `ValueError` when a partition is missing: one that cannot be read may hold anything.
        """
        if readings.keys() != self._partitions:
            raise ValueError(f"a round takes one reading of each of {len(self._partitions)} partitions")
        before, self._arrived = self._arrived, None
        if any(reading.live for reading in readings.values()):
            return RoundResult.WORK
        self._arrived = {partition: reading.arrived for partition, reading in readings.items()}
        return RoundResult.FINISHED if self._arrived == before else RoundResult.AGAIN
