"""A durable queue that processes and threads share, with the interface and exceptions of Python's `queue.Queue`.

from lycosa.queue import Queue

with Queue("jobs") as queue:
    queue.put({"url": "https://example.org/"})
    with queue.lease() as job:  # goes back to the queue if this process dies before the block ends
        print(job)
"""

from __future__ import annotations

from queue import Empty, Full

from lycosa.app.queues import LifoQueue, MemoryQueue, PriorityQueue, Queue, ShutDown

__all__ = ["Empty", "Full", "LifoQueue", "MemoryQueue", "PriorityQueue", "Queue", "ShutDown"]
