"""Queues by themselves, in a folder or, by URL, on Redis; `lycosa.queue` is the door to them."""

from __future__ import annotations

from typing import Any

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import is_redis_url
from lycosa.queues.folder import queue
from lycosa.queues.memory import MemoryQueue
from lycosa.queues.redis.queue import RedisQueue

__all__ = ["LifoQueue", "MemoryQueue", "PriorityQueue", "Queue"]


class Queue(queue.Queue):
    """First in, first out: `queue.Queue`, in a folder or at a `redis://` URL.

    See `queues.folder.queue.Queue` and docs/queue.md.
    """

    def __new__(cls, path: Any, *arguments: Any, **options: Any) -> Any:
        """Return a queue on Redis, which is no subclass, when `path` is a URL."""
        if is_redis_url(path):
            return RedisQueue(path, *arguments, order=cls.order, **options)
        if isinstance(path, str) and "://" in path:
            shown = path.rpartition("@")[2].partition("?")[0].rpartition("://")[2]  # without a login
            raise UsageError(
                f"{path.partition('://')[0]}://{shown} is no queue: write a folder, or redis://HOST:6379/0?queue=NAME"
            )
        return super().__new__(cls)


class LifoQueue(Queue, queue.LifoQueue):
    """Last in, first out: `queue.LifoQueue`. See `Queue`."""


class PriorityQueue(Queue, queue.PriorityQueue):
    """Lowest priority first: `queue.PriorityQueue`. See `Queue`."""
