"""Routing table of one address family (BEP 5): contacts that answered us, in buckets by their distance to our id.

The table sends nothing. `responded` and `failed` record the result of a query, and may return a contact to ping. The
caller pings this contact and records the result in the same way, or calls `unchecked` if the ping has no result.

Bucket i has ids that share exactly i leading bits with ours. The last bucket has all closer ids, and only this bucket
splits. A contact is

- good: it sent an answer or a query in the last 15 minutes (and has answered us at least once);
- questionable: its last message is older, or it was restored from a file;
- bad: it failed to answer FAILURES_MAX queries in a row. It is never returned, and is replaced first.

A newcomer to a full bucket waits while the questionable contact that has been silent longest is pinged up to CHECKS_MAX
times. In a full bucket that cannot split, a contact with a secure id (BEP 42) replaces one without. One party cannot
fill the table, which has one contact per IPv4 address or IPv6 /64, and at most NETWORK_CONTACTS_MAX per network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lycosa.dht.core.endpoints import Contact, site_of
from lycosa.dht.core.ids import ID_BITS, ID_BYTES

K = 8
"""Maximum number of contacts in a bucket and in an answer (BEP 5)."""
GOOD_S = 900.0
FAILURES_MAX = 3
"""At 20 % packet loss, two unanswered queries in a row are common."""
CHECKS_MAX = 2
"""BEP 5: try once more."""
REPLACEMENTS_MAX = 8
"""More than K waiting newcomers are never needed."""
NETWORK_CONTACTS_MAX = 1
"""Maximum number of contacts per IPv4 /24 or IPv6 /48. A full table has about 160 contacts, out of millions of
nodes, so honest contacts hardly ever share a network (eMule allows 10 in a table and 2 in a bucket)."""


class TableEntry:
    """A contact in the table."""

    __slots__ = ("compact", "contact", "failures", "heard_at", "network", "secure")

    def __init__(self, contact: Contact, *, heard_at: float, network: bytes, secure: bool) -> None:
        self.contact = contact
        self.compact = contact.id + contact.endpoint
        self.heard_at = heard_at
        self.failures = 0
        self.network = network
        self.secure = secure

    def is_bad(self) -> bool:
        return self.failures >= FAILURES_MAX

    def is_good(self, now: float) -> bool:
        return self.failures < FAILURES_MAX and now < self.heard_at + GOOD_S

    def is_questionable(self, now: float) -> bool:
        return self.failures < FAILURES_MAX and now >= self.heard_at + GOOD_S


class Bucket:
    """Up to K entries, and the newcomers that wait to replace one of them."""

    __slots__ = ("answer", "answer_until", "changed_at", "checked", "checks", "entries", "replacements")

    def __init__(self, changed_at: float) -> None:
        self.entries: list[TableEntry] = []
        self.replacements: dict[bytes, Contact] = {}
        self.changed_at = changed_at
        self.checked: TableEntry | None = None
        self.checks = 0
        self.answer = b""
        self.answer_until = -math.inf

    def least_recent(self, entries: Iterable[TableEntry]) -> TableEntry | None:
        return min(entries, key=lambda entry: entry.heard_at, default=None)

    def wait(self, newcomer: Contact, now: float) -> Contact | None:
        """Keep a newcomer while a questionable contact is checked. Return the contact to ping."""
        if all(entry.is_good(now) for entry in self.entries):
            return None
        self.replacements.pop(newcomer.id, None)
        self.replacements[newcomer.id] = newcomer
        if len(self.replacements) > REPLACEMENTS_MAX:
            del self.replacements[next(iter(self.replacements))]
        return self.check_next(now) if self.checked is None else None

    def check_next(self, now: float) -> Contact | None:
        """Return the questionable contact to ping next. If there is none, drop the newcomers."""
        if not self.replacements:
            return None
        entry = self.least_recent(entry for entry in self.entries if entry.is_questionable(now))
        if entry is None:
            self.replacements.clear()
            return None
        self.checked, self.checks = entry, 0
        return entry.contact


class TableCounts(NamedTuple):
    """The number of contacts in each state."""

    good: int
    questionable: int
    bad: int
    buckets: int


def network_key(endpoint: bytes) -> bytes:
    """Return the network of an endpoint: its IPv4 /24 or IPv6 /48."""
    return endpoint[:3] if len(endpoint) == 6 else endpoint[:6]


class ContactIndex:
    """The entries of a table. Ids and sites are unique; the entries per network are limited."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, TableEntry] = {}
        self._by_site: dict[bytes, TableEntry] = {}
        self._by_network: dict[bytes, list[TableEntry]] = {}

    def add(self, entry: TableEntry) -> None:
        self.by_id[entry.contact.id] = entry
        self._by_site[site_of(entry.contact.endpoint)] = entry
        if entry.network:
            self._by_network.setdefault(entry.network, []).append(entry)

    def remove(self, entry: TableEntry) -> None:
        del self.by_id[entry.contact.id]
        del self._by_site[site_of(entry.contact.endpoint)]
        if entry.network:
            group = self._by_network[entry.network]
            group.remove(entry)
            if not group:
                del self._by_network[entry.network]

    def known(self, contact: Contact) -> TableEntry | None:
        entry = self.by_id.get(contact.id)
        return entry if entry is not None and entry.contact.endpoint == contact.endpoint else None

    def at(self, endpoint: bytes) -> TableEntry | None:
        entry = self._by_site.get(site_of(endpoint))
        return entry if entry is not None and entry.contact.endpoint == endpoint else None

    def blocking(self, contact: Contact, network: bytes) -> TableEntry | None:
        """Return an entry that keeps this contact out: it has the same id or site, or its network is full."""
        entry = self.by_id.get(contact.id) or self._by_site.get(site_of(contact.endpoint))
        if entry is not None or not network:
            return entry
        neighbours = self._by_network.get(network, ())
        return max(neighbours, key=lambda each: each.failures) if len(neighbours) >= NETWORK_CONTACTS_MAX else None

    def validate(self, entries: list[TableEntry]) -> None:
        assert {entry.contact.id: entry for entry in entries} == self.by_id, "ids"
        assert {site_of(entry.contact.endpoint): entry for entry in entries} == self._by_site, "sites"
        assert len(entries) == len(self.by_id) == len(self._by_site), "one contact per id and site"
        networks = sorted(entry.network for entry in entries if entry.network)
        assert networks == sorted(key for key, group in self._by_network.items() for _ in group), "networks"
        assert all(0 < len(group) <= NETWORK_CONTACTS_MAX for group in self._by_network.values()), "one network"


