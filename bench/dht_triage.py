"""The queue of a crawl with millions of infohashes: `dht_triage.py fill|measure FOLDER NUMBER`.

    fill      make a queue with this number of known infohashes. Only the tables that triage reads are written, in bulk
    measure   the speed of triage with this queue

`dht_crawl.py` starts this.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from running import ROOT, Figures, progress

sys.path.insert(0, str(ROOT))

from lycosa.core.bloom import Filter
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.crawler.core.hash_records import POLICY, SAMPLED, fingerprint, to_record
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.queue import COMMIT_EVERY_S, HashQueue
from lycosa.dht.crawler.triage import Triage
from lycosa.frontier.lsm.filters import FilterFile
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.lsm.infohash_rows import delayed_key, mark_of
from lycosa.frontier.lsm.lmdb import SEEN_L1, table_number
from lycosa.frontier.lsm.rows import ARRIVAL_BYTES

NOW = 1_700_000_000.0
GROUPS_PER_COMMIT = 5
SAMPLE = 20
KNOWN_SHARE = 0.95
SAMPLES = 50_000
"""Number of samples of 20 that are generated before the measurement."""
ASKED_FOR = 200_000
"""Number of known infohashes that samples contain. Of the other known infohashes only fingerprints are stored, which
makes no difference for triage."""
PARTS = 1 << 16
DONE_MARK = bytes(ARRIVAL_BYTES)
FAILED_MARK = mark_of(delayed_key(NOW, 0))


def infohash(number: int) -> bytes:
    """Return an infohash."""
    return blake2b(number.to_bytes(8), digest_size=20).digest()


def memory_mb(field: str) -> float:
    """Return a figure of the memory of this process: a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


async def fill(folder: Path, known: int) -> Figures:
    """Write fingerprints in order. Of every three infohashes, one is done and two have failed."""
    asked_for = sorted(fingerprint(infohash(number)).to_bytes(8) for number in range(ASKED_FOR))
    frontier = embedded_frontier(folder, POLICY, now=NOW)
    await frontier.push([to_record(infohash(-1 % (1 << 64)), SAMPLED)])
    for lease in await frontier.lease(1, NOW):
        await frontier.ack(lease, "fetched", (), NOW)
    await frontier.commit({"sweep": 0})
    frontier.store.checkpoint()
    memtable, filter_ = frontier.store.memtable, Filter()
    for part in range(PARTS):
        prefix = part.to_bytes(2)
        count = (known - ASKED_FOR) * (part + 1) // PARTS - (known - ASKED_FOR) * part // PARTS
        noise = os.urandom(6 * count)
        keys = [prefix + noise[at : at + 6] for at in range(0, len(noise), 6)]
        while asked_for and asked_for[0].startswith(prefix):
            keys.append(asked_for.pop(0))
        keys.sort()
        marks = (DONE_MARK, FAILED_MARK, FAILED_MARK)
        memtable.database.put(table_number(SEEN_L1), [(key, marks[n % 3]) for n, key in enumerate(keys)])
        filter_.update(map(int.from_bytes, keys))
        if part % 1024 == 1023:
            memtable.database.commit()
            progress(f"{part / PARTS:.0%} written")
    FilterFile(folder, 0, sync=False).save(filter_, memtable.applied)
    memtable.database.commit()
    await frontier.close()
    return {"known": known}


def samples() -> Iterator[list[bytes]]:
    """Yield samples: 95 of 100 infohashes are known, drawn at random, which is the worst case for any cache."""
    chance, new = random.Random(time.time_ns()), time.time_ns()
    for _ in range(SAMPLES):
        yield [
            infohash(chance.randrange(ASKED_FOR)) if chance.random() < KNOWN_SHARE else infohash(new := new + 1)
            for _ in range(SAMPLE)
        ]


async def measure(folder: Path, _: int) -> Figures:
    """Return the speed of triage, with a commit every half second."""
    began = time.perf_counter()
    frontier = embedded_frontier(folder, POLICY, now=NOW)
    open_s = time.perf_counter() - began
    queue, funnel = HashQueue(frontier, lambda: NOW, random.random), Funnel()
    triage = Triage(queue, Hints(), funnel)
    sampler = Contact(b"n" * 20, b"\x14\0\0\1\x1a\xe1")
    loading = time.process_time()
    assert not queue.unknown([infohash(number) for number in range(ASKED_FOR)])
    loading = time.process_time() - loading
    loaded_mb = memory_mb("RssAnon")
    named = list(samples())
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
    sampled_mb = total * (len(infohash(0)) + sys.getsizeof(b"") + 8) / 1e6
    figures = {
        "rate": total / wall,
        "cpu_us": cpu / total * 1e6,
        "load_s": loading,
        "loaded_mb": loaded_mb,
        # Without the samples, which a crawl does not keep.
        "anonymous_mb": memory_mb("RssAnon") - sampled_mb,
        "resident_mb": memory_mb("VmRSS"),
        "open_s": open_s,
    }
    await frontier.close()
    return figures


def main() -> None:
    """Do one step, and print its figures."""
    role, folder, number = sys.argv[1:]
    work = {"fill": fill, "measure": measure}[role]
    print(json.dumps(asyncio.run(work(Path(folder), int(number)))))


if __name__ == "__main__":
    main()
