"""A durable queue with the interface and the exceptions of Python's `queue.Queue`, shared by processes and threads.

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
