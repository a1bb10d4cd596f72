"""Stage 2 of a DHT crawl: queues the new infohashes, and remembers for a while which nodes and peers they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.crawler.core.hash_records import ANNOUNCED, SAMPLED, WANTED
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.queue import HashQueue

PRIORITIES = {CrawlOutcome.WANTED: WANTED, CrawlOutcome.SAMPLED: SAMPLED, CrawlOutcome.ANNOUNCED: ANNOUNCED}
MALFORMED = frozenset(bytes([each]) * ID_BYTES for each in range(256))
"""Infohashes of 20 equal bytes: test programs and broken clients announce these."""


class Triage:
    """Stage 2. `note_known` gets the sampled and announced infohashes that are not new: their torrents may already be
    in the store."""

    def __init__(
        self,
        queue: HashQueue,
        hints: Hints,
        funnel: Funnel,
        note_known: Callable[[Iterable[bytes]], None] = lambda _: None,
    ) -> None:
        self._queue, self._hints, self._funnel, self._note_known = queue, hints, funnel, note_known

    async def take(
        self,
        infohashes: Iterable[bytes],
        source: CrawlOutcome,
        *,
        sampler: Contact | None = None,
        peer: bytes | None = None,
    ) -> int:
        """Return the number of new infohashes. `sampler` or `peer` is where they came from, if known."""
        found = list(infohashes)
        self._funnel.count(source, len(found))
        if sampler is not None and not self._hints.trust.trusts(sampler.endpoint, self._queue.now()):
            self._funnel.count(CrawlOutcome.DISTRUSTED, len(found))
            return 0
        plausible = [each for each in found if each not in MALFORMED]
        unknown = self._queue.unknown(plausible)
        if source is not CrawlOutcome.WANTED:
            self._note_known(set(plausible).difference(unknown) if unknown else plausible)
            for infohash in {*unknown, *self._hints.among(plausible)}:
                self._hints.add(infohash, sampler, peer)
        new = await self._queue.push(unknown, PRIORITIES[source]) if unknown else 0
        self._funnel.count(CrawlOutcome.MALFORMED, len(found) - len(plausible))
        self._funnel.count(CrawlOutcome.KNOWN, len(plausible) - new)
        self._funnel.count(CrawlOutcome.NEW, new)
        return new
