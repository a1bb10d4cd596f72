"""crawlee's request queue on SQLite through SQLAlchemy, as SqlStorageClient sets it up (WAL, synchronous=NORMAL).

The requests are made before the clock runs, with their unique keys. `add_batch_of_requests` gets 50 of them at a time;
`fetch_next_request` (which reads ten ahead) and `mark_request_as_handled` get them one by one, each call in a
transaction. The queue is crash-safe, but requests leased to a process that died are blocked for 300 s. The order is
first come, first served; the queue knows no hosts and no delays. There is no sync.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from crawlee import Request
from crawlee.configuration import Configuration
from crawlee.storage_clients import SqlStorageClient
from workload import Page


class Peer:
    """See `cycle.Peer`. A lease is the request."""

    SAFE = False
    """Requests leased when the process died do not return within this benchmark."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._url = f"sqlite+aiosqlite:///{folder / 'crawlee.db'}"
        self._settings = Configuration(purge_on_start=False, storage_dir=str(folder))

    async def open(self) -> None:
        with warnings.catch_warnings(action="ignore"):  # the client warns that it is experimental
            self._client = SqlStorageClient(connection_string=self._url)
        self._queue = await self._client.create_rq_client(name="frontier", configuration=self._settings)

    def prepare(self, pages: Sequence[Page]) -> list[Request]:
        return [Request.from_url(url) for url, _ in pages]

    async def push(self, batch: list[Request]) -> int:
        answer = await self._queue.add_batch_of_requests(batch)
        return sum(not request.was_already_present for request in answer.processed_requests)

    async def lease(self, limit: int, now: float) -> list[Request]:
        requests = []
        while len(requests) < limit and (request := await self._queue.fetch_next_request()) is not None:
            requests.append(request)
        return requests

    async def ack(self, leases: list[Request], now: float) -> None:
        for request in leases:
            await self._queue.mark_request_as_handled(request)

    async def commit(self) -> None:
        pass

    async def close(self) -> None:
        await self._client.close()
