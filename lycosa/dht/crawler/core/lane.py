"""A lane of a sweep: a part of the key space that the sweep goes through from the first id to the last.

If no node is known nearby, and no pending response can return one, the lane needs a lookup.
"""

from __future__ import annotations

from heapq import heappop, heappush, nsmallest

from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.routing.table import K

KEY_BITS = 160
KEY_SPACE = 1 << KEY_BITS
CANDIDATES_MAX = 5_000
"""If more than twice this many nodes are ahead, only the nearest CANDIDATES_MAX are kept. The sweep finds the others
again on its way."""
GAP_NODES = 5
"""A gap of more than this many mean distances between nodes needs a lookup. Between random ids, one gap in 150 is
wider."""
JUMP_NODES = 12
"""During a lookup, the lane waits at a gap of more than this many mean distances, and passes smaller gaps."""
BEHIND_NODES = 256
"""The lane moves on during a lookup, which takes seconds. Nodes up to this many mean distances behind the position are
still queried."""
PATIENCE_S = 1.0
"""Seconds that the lane waits for responses before a lookup. Most come within half a second, a third never come."""


class SweepLane:
    """The ids from `start` to `end`. Known nodes up to `position` were queried, or must not be queried yet (BEP 51)."""

    def __init__(self, start: int, end: int, position: int) -> None:
        self.start, self.end, self.position = start, end, position
        self.ahead: list[tuple[int, Contact]] = []
        self.passing: dict[bytes, int] = {}
        """The keys of the nodes whose query is still running, by endpoint."""
        self.is_searching = False
        self._ahead_endpoints: set[bytes] = set()
        self._asked_at = 0.0
        self._searched_to = 0
        """Lookups have found all nodes up to this key."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.end and not (self.ahead or self.passing or self.is_searching)

    @property
    def progress(self) -> float:
        return (self.position - self.start) / (self.end - self.start)

    @property
    def certain(self) -> int:
        """The key below which no query is pending."""
        return min([self.position, *self.passing.values()])

    def add(self, key: int, contact: Contact, spacing: int) -> None:
        """Add a node unless it is behind the position by more than BEHIND_NODES mean distances (`spacing`)."""
        if key < self.position - BEHIND_NODES * spacing or contact.endpoint in self._ahead_endpoints:
            return
        heappush(self.ahead, (key, contact))
        self._ahead_endpoints.add(contact.endpoint)
        if len(self.ahead) > 2 * CANDIDATES_MAX:
            self.ahead = nsmallest(CANDIDATES_MAX, self.ahead)
            self._ahead_endpoints = {contact.endpoint for _, contact in self.ahead}

    def next_target(self, spacing: int) -> int | None:
        """Return the target of the lookup that is needed before the next node, if any."""
        head = self.ahead[0][0] if self.ahead else self.end
        if self.is_searching or (self.ahead and head - self.position <= GAP_NODES * spacing):
            return None
        # `subtree` is the size in keys of the largest subtree that has at most GAP_NODES nodes on average. The nodes of
        # such a subtree know each other. The node at the position was queried, so all nodes of its subtree are known.
        # At the start of the lane, no node has been queried yet.
        subtree = 1 << (GAP_NODES * spacing).bit_length() - 1
        here = self.position if self.position == self.start else (self.position // subtree + 1) * subtree
        target = max(here, self._searched_to)
        return target if target < head else None

    def searched(self, target: int, found: list[int], spacing: int) -> None:
        """Record the end of a lookup.

        It has found all nodes that are closer to the target than the farthest of the keys `found`.
        """
        self.is_searching = False
        distance = max([key ^ target for key in found]) if len(found) >= K else KEY_SPACE
        known = 1 << max(distance.bit_length() - 1, (GAP_NODES * spacing).bit_length() - 1)
        self._searched_to = (target // known + 1) * known

    def must_wait(self, now: float, spacing: int) -> bool:
        """Whether a pending response or lookup may find nodes in the gap ahead."""
        if self.ahead and self.ahead[0][0] - self.position <= GAP_NODES * spacing:
            return False
        if self.is_searching and not (self.ahead and self.ahead[0][0] - self.position <= JUMP_NODES * spacing):
            return True
        return bool(self.passing) and now < self._asked_at + PATIENCE_S

    def pop(self) -> tuple[int, Contact] | None:
        """Move to the next node, or to the end if there is none."""
        if not self.ahead:
            self.position = self.end
            return None
        key, contact = heappop(self.ahead)
        self._ahead_endpoints.discard(contact.endpoint)
        self.position = max(self.position, key)
        return key, contact

    def asked(self, key: int, contact: Contact, now: float) -> None:
        self.passing[contact.endpoint] = key
        self._asked_at = now


def lanes(count: int, progress: int = 0, progress_bits: int = 0) -> list[SweepLane]:
    """Divide the key space into `count` equal lanes; `count` is a power of two.

    Each lane has completed the share `progress` / 2**`progress_bits`.
    """
    width = KEY_SPACE // count
    done = width * progress >> progress_bits
    return [SweepLane(start, start + width, start + done) for start in range(0, KEY_SPACE, width)]
