"""Fills the queue of a crawl with infohashes, and measures triage: `dht_triage.py fill|measure FOLDER KNOWN`.

Of three infohashes one is done and two have failed; those wait for days, with different numbers of failures behind
them. `dht_crawl.py` starts this.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from running import ROOT, Figures, progress

sys.path.insert(0, str(ROOT))

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.crawler.core.hash_records import LEASED_MAX, POLICY, SAMPLED, to_record
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.core.retries import retry_at
from lycosa.dht.crawler.queue import COMMIT_EVERY_S, HashQueue
from lycosa.dht.crawler.triage import Triage
from lycosa.frontier.lsm.frontier import embedded_frontier

GROUP = LEASED_MAX - LEASED_MAX % 3
NOW = 1_700_000_000.0
GROUPS_PER_COMMIT = 5
SAMPLE = 20
KNOWN_SHARE = 0.95
SAMPLES = 50_000
"""Samples of 20 that are made before the clock starts."""


def infohash(number: int) -> bytes:
    """Return an infohash."""
    return blake2b(number.to_bytes(8), digest_size=20).digest()


def disk_bytes(folder: Path) -> int:
    """Return the bytes that files take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def memory_mb(field: str) -> float:
    """Return a figure of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


async def fill(folder: Path, known: int) -> Figures:
    """Add infohashes until so many are known."""
    frontier = embedded_frontier(folder, POLICY, now=NOW)
    chance = random.Random(known)
    stats = await frontier.stats()
    began = time.perf_counter()
    for group, start in enumerate(range(stats.done + stats.delayed, known, GROUP), 1):
        await frontier.push([to_record(infohash(number), SAMPLED) for number in range(start, start + GROUP)])
        for number, lease in enumerate(await frontier.lease(GROUP, NOW)):
            if number % 3:
                at = retry_at(chance.randrange(3, 8), NOW, chance.random(), CrawlOutcome.NO_PEERS)
                await frontier.nack(lease, "no_peers", at, NOW)
            else:
                await frontier.ack(lease, "fetched", (), NOW)
        if group % GROUPS_PER_COMMIT == 0:
            await frontier.commit({"sweep": start})
        if group % 500 == 0:
            progress(f"{start:,} after {time.perf_counter() - began:.0f} s")
    await frontier.commit({"sweep": known})
    frontier.store.checkpoint()
    stats = await frontier.stats()
    await frontier.close()
    return {"known": stats.done + stats.delayed, "bytes": disk_bytes(folder) / (stats.done + stats.delayed)}


def samples(known: int) -> Iterator[list[bytes]]:
    """Yield what nodes send: 95 of 100 are known, drawn at random, which is the worst case for any cache."""
    chance, new = random.Random(time.time_ns()), time.time_ns()
    for _ in range(SAMPLES):
        yield [
            infohash(chance.randrange(known)) if chance.random() < KNOWN_SHARE else infohash(new := new + 1)
            for _ in range(SAMPLE)
        ]


async def measure(folder: Path, known: int) -> Figures:
    """Return how fast triage is, with a commit every half second."""
    began = time.perf_counter()
    frontier = embedded_frontier(folder, POLICY, now=NOW)
    open_s = time.perf_counter() - began
    queue, funnel = HashQueue(frontier, lambda: NOW, random.random), Funnel()
    triage = Triage(queue, Hints(), funnel)
    sampler = Contact(b"n" * 20, b"\x14\0\0\1\x1a\xe1")
    named = list(samples(known))
    before_mb = memory_mb("RssAnon")
    wall, cpu = time.perf_counter(), time.process_time()
    commit_at = wall + COMMIT_EVERY_S
    for sample in named:
        await triage.take(sample, CrawlOutcome.SAMPLED, sampler=sampler)
        if time.perf_counter() >= commit_at:
            await queue.commit(0)
            commit_at = time.perf_counter() + COMMIT_EVERY_S
    await queue.commit(0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    total = SAMPLES * SAMPLE
    found = funnel.counts[CrawlOutcome.KNOWN] / total
    assert abs(found - KNOWN_SHARE) < 0.01, f"{found:.1%} known"
    used_mb = memory_mb("RssAnon")
    figures = {
        "rate": total / wall,
        "cpu_us": cpu / total * 1e6,
        # Without the samples themselves, which a crawl does not keep.
        "anonymous_mb": used_mb - total * (33 + 20 + 8) / 1e6,
        "before_mb": before_mb,
        "resident_mb": memory_mb("VmRSS"),
        "open_s": open_s,
    }
    await frontier.close()
    return figures


def main() -> None:
    """Do one step, and print its figures."""
    role, folder, known = sys.argv[1:]
    work = {"fill": fill, "measure": measure}[role]
    print(json.dumps(asyncio.run(work(Path(folder), int(known)))))


if __name__ == "__main__":
    main()
