"""What an embedded frontier stores about each host: its number, last contact, address and robots.txt."""

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


def _decode_row(_: bytes, value: bytes) -> HostRow:
    return decode_host(value)


class HostTable:
    """The tables HOSTS, NAMES and FACTS."""

    def __init__(self, memtable: Memtable, counters: Counters) -> None:
        self._memtable = memtable
        self._counters = counters

    def id(self, host: str) -> int:
        """A new host gets the next number."""
        return self._row(host).id

    def name(self, host_id: int) -> str:
        return self._memtable.get(NAMES_TABLE, _id_key(host_id), decode_name) or ""

    def find(self, host: str) -> HostRow | None:
        return self._memtable.get(HOSTS_TABLE, host_key(host), decode_host)

    def load(self, host: str) -> SavedHost:
        """`SavedHost()` for an unknown host."""
        row = self.find(host)
        if row is None:
            return SavedHost()
        facts = self._memtable.get(FACTS_TABLE, host_key(host), decode_facts)
        return SavedHost(row.started_at, row.blocked_until, facts, row.address, row.address_until)

    def save(self, host: str, saved: SavedHost) -> None:
        """With `saved.facts` None, the stored facts are kept."""
        row = self._row(host)
        new = HostRow(row.id, saved.started_at, saved.blocked_until, saved.address, saved.address_until, row.queued)
        key = host_key(host)
        if new != row:
            self._memtable.put(HOSTS_TABLE, key, new)
        if saved.facts is not None and saved.facts != self._memtable.get(FACTS_TABLE, key, decode_facts):
            self._memtable.put(FACTS_TABLE, key, saved.facts)

    def views(self, after: str, limit: int) -> list[HostView]:
        rows = self._memtable.scan(HOSTS_TABLE, host_key(after) if after else b"", limit, _decode_row)
        return [self._view(self.name(row.id), row) for _, row in rows]

    def queued(self, host: str) -> int:
        row = self.find(host)
        return row.queued if row else 0

    def save_queued(self, counts: Mapping[str, int]) -> None:
        """Store the estimates that have changed by more than an eighth of their new value."""
        for host, count in counts.items():
            row = self._row(host)
            if abs(count - row.queued) * 8 > count:
                self._memtable.put(HOSTS_TABLE, host_key(host), replace(row, queued=count))

    def _view(self, host: str, row: HostRow) -> HostView:
        facts = self._memtable.get(FACTS_TABLE, host_key(host), decode_facts) or HostFacts(robots_status=-1)
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
            self._memtable.put(HOSTS_TABLE, host_key(host), row)
            self._memtable.put(NAMES_TABLE, _id_key(row.id), host)
        return row
