"""Scrapy's scheduler with JOBDIR and its default settings: PickleLifoDiskQueue, one queue a host, and RFPDupeFilter.

Real requests go through `enqueue_request` and `next_request`; their fingerprints are made before the clock runs, as
ours are. The scheduler takes a request off the disk when it hands it out: there is no lease and no ack, so a crash
loses the requests under way. A crash loses the queue, too, because the list of its files is written only by a clean
close. Fingerprints stay in memory for ever. Hosts take turns (DownloaderAwarePriorityQueue); the order within a host is
last come, first served. Delays are the task of the downloader. There is no sync.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.test import get_crawler
from workload import Page


class Idle:
    """A downloader that has nothing to do: each host's slot is its name."""

    slots: dict[str, object] = {}

    @staticmethod
    def get_slot_key(request: Request) -> str:
        return urlparse_cached(request).hostname or ""


class Peer:
    """See `cycle.Peer`. A lease is the request."""

    SAFE = False
    SETTINGS: dict[str, object] = {}

    def __init__(self, folder: Path, *, sync: bool) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the scheduler holds a file open for every host
        settings = {"JOBDIR": str(folder), "TWISTED_REACTOR_ENABLED": False, **self.SETTINGS}
        self._crawler = get_crawler(settings_dict=settings)
        self._crawler.spider = self._crawler.spidercls.from_crawler(self._crawler)
        self._crawler.engine = SimpleNamespace(downloader=Idle())
        self._fingerprint = self._crawler.request_fingerprinter.fingerprint

    async def open(self) -> None:
        self._scheduler = Scheduler.from_crawler(self._crawler)
        self._scheduler.open(self._crawler.spider)

    def prepare(self, pages: Sequence[Page]) -> list[Request]:
        requests = [Request(url) for url, _ in pages]
        for request in requests:
            self._fingerprint(request)  # Scrapy itself caches it per request
        return requests

    async def push(self, batch: list[Request]) -> int:
        return sum(map(self._scheduler.enqueue_request, batch))

    async def lease(self, limit: int, now: float) -> list[Request]:
        requests = []
        while len(requests) < limit and (request := self._scheduler.next_request()) is not None:
            requests.append(request)
        return requests

    async def ack(self, leases: list[Request], now: float) -> None:
        pass

    async def commit(self) -> None:
        pass

    async def close(self) -> None:
        self._scheduler.close("finished")
