"""What an embedded frontier knows of hosts: a number for each, when it was contacted, its address, its robots.txt."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from msgspec.structs import replace

from lycosa.frontier.core.model import HostFacts, HostView
from lycosa.frontier.local import SavedHost
from lycosa.frontier.lsm.lmdb import FACTS, HOSTS, NAMES, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.rows import Counters, HostRow, decode_facts, decode_host, decode_name, host_key

HOSTS_TABLE, NAMES_TABLE, FACTS_TABLE = table_number(HOSTS), table_number(NAMES), table_number(FACTS)
_id_key = Struct(">I").pack


class HostTable:
    """The tables HOSTS, NAMES and FACTS."""

    def __init__(self, tables: Memtable, counters: Counters) -> None:
        self._tables = tables
        self._counters = counters

    def id(self, host: str) -> int:
        """Return the number of a host, a new one for a new host."""
        return self._row(host).id

    def name(self, host_id: int) -> str:
        """Return the key of the host with this number."""
        return self._tables.get(NAMES_TABLE, _id_key(host_id), decode_name) or ""

    def find(self, host: str) -> HostRow | None:
        """Return what is known of a host; nothing is made."""
        return self._tables.get(HOSTS_TABLE, host_key(host), decode_host)

    def recall(self, host: str) -> SavedHost:
        """Return what outlives an idle host."""
        row = self.find(host)
        if row is None:
            return SavedHost()
        facts = self._tables.get(FACTS_TABLE, host_key(host), decode_facts)
        return SavedHost(row.started_at, row.blocked_until, facts, row.address, row.address_until)

    def remember(self, host: str, memory: SavedHost) -> None:
        """Write what changed of it."""
        row = self._row(host)
        now = HostRow(row.id, memory.started_at, memory.blocked_until, memory.address, memory.address_until, row.queued)
        key = host_key(host)
        if now != row:
            self._tables.put(HOSTS_TABLE, key, now)
        if memory.facts is not None and memory.facts != self._tables.get(FACTS_TABLE, key, decode_facts):
            self._tables.put(FACTS_TABLE, key, memory.facts)

    def views(self, after: str, limit: int) -> list[HostView]:
        """Describe hosts behind a key, in order."""
        rows = self._tables.scan(HOSTS_TABLE, host_key(after) if after else b"", limit, decode_host)
        return [self._view(self.name(row.id), row) for _, row in rows]

    def queued(self, host: str) -> int:
        """Return the estimate of how much a host has queued."""
        row = self.find(host)
        return row.queued if row else 0

    def note_queued(self, counts: Mapping[str, int]) -> None:
        """Keep these estimates, where they changed by much."""
        for host, count in counts.items():
            row = self._row(host)
            if abs(count - row.queued) * 8 > count:
                self._tables.put(HOSTS_TABLE, host_key(host), replace(row, queued=count))

    def _view(self, host: str, row: HostRow) -> HostView:
        facts = self._tables.get(FACTS_TABLE, host_key(host), decode_facts) or HostFacts(robots_status=-1)
        return HostView(
            host,
            blocked_until=row.blocked_until,
            started_at=row.started_at,
            address=row.address,
            robots_status=facts.robots_status,
            robots_at=facts.robots_at,
        )

    def _row(self, host: str) -> HostRow:
        row = self.find(host)
        if row is None:
            self._counters.hosts += 1
            row = HostRow(self._counters.hosts)
            self._tables.put(HOSTS_TABLE, host_key(host), row)
            self._tables.put(NAMES_TABLE, _id_key(row.id), host)
        return row
