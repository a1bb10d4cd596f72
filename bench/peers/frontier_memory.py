"""Our frontier in memory: the same promises, except that a crash loses everything. It shows what durability costs."""

from __future__ import annotations

from frontier_lycosa import POLICY
from frontier_lycosa import Peer as Durable

from lycosa.frontier.memory import memory_frontier


class Peer(Durable):
    """See `cycle.Peer`."""

    SAFE = False

    async def open(self) -> None:
        self._frontier = memory_frontier(POLICY)
