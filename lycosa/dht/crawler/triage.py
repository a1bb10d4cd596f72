"""Stage 2: which infohashes are new. Those go into the queue, and who named them is remembered for a while."""

from __future__ import annotations

from collections.abc import Iterable

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.crawler.core.hash_records import ANNOUNCED, SAMPLED, WANTED
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.queue import HashQueue

PRIORITIES = {CrawlOutcome.WANTED: WANTED, CrawlOutcome.SAMPLED: SAMPLED, CrawlOutcome.ANNOUNCED: ANNOUNCED}


class Triage:
    """See the module."""

    def __init__(self, queue: HashQueue, hints: Hints, funnel: Funnel) -> None:
        self._queue, self._hints, self._funnel = queue, hints, funnel

    async def take(
        self,
        infohashes: Iterable[bytes],
        source: CrawlOutcome,
        *,
        sampler: Contact | None = None,
        peer: bytes | None = None,
    ) -> int:
        """Queue the new infohashes. Return their number. `sampler` or `peer`: who named them, if they have it."""
        named = list(infohashes)
        self._funnel.count(source, len(named))
        plausible = {each: None for each in named if len(set(each)) > 1}
        known = self._queue.known(plausible)
        unknown = [each for each in plausible if each not in known]
        if source is not CrawlOutcome.WANTED:
            for infohash in plausible:
                if infohash not in known or infohash in self._hints:
                    self._hints.add(infohash, sampler, peer)
        new = await self._queue.push(unknown, PRIORITIES[source]) if unknown else 0
        self._funnel.count(CrawlOutcome.MALFORMED, sum(len(set(each)) == 1 for each in named))
        self._funnel.count(CrawlOutcome.KNOWN, len(plausible) - new)
        self._funnel.count(CrawlOutcome.NEW, new)
        return new
