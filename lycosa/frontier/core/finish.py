"""Termination detection: decides whether a crawl with many partitions is finished.

A partition reports how many of its URLs are `live` (queued, leased, uncommitted, delayed, or on the way to another
partition), and counts how often work has `arrived` from outside (from another partition, or by a push or a requeue).
Partitions are read in any order while work moves between them. A partition without live URLs gets work only by
arrivals. If two successive rounds find nothing live, and nothing arrived between them, then nothing was live at some
instant between them: the crawl is finished for good. `docs/models/finish.pml` is a model of this, checked exhaustively
within bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class PartitionStatus(NamedTuple):
    """The counts of a partition, read in one step."""

    live: int
    arrived: int


class RoundResult(Enum):
    """WORK: the crawl continues. AGAIN: read the partitions once more. FINISHED: the crawl is finished."""

    WORK = "work"
    AGAIN = "again"
    FINISHED = "finished"


class TerminationDetector:
    """Detects the end of a crawl with this many partitions. Each worker has its own detector."""

    def __init__(self, partitions: int) -> None:
        self._partitions = frozenset(range(partitions))
        self._arrived: dict[int, int] | None = None

    def round(self, statuses: Mapping[int, PartitionStatus]) -> RoundResult:
        """Evaluate one round. Its statuses must be requested after all answers of the previous round have arrived.

        Raises `ValueError` if a partition is missing: it may have live URLs.
        """
        if statuses.keys() != self._partitions:
            raise ValueError(f"a round needs one status of each of {len(self._partitions)} partitions")
        before, self._arrived = self._arrived, None
        if any(status.live for status in statuses.values()):
            return RoundResult.WORK
        self._arrived = {partition: status.arrived for partition, status in statuses.items()}
        return RoundResult.FINISHED if self._arrived == before else RoundResult.AGAIN