class RoutingTable:
    """`is_secure` returns whether the id of a contact fits its address. `is_local` returns whether an endpoint is
    exempt from the limit per network."""

    def __init__(
        self,
        own_id: bytes,
        now: float,
        *,
        is_secure: Callable[[Contact], bool] = lambda _: True,
        is_local: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._is_secure = is_secure
        self._is_local = is_local
        self._clear(own_id, now)

    def __len__(self) -> int:
        return len(self._index.by_id)

    def __contains__(self, contact: Contact) -> bool:
        return self._index.known(contact) is not None

    def contacts(self) -> Iterator[Contact]:
        return (entry.contact for entry in self._index.by_id.values())

    def counts(self, now: float) -> TableCounts:
        good = sum(entry.is_good(now) for entry in self._index.by_id.values())
        bad = sum(entry.is_bad() for entry in self._index.by_id.values())
        return TableCounts(good, len(self._index.by_id) - good - bad, bad, len(self._buckets))

    def is_populated(self, now: float) -> bool:
        return sum(entry.is_good(now) for entry in self._index.by_id.values()) >= K

    # Messages of contacts.

    def queried(self, contact: Contact, now: float) -> bool:
        """Record a query of a contact. Return whether the contact is in the table."""
        entry = self._index.by_id.get(contact[0])
        if entry is None or entry.contact.endpoint != contact[1]:
            return False
        entry.heard_at = now
        return True

    def responded(self, contact: Contact, now: float) -> Contact | None:
        """Record an answer. Add an unknown contact if there is room."""
        entry = self._index.known(contact)
        if entry is None:
            return self._add(contact, now)
        bucket = self._bucket(contact.id)
        if entry.is_bad():
            bucket.answer_until = -math.inf
        entry.heard_at = bucket.changed_at = now
        entry.failures = 0
        if bucket.checked is entry:
            bucket.checked = None
            return bucket.check_next(now)
        return None

    def failed(self, contact: Contact, now: float) -> Contact | None:
        entry = self._index.known(contact)
        if entry is None:
            return None
        bucket = self._bucket(contact.id)
        entry.failures += 1
        if entry.is_bad():
            bucket.answer_until = -math.inf
        if bucket.checked is not entry:
            return None
        bucket.checks += 1
        if bucket.checks < CHECKS_MAX:
            return entry.contact
        self._remove(entry)
        while bucket.replacements and len(bucket.entries) < K:
            _, newcomer = bucket.replacements.popitem()
            self._add(newcomer, now)
        return bucket.check_next(now)

    def unchecked(self, contact: Contact) -> None:
        """The result of a ping is unknown: it was not sent, the answer was an error, or we are offline."""
        entry = self._index.known(contact)
        if entry is not None:
            bucket = self._bucket(contact.id)
            if bucket.checked is entry:
                bucket.checked = None

    def renamed(self, endpoint: bytes, answered_id: bytes) -> None:
        """Remove the contact at this endpoint if it answered with another id."""
        entry = self._index.at(endpoint)
        if entry is not None and entry.contact.id != answered_id:
            self._remove(entry)

    def would_take(self, contact: Contact, now: float) -> bool:
        """Whether this unknown contact, if it answered, would be added, or would wait while another is checked."""
        if contact.id in self._index.by_id or contact.id == self.own_id:
            return False
        blocking = self._index.blocking(contact, self._network(contact.endpoint))
        if blocking is not None:
            return blocking.is_bad()
        bucket = self._bucket(contact.id)
        if len(bucket.entries) < K or self._splits(bucket):
            return True
        secure = self._is_secure(contact)
        return any(not entry.is_good(now) or (secure and not entry.secure) for entry in bucket.entries)

    # Reading the table.

    def closest(self, target: bytes, count: int, now: float) -> list[Contact]:
        """Return the closest good contacts; if they are too few, also the closest questionable ones."""
        good = self._closest_good(target, count, now)
        if len(good) < count:
            others = (entry for entry in self._index.by_id.values() if entry.is_questionable(now))
            good += self._nearest(others, target, count - len(good))
        return [entry.contact for entry in good]

    def closest_good(self, target: bytes, count: int, now: float) -> list[Contact]:
        return [entry.contact for entry in self._closest_good(target, count, now)]

    def closest_compact(self, target: bytes, now: float) -> bytes:
        """Return the compact form of the K good contacts closest to the target, in any order.

        All contacts of the target's bucket are closer to the target than those of other buckets. So K good contacts in
        a bucket are the answer for every target in it, until one of them becomes questionable.
        """
        index = ID_BITS - (int.from_bytes(target) ^ self._own).bit_length()
        bucket = self._buckets[index] if index < len(self._buckets) else self._buckets[-1]
        if now < bucket.answer_until:
            return bucket.answer
        if len(bucket.entries) == K and all(entry.is_good(now) for entry in bucket.entries):
            bucket.answer = b"".join([entry.compact for entry in bucket.entries])
            bucket.answer_until = min(entry.heard_at for entry in bucket.entries) + GOOD_S
            return bucket.answer
        return b"".join([entry.compact for entry in self._closest_good(target, K, now)])

    # Maintenance.

    def questionable(self, now: float) -> Contact | None:
        """Return the questionable contact to ping first: the one with the fewest failures, then the oldest message."""
        others = [entry for entry in self._index.by_id.values() if entry.is_questionable(now)]
        return min(others, key=lambda entry: (entry.failures, entry.heard_at)).contact if others else None

    def next_questionable_at(self) -> float:
        """Return when the next contact becomes questionable; infinity without contacts. The time may be in the past."""
        return min(
            (entry.heard_at + GOOD_S for entry in self._index.by_id.values() if not entry.is_bad()), default=math.inf
        )

    def changes(self) -> list[float]:
        return [bucket.changed_at for bucket in self._buckets]

    def target_in(self, index: int, random: bytes) -> bytes:
        """Return a random id in the range of a bucket."""
        free_bits = ID_BITS - index
        value = (self._own >> free_bits << free_bits) | (int.from_bytes(random) & ((1 << free_bits) - 1))
        if index < len(self._buckets) - 1:
            differing = 1 << (free_bits - 1)
            value = (value & ~differing) | (~self._own & differing)
        return value.to_bytes(ID_BYTES)

    def refreshed(self, index: int, now: float) -> None:
        if index < len(self._buckets):
            self._buckets[index].changed_at = now

    # Saved tables.

    def save(self) -> list[Contact]:
        return [entry.contact for entry in self._index.by_id.values() if not entry.is_bad()]

    def restore(self, contacts: Iterable[Contact], now: float) -> None:
        for contact in contacts:
            self._add(contact, now, heard_at=-math.inf)

    def rebase(self, own_id: bytes, now: float) -> None:
        entries = list(self._index.by_id.values())
        self._clear(own_id, now)
        for entry in entries:
            self._add(entry.contact, now, heard_at=entry.heard_at)

    def validate(self) -> None:
        entries = [entry for bucket in self._buckets for entry in bucket.entries]
        self._index.validate(entries)
        for bucket in self._buckets:
            assert len(bucket.entries) <= K, "too many contacts in a bucket"
            assert len(bucket.replacements) <= REPLACEMENTS_MAX, "too many replacements"
            assert all(self._bucket(entry.contact.id) is bucket for entry in bucket.entries), "a contact is misplaced"
            assert bucket.checked is None or bucket.checked in bucket.entries, "an evicted contact is being checked"
        assert self.own_id not in self._index.by_id, "our own id"

    # Internal.

    def _clear(self, own_id: bytes, now: float) -> None:
        self.own_id = own_id
        self._own = int.from_bytes(own_id)
        self._buckets = [Bucket(now)]
        self._index = ContactIndex()

    def _bucket(self, node_id: bytes) -> Bucket:
        index = ID_BITS - (int.from_bytes(node_id) ^ self._own).bit_length()
        return self._buckets[min(index, len(self._buckets) - 1)]

    def _splits(self, bucket: Bucket) -> bool:
        return bucket is self._buckets[-1] and len(self._buckets) < ID_BITS

    def _network(self, endpoint: bytes) -> bytes:
        return b"" if self._is_local(endpoint) else network_key(endpoint)

    def _add(self, contact: Contact, now: float, heard_at: float | None = None) -> Contact | None:
        if contact.id == self.own_id:
            return None
        self.renamed(contact.endpoint, contact.id)
        network = self._network(contact.endpoint)
        while (blocking := self._index.blocking(contact, network)) is not None:
            if not blocking.is_bad():
                return None
            self._remove(blocking)
        bucket = self._bucket(contact.id)
        entry = TableEntry(
            contact,
            heard_at=now if heard_at is None else heard_at,
            network=network,
            secure=self._is_secure(contact),
        )
        while len(bucket.entries) >= K:
            replaced = self._replaceable(bucket, entry)
            if replaced is not None:
                self._remove(replaced)
            elif self._splits(bucket):
                self._split()
                bucket = self._bucket(contact.id)
            else:
                return bucket.wait(contact, now)
        self._insert(bucket, entry, now)
        return None

    def _replaceable(self, bucket: Bucket, newcomer: TableEntry) -> TableEntry | None:
        bad = max(bucket.entries, key=lambda entry: entry.failures)
        if bad.is_bad():
            return bad
        if newcomer.secure and not self._splits(bucket):
            return bucket.least_recent(entry for entry in bucket.entries if not entry.secure)
        return None

    def _split(self) -> None:
        old = self._buckets.pop()
        self._buckets += [Bucket(old.changed_at), Bucket(old.changed_at)]
        for entry in old.entries:
            self._bucket(entry.contact.id).entries.append(entry)
        if old.checked is not None:
            home = self._bucket(old.checked.contact.id)
            home.checked, home.checks = old.checked, old.checks
        for newcomer in old.replacements.values():
            self._bucket(newcomer.id).replacements[newcomer.id] = newcomer

    def _insert(self, bucket: Bucket, entry: TableEntry, now: float) -> None:
        bucket.entries.append(entry)
        bucket.replacements.pop(entry.contact.id, None)
        bucket.changed_at = now
        bucket.answer_until = -math.inf
        self._index.add(entry)

    def _remove(self, entry: TableEntry) -> None:
        bucket = self._bucket(entry.contact.id)
        bucket.entries.remove(entry)
        bucket.answer_until = -math.inf
        if bucket.checked is entry:
            bucket.checked = None
        self._index.remove(entry)

    def _closest_good(self, target: bytes, count: int, now: float) -> list[TableEntry]:
        index = min(ID_BITS - (int.from_bytes(target) ^ self._own).bit_length(), len(self._buckets) - 1)
        found: list[TableEntry] = []
        # In order of distance: the target's bucket; then all later buckets together, because all their ids share the
        # same number of leading bits with the target; then each earlier bucket.
        rings = [self._buckets[index : index + 1], self._buckets[index + 1 :]]
        rings += [self._buckets[number : number + 1] for number in range(index - 1, -1, -1)]
        for ring in rings:
            entries = [entry for bucket in ring for entry in bucket.entries if entry.is_good(now)]
            found += self._nearest(entries, target, count - len(found))
            if len(found) >= count:
                break
        return found

    @staticmethod
    def _nearest(entries: Iterable[TableEntry], target: bytes, count: int) -> list[TableEntry]:
        wanted = int.from_bytes(target)
        return sorted(entries, key=lambda entry: int.from_bytes(entry.contact.id) ^ wanted)[:count]
