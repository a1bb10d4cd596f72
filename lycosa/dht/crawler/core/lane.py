"""A part of the key space in a sweep: which node is next in it, and where nodes are to be searched.

A lane goes from its first id to its last one. Each answer names nodes a little ahead. Where none is known nearby, and
no answer is about to name one, lookups search.
"""

from __future__ import annotations

from heapq import heappop, heappush, nsmallest

from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.routing.table import K

KEY_BITS = 160
KEY_SPACE = 1 << KEY_BITS
CANDIDATES_MAX = 5_000
"""Known nodes ahead, up to twice as many for a moment. The neighbours of each are named again on the way."""
GAP_NODES = 5
"""A gap of this many mean distances is searched: among random ids one in 150 gaps is as wide."""
JUMP_NODES = 12
"""A gap of this many is not waited for while a search looks into it."""
BEHIND_NODES = 256
"""Nodes that are named late are still asked if they are this many mean distances behind: a search lasts for seconds,
and the lane goes on meanwhile."""
PATIENCE_S = 1.0
"""How long an answer is expected before a search. Most come within half a second, and a third never come."""


class SweepLane:
    """The ids from `start` to `end`. `position` is where it is: the nodes up to there were asked, or wait."""

    def __init__(self, start: int, end: int, position: int) -> None:
        self.start, self.end, self.position = start, end, position
        self.ahead: list[tuple[int, Contact]] = []
        self.passing: dict[bytes, int] = {}
        """The keys of the nodes that were asked on the way and have not answered yet."""
        self.is_searching = False
        self._ahead_endpoints: set[bytes] = set()
        self._asked_at = 0.0
        self._searched_to = 0
        """Up to here, searches have found all nodes."""

    @property
    def is_done(self) -> bool:
        """Whether the end is reached and all have answered."""
        return self.position >= self.end and not (self.ahead or self.passing or self.is_searching)

    @property
    def progress(self) -> float:
        """The part of the lane that it has gone through."""
        return (self.position - self.start) / (self.end - self.start)

    @property
    def certain(self) -> int:
        """The position behind which all have answered."""
        return min([self.position, *self.passing.values()])

    def add(self, key: int, contact: Contact, spacing: int) -> None:
        """Take a node that was named, unless it is far behind."""
        if key < self.position - BEHIND_NODES * spacing or contact.endpoint in self._ahead_endpoints:
            return
        heappush(self.ahead, (key, contact))
        self._ahead_endpoints.add(contact.endpoint)
        if len(self.ahead) > 2 * CANDIDATES_MAX:
            self.ahead = nsmallest(CANDIDATES_MAX, self.ahead)
            self._ahead_endpoints = {contact.endpoint for _, contact in self.ahead}

    def next_target(self, spacing: int) -> int | None:
        """Return where nodes should be searched before the next one is passed, if anywhere."""
        head = self.ahead[0][0] if self.ahead else self.end
        if self.is_searching or (self.ahead and head - self.position <= GAP_NODES * spacing):
            return None
        # The nodes of the smallest subtrees know each other, so those near the position are named already.
        subtree = 1 << (GAP_NODES * spacing).bit_length() - 1
        here = self.position if self.position == self.start else (self.position // subtree + 1) * subtree
        target = max(here, self._searched_to)
        return target if target < head else None

    def searched(self, target: int, found: list[int], spacing: int) -> None:
        """Take the keys that a search has found. All nodes that are closer to the target than they are among them."""
        self.is_searching = False
        distance = max([key ^ target for key in found]) if len(found) >= K else KEY_SPACE
        known = 1 << max(distance.bit_length() - 1, (GAP_NODES * spacing).bit_length() - 1)
        self._searched_to = (target // known + 1) * known

    def must_wait(self, now: float, spacing: int) -> bool:
        """Whether an answer may close the gap that follows."""
        if self.ahead and self.ahead[0][0] - self.position <= GAP_NODES * spacing:
            return False
        if self.is_searching and not (self.ahead and self.ahead[0][0] - self.position <= JUMP_NODES * spacing):
            return True
        return bool(self.passing) and now < self._asked_at + PATIENCE_S

    def pop(self) -> tuple[int, Contact] | None:
        """Pass the next node and return it; None at the end."""
        if not self.ahead:
            self.position = self.end
            return None
        key, contact = heappop(self.ahead)
        self._ahead_endpoints.discard(contact.endpoint)
        self.position = max(self.position, key)
        return key, contact

    def asked(self, key: int, contact: Contact, now: float) -> None:
        """Wait for the answer of a node that was passed."""
        self.passing[contact.endpoint] = key
        self._asked_at = now


def lanes(count: int, progress: int = 0, progress_bits: int = 0) -> list[SweepLane]:
    """Return so many equal parts of the key space, a power of two, each at `progress` / 2**`progress_bits`."""
    width = KEY_SPACE // count
    done = width * progress >> progress_bits
    return [SweepLane(start, start + width, start + done) for start in range(0, KEY_SPACE, width)]
