"""Queues by themselves, by folder; `lycosa.queue` is the door to them."""

from __future__ import annotations

from lycosa.queues.embedded import LifoQueue, PriorityQueue, Queue
from lycosa.queues.memory import MemoryQueue

__all__ = ["LifoQueue", "MemoryQueue", "PriorityQueue", "Queue"]
