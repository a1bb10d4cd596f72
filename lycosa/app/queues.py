"""Durable queues, in a folder or on Redis. Users import them from `lycosa.queue`."""

from __future__ import annotations

from typing import Any

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import is_redis_url
from lycosa.queues.blocking import ShutDown
from lycosa.queues.folder.queue import FolderQueue
from lycosa.queues.memory import MemoryQueue
from lycosa.queues.order import Order
from lycosa.queues.redis.queue import RedisQueue

__all__ = ["LifoQueue", "MemoryQueue", "PriorityQueue", "Queue", "ShutDown"]


class Queue(FolderQueue):
    """First in, first out: `queue.Queue`, in a folder or at a `redis://` URL.

    See `queues.folder.queue.FolderQueue` for the arguments, and docs/queue.md.
    """

    def __new__(cls, path: Any, *arguments: Any, **options: Any) -> Any:
        """For a Redis URL, return a `RedisQueue`, which is not a subclass. Raises `UsageError` for other URLs."""
        if is_redis_url(path):
            return RedisQueue(path, *arguments, order=cls.order, **options)
        if isinstance(path, str) and "://" in path:
            shown = path.rpartition("@")[2].partition("?")[0].rpartition("://")[2]  # without a login
            raise UsageError(
                f"{path.partition('://')[0]}://{shown} is not a queue: give a folder, or redis://HOST:6379/0?queue=NAME"
            )
        return super().__new__(cls)


class LifoQueue(Queue):
    """Last in, first out: `queue.LifoQueue`."""

    order = Order.LIFO


class PriorityQueue(Queue):
    """Lowest priority first: `queue.PriorityQueue`.

    The priority is a number or text: the item itself, or its first element. Items of equal priority are first in, first
    out.
    """

    order = Order.PRIORITY
