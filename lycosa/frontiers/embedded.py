"""The durable frontier of one machine, on LMDB: what it lends stays on the disk until it is acked.

A record stays under its queue key while it is lent, so a process that dies leaves nothing to repair: its leases are
void, and the next owner finds the records where they were. Of every host with work only the next few records are in
memory (`HostQueue`); the rest is on the disk, so memory depends on active hosts and not on URLs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lycosa.core.errors import StorageError
from lycosa.core.frontier import Policy, State
from lycosa.core.model import FrontierStats, HostFacts, UrlRecord
from lycosa.core.segments import starts_at
from lycosa.frontiers.local import HostMemory, LocalFrontier
from lycosa.frontiers.tables import FINGERPRINT, QUEUE_KEY, SLEEP_KEY, Tables

BUFFER_MAX = 128
"""Records of one host that are read ahead, when few hosts are active."""

BUFFERED_MAX = 50_000
"""Records of all hosts together that are read ahead, as long as each host has its BUFFER_MIN."""

BUFFER_MIN = 4

WAKE_MAX = 1000
"""Sleepers woken in one call."""

RECENT_MAX = 100_000
"""Fingerprints remembered to settle repeated look-ups in memory, in each of two generations."""

REASONS_MAX = 200
"""Different reasons that are counted apart, besides HTTP statuses; the rest is counted as OTHER."""

STATUS_DIGITS = 3

HOST_KEY_MAX = 400
"""Bytes of a host key that are stored as they are; LMDB keys end at 511."""

OTHER = "other"
PRIORITY_ZERO = 1 << 31
QUEUED, SLEEPING, DONE, DEAD = b"q", b"s", b"d", b"x"

encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(UrlRecord).decode


class Counters(msgspec.Struct):
    """What is counted, committed with everything else. `pending` is queued or lent."""

    pending: int = 0
    sleeping: int = 0
    dead: int = 0
    arrivals: int = 0
    hosts: int = 0
    epoch: int = 0
    reasons: dict[str, int] = {}
    dead_reasons: dict[str, int] = {}
    positions: dict[str, int] = {}


class HostRow(msgspec.Struct, array_like=True):
    """A row of the table `hosts`."""

    id: int
    started_at: float = 0.0
    blocked_until: float = 0.0
    facts: HostFacts | None = None


decode_counters = msgspec.msgpack.Decoder(Counters).decode
decode_host = msgspec.msgpack.Decoder(HostRow).decode
decode_dead = msgspec.msgpack.Decoder(tuple[UrlRecord, str]).decode


class Waiting(NamedTuple):
    """A queued record in memory, ordered by its key."""

    key: bytes
    record: UrlRecord


class HostQueue:
    """The next records of one host: all that are queued with a key up to `horizon` are here or lent.

    `complete` says that nothing lies on the disk behind the horizon.
    """

    __slots__ = ("complete", "heap", "horizon", "id")

    def __init__(self, host_id: int, *, complete: bool) -> None:
        self.id = host_id
        self.heap: list[Waiting] = []
        self.complete = complete
        self.horizon = QUEUE_KEY.pack(host_id, 0, 0)

    def put(self, key: bytes, record: UrlRecord, limit: int) -> None:
        """A record was queued under this key; keep it if it belongs before the horizon, or if there is room."""
        if key <= self.horizon:
            heappush(self.heap, Waiting(key, record))
            if len(self.heap) > 2 * limit:
                self._shrink(limit)
        elif self.complete and len(self.heap) < limit:
            heappush(self.heap, Waiting(key, record))
            self.horizon = key
        else:
            self.complete = False

    def fill(self, tables: Tables, lent: set[bytes], limit: int) -> None:
        """Read on behind the horizon, past what is lent."""
        rows = tables.scan(tables.queue, self.horizon, self.horizon[:4], limit)
        self.heap.extend(Waiting(key, decode_record(value)) for key, value in rows if key not in lent)
        heapify(self.heap)
        self.complete = len(rows) < limit
        if rows:
            self.horizon = rows[-1][0]

    def _shrink(self, limit: int) -> None:
        self.heap = sorted(self.heap)[:limit]
        self.horizon = self.heap[-1].key
        self.complete = False


class LmdbShelf:
    """See `local.Shelf`. The place of a record is its queue key."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self._tables = Tables(path, sync=sync)
        self._path = path
        self._counters = self._read_counters()
        self._counters.epoch += 1
        self._queues: dict[str, HostQueue] = {}
        self._lent: set[bytes] = set()
        self._recent: set[int] = set()
        self._older: set[int] = set()
        self._due = self._read_due()
        self._dirty = True

    @property
    def epoch(self) -> int:
        """How often this state was opened; fences leases of earlier owners."""
        return self._counters.epoch

    def add(self, record: UrlRecord) -> State | None:
        """Store what is new."""
        due = record.not_before > 0
        key = self._sleep_key(record) if due else self._queue_key(record)
        if not record.dont_filter and not self._first_sight(record, (SLEEPING if due else QUEUED) + key):
            return None
        if due:
            self._put_to_sleep(key, record)
            return State.DELAYED
        self._enqueue(key, record)
        return State.QUEUED

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were added lately."""
        if segment:
            return set()
        given = set(fingerprints)
        return (given & self._recent) | (given & self._older)

    def take(self, host: str) -> tuple[bytes, UrlRecord, float | None] | None:
        """Pop the host's next record, reading on when memory has none."""
        if not self._has_more(host):
            return None
        heap = self._queue(host).heap
        key, record = heappop(heap)
        self._lent.add(key)
        return key, record, starts_at(heap[0].record.segment) if self._has_more(host) else None

    def _has_more(self, host: str) -> bool:
        queue = self._queue(host)
        while not queue.heap and not queue.complete:
            queue.fill(self._tables, self._lent, self._buffer_limit())
        return bool(queue.heap)

    def put_back(self, place: bytes, record: UrlRecord) -> None:
        """Queue it under its old key."""
        self._lent.discard(place)
        if record.attempts:
            self._put(self._tables.queue, place, encode(record))
        self._queue(record.host).put(place, record, self._buffer_limit())

    def finish(self, place: bytes, record: UrlRecord, reason: str) -> None:
        """Delete the record; its fingerprint keeps the reason."""
        self._leave_queue(place)
        count(self._counters.reasons, reason)
        self._mark(record, DONE + reason.encode())

    def retry(self, place: bytes, record: UrlRecord) -> None:
        """Move the record from the queue to the sleepers."""
        self._leave_queue(place)
        key = self._sleep_key(record)
        self._mark(record, SLEEPING + key)
        self._put_to_sleep(key, record)

    def bury(self, place: bytes, record: UrlRecord, reason: str) -> None:
        """Move the record to the dead."""
        self._leave_queue(place)
        self._mark(record, DEAD + place[8:])
        self._put(self._tables.dead, place[8:], encode((record, reason)))
        self._counters.dead += 1
        count(self._counters.dead_reasons, reason)

    def wake(self, now: float) -> Sequence[str]:
        """Queue what is due."""
        woken: list[str] = []
        while self._due is not None and self._due <= now and len(woken) < WAKE_MAX:
            woken.append(self._wake_first())
        return woken

    def next_due(self) -> float | None:
        """The first sleeper's time."""
        return self._due

    def hosts_with_work(self) -> Sequence[str]:
        """Find the hosts by leaping from the first record of one to the first of the next."""
        tables = self._tables
        rows = tables.walk(tables.queue, lambda key: QUEUE_KEY.pack(QUEUE_KEY.unpack(key)[0] + 1, 0, 0))
        return [decode_record(value).host for _, value in rows]

    def recall_host(self, host: str) -> HostMemory:
        """Look it up."""
        row = self._host_row(host)
        return HostMemory(row.started_at, row.blocked_until, row.facts) if row else HostMemory()

    def remember_host(self, host: str, memory: HostMemory) -> None:
        """Store it."""
        row = self._host_row(host) or self._new_host(host)
        self._put(self._tables.hosts, host_key(host), encode(HostRow(row.id, *memory)))

    def commit(self, positions: Mapping[str, int]) -> None:
        """Write the counters, commit, and drop the queues of hosts that have nothing left."""
        if positions.items() <= self._counters.positions.items() and not self._dirty:
            return
        self._counters.positions.update(positions)
        self._put(self._tables.meta, b"counters", encode(self._counters))
        self._tables.commit()
        self._dirty = False
        self._queues = {host: queue for host, queue in self._queues.items() if queue.heap or not queue.complete}

    def positions(self) -> dict[str, int]:
        """Return those of the last commit."""
        return dict(self._counters.positions)

    def stats(self) -> FrontierStats:
        """Count."""
        counters = self._counters
        return FrontierStats(
            queued=counters.pending - len(self._lent),
            delayed=counters.sleeping,
            done=sum(counters.reasons.values()),
            dead=counters.dead,
            reasons=dict(counters.reasons),
            dead_reasons=dict(counters.dead_reasons),
        )

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the first ones."""
        rows = self._tables.scan(self._tables.dead, b"", b"", limit)
        return [decode_dead(value) for _, value in rows]

    def close(self) -> None:
        """Release the store."""
        self._tables.close()

    def _first_sight(self, record: UrlRecord, value: bytes) -> bool:
        table = self._tables.seen(record.segment)
        if not record.segment:
            self._notice(record.fingerprint)
        return self._put(table, FINGERPRINT.pack(record.fingerprint), value, overwrite=False)

    def _notice(self, fingerprint: int) -> None:
        if len(self._recent) >= RECENT_MAX:
            self._older, self._recent = self._recent, set()
        self._recent.add(fingerprint)

    def _mark(self, record: UrlRecord, value: bytes) -> None:
        if not record.dont_filter:
            self._put(self._tables.seen(record.segment), FINGERPRINT.pack(record.fingerprint), value)

    def _queue_key(self, record: UrlRecord) -> bytes:
        self._counters.arrivals += 1
        rank = PRIORITY_ZERO - max(1 - PRIORITY_ZERO, min(PRIORITY_ZERO, record.priority))
        return QUEUE_KEY.pack(self._queue(record.host).id, rank, self._counters.arrivals)

    def _sleep_key(self, record: UrlRecord) -> bytes:
        self._counters.arrivals += 1
        return SLEEP_KEY.pack(math.ceil(record.not_before * 1000), self._counters.arrivals)

    def _enqueue(self, key: bytes, record: UrlRecord) -> None:
        self._put(self._tables.queue, key, encode(record))
        self._counters.pending += 1
        self._queue(record.host).put(key, record, self._buffer_limit())

    def _leave_queue(self, key: bytes) -> None:
        self._lent.discard(key)
        self._counters.pending -= 1
        self._dirty = True
        self._tables.delete(self._tables.queue, key)

    def _put_to_sleep(self, key: bytes, record: UrlRecord) -> None:
        self._put(self._tables.sleep, key, encode(record))
        self._counters.sleeping += 1
        at = SLEEP_KEY.unpack(key)[0] / 1000
        self._due = at if self._due is None else min(self._due, at)

    def _wake_first(self) -> str:
        entry = self._tables.first(self._tables.sleep)
        if entry is None:
            raise StorageError(f"{self._path}: a sleeping record has vanished")
        self._tables.delete(self._tables.sleep, entry[0])
        self._counters.sleeping -= 1
        self._due = self._read_due()
        record = decode_record(entry[1])
        key = self._queue_key(record)
        self._mark(record, QUEUED + key)
        self._enqueue(key, record)
        return record.host

    def _buffer_limit(self) -> int:
        return max(BUFFER_MIN, min(BUFFER_MAX, BUFFERED_MAX // (len(self._queues) + 1)))

    def _queue(self, host: str) -> HostQueue:
        queue = self._queues.get(host)
        if queue is None:
            row = self._host_row(host)
            queue = self._queues[host] = HostQueue((row or self._new_host(host)).id, complete=row is None)
        return queue

    def _host_row(self, host: str) -> HostRow | None:
        value = self._tables.get(self._tables.hosts, host_key(host))
        return decode_host(value) if value is not None else None

    def _new_host(self, host: str) -> HostRow:
        self._counters.hosts += 1
        row = HostRow(self._counters.hosts)
        self._put(self._tables.hosts, host_key(host), encode(row))
        return row

    def _put(self, table: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> bool:
        self._dirty = True
        return self._tables.put(table, key, value, overwrite=overwrite)

    def _read_due(self) -> float | None:
        entry = self._tables.first(self._tables.sleep)
        return SLEEP_KEY.unpack(entry[0])[0] / 1000 if entry else None

    def _read_counters(self) -> Counters:
        value = self._tables.get(self._tables.meta, b"counters")
        return decode_counters(value) if value else Counters()


def count(reasons: dict[str, int], reason: str) -> None:
    """Add one, keeping the number of different reasons bounded."""
    always = len(reason) == STATUS_DIGITS and reason.isdecimal()
    key = reason if reason in reasons or always or len(reasons) < REASONS_MAX else OTHER
    reasons[key] = reasons.get(key, 0) + 1


def host_key(host: str) -> bytes:
    """Return the key of a host in LMDB, whose keys are short."""
    key = host.encode()
    return key if len(key) <= HOST_KEY_MAX else key[:HOST_KEY_MAX] + sha256(key).digest()


def embedded_frontier(path: Path, policy: Policy, *, sync: bool = False, now: float = math.inf) -> LocalFrontier[bytes]:
    """Open the frontier in this folder at `now` (unix seconds). The caller holds the lock of the state."""
    shelf = LmdbShelf(path, sync=sync)
    return LocalFrontier(policy, shelf, shelf.epoch << 32, now)
