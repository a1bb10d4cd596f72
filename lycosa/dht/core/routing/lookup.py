"""One iterative search for the nodes closest to a target.

A lookup queries the closest candidates it knows, ALPHA at a time, and takes new candidates from their answers. It ends
when the K closest nodes that answered are closer than all candidates that were not queried. The caller takes contacts
from `to_ask()` and reports `answered`, `stalled` or `failed` for each.

A node does not count as one of these K, and gets no announce, if its id does not fit its address (BEP 42), or if enough
nodes of its network already count. So one party with a few networks cannot surround a target.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lycosa.dht.core.endpoints import Contact, site_of
from lycosa.dht.core.limits import QUERIES_BURST
from lycosa.dht.core.routing.table import K, network_key

ALPHA = 3
"""Maximum number of queries in flight (Kademlia)."""
ASKED_MAX = 200
"""In a network of eight million nodes about 20 queries are usual. Lost datagrams and false answers need more."""
CANDIDATES_MAX = 400
"""Beyond this, the farthest candidates are forgotten."""
CONTACTS_PER_ANSWER_MAX = 2 * K
"""An answer should have K contacts; some nodes send 16."""
HOST_ASKED_MAX = QUERIES_BURST
"""Maximum number of queries to one host, whatever its ids and ports are. Further ones would wait for the limit per
host."""
NETWORK_COUNTED_MAX = 2
"""Maximum number of counted answers per IPv4 /24 or IPv6 /48."""
PEERS_MAX = 10_000
"""Maximum number of peers that a lookup collects: more than a node stores for one infohash (BEP 33)."""


class CandidateState(enum.Enum):
    """The state of a candidate in a lookup."""

    NEW = enum.auto()
    ASKED = enum.auto()
    STALLED = enum.auto()
    ANSWERED = enum.auto()
    FAILED = enum.auto()


UNDECIDED = {CandidateState.NEW, CandidateState.ASKED, CandidateState.STALLED}


class Candidate:
    """A contact of a lookup. `token` is its token for an announce."""

    __slots__ = ("contact", "counted", "distance", "state", "token")

    def __init__(self, contact: Contact, distance: int) -> None:
        self.contact = contact
        self.distance = distance
        self.state = CandidateState.NEW
        self.token = b""
        self.counted = False


class NodeWithToken(NamedTuple):
    """A node and its token for an announce."""

    contact: Contact
    token: bytes


class Lookup:
    """`is_secure` returns whether the id of a contact fits its address. `is_local` returns whether an endpoint is
    exempt from the limits per host and network."""

    def __init__(
        self,
        target: bytes,
        own_id: bytes,
        start: Iterable[Contact],
        *,
        is_secure: Callable[[Contact], bool] = lambda _: True,
        is_local: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self.target = target
        self.own_id = own_id
        self.peers: dict[bytes, None] = {}
        self.asked = 0
        self._target = int.from_bytes(target)
        self._is_secure = is_secure
        self._is_local = is_local
        self._candidates: list[Candidate] = []
        self._by_compact: dict[bytes, Candidate] = {}
        self._counted_sites: set[bytes] = set()
        self._counted_networks: dict[bytes, int] = {}
        self._asked_of: dict[bytes, int] = {}
        self._in_flight = 0
        self.add(start)

    def add(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            compact = contact.id + contact.endpoint
            if compact in self._by_compact or contact.id == self.own_id:
                continue
            candidate = Candidate(contact, int.from_bytes(contact.id) ^ self._target)
            self._by_compact[compact] = candidate
            insort(self._candidates, candidate, key=lambda each: each.distance)
        self._forget_farthest()

    def knows(self, endpoint: bytes) -> bool:
        return any(each.contact.endpoint == endpoint for each in self._candidates)

    def to_ask(self) -> list[Contact]:
        """Return the contacts to query. They count as queried from now on."""
        found = []
        for candidate in self._undecided()[0]:
            if self._in_flight >= ALPHA or self.asked >= ASKED_MAX:
                break
            if candidate.state is CandidateState.NEW and self._may_ask(candidate.contact.endpoint):
                site = site_of(candidate.contact.endpoint)
                self._asked_of[site] = self._asked_of.get(site, 0) + 1
                candidate.state = CandidateState.ASKED
                self._in_flight += 1
                self.asked += 1
                found.append(candidate.contact)
        return found

    def answered(self, contact: Contact, contacts: Iterable[Contact], token: bytes = b"") -> None:
        candidate = self._take(contact, CandidateState.ANSWERED)
        if candidate is not None:
            candidate.token = token
            candidate.counted = self._counts(contact)
        self.add(list(contacts)[:CONTACTS_PER_ANSWER_MAX])

    def add_peers(self, peers: Iterable[bytes]) -> list[bytes]:
        """Return the new peers."""
        new = [peer for peer in dict.fromkeys(peers) if peer not in self.peers][: PEERS_MAX - len(self.peers)]
        self.peers.update(dict.fromkeys(new))
        return new

    def stalled(self, contact: Contact) -> None:
        """The answer is late: another candidate may be queried meanwhile."""
        candidate = self._by_compact.get(contact.id + contact.endpoint)
        if candidate is not None and candidate.state is CandidateState.ASKED:
            candidate.state = CandidateState.STALLED
            self._in_flight -= 1

    def failed(self, contact: Contact) -> None:
        self._take(contact, CandidateState.FAILED)

    def is_finished(self) -> bool:
        """Whether no candidate is left to query and no answer is pending. Once a node has answered, late answers are
        not awaited."""
        if self._in_flight:
            return False
        undecided, counted = self._undecided()
        if self.asked < ASKED_MAX and any(each.state is CandidateState.NEW for each in undecided):
            return False
        return counted > 0 or all(each.state is not CandidateState.STALLED for each in undecided)

    def has_answers(self) -> bool:
        return any(each.counted for each in self._candidates)

    def closest(self) -> list[NodeWithToken]:
        """Return the K closest nodes whose answers count, the closest first."""
        counted = (each for each in self._candidates if each.counted)
        return [NodeWithToken(each.contact, each.token) for each, _ in zip(counted, range(K), strict=False)]

    def closest_with_token(self) -> list[NodeWithToken]:
        """Return the K closest nodes that accept an announce: those that sent a token (BEP 33)."""
        counted = (each for each in self._candidates if each.counted and each.token)
        return [NodeWithToken(each.contact, each.token) for each, _ in zip(counted, range(K), strict=False)]

    def _undecided(self) -> tuple[list[Candidate], int]:
        """Return the undecided candidates closer than the Kth counted node, and the number of counted nodes up to K."""
        found = []
        counted = 0
        for candidate in self._candidates:
            if candidate.counted:
                counted += 1
                if counted == K:
                    break
            elif self._is_undecided(candidate):
                found.append(candidate)
        return found, counted

    def _is_undecided(self, candidate: Candidate) -> bool:
        endpoint = candidate.contact.endpoint
        if candidate.state not in UNDECIDED or not self._may_count(endpoint):
            return False
        return candidate.state is not CandidateState.NEW or self._may_ask(endpoint)

    def _take(self, contact: Contact, state: CandidateState) -> Candidate | None:
        candidate = self._by_compact.get(contact.id + contact.endpoint)
        if candidate is None or candidate.state not in {CandidateState.ASKED, CandidateState.STALLED}:
            return None
        if candidate.state is CandidateState.ASKED:
            self._in_flight -= 1
        candidate.state = state
        return candidate

    def _may_ask(self, endpoint: bytes) -> bool:
        """Local networks have no limit."""
        return self._asked_of.get(site_of(endpoint), 0) < HOST_ASKED_MAX or self._is_local(endpoint)

    def _may_count(self, endpoint: bytes) -> bool:
        if site_of(endpoint) in self._counted_sites:
            return False
        return self._counted_networks.get(network_key(endpoint), 0) < NETWORK_COUNTED_MAX

    def _counts(self, contact: Contact) -> bool:
        """If the answer of this contact counts, count it."""
        endpoint = contact.endpoint
        if not self._is_secure(contact) or not self._may_count(endpoint):
            return False
        if not self._is_local(endpoint):
            network = network_key(endpoint)
            self._counted_sites.add(site_of(endpoint))
            self._counted_networks[network] = self._counted_networks.get(network, 0) + 1
        return True

    def _forget_farthest(self) -> None:
        while len(self._candidates) > CANDIDATES_MAX:
            forgotten = self._candidates.pop()
            del self._by_compact[forgotten.contact.id + forgotten.contact.endpoint]
            if forgotten.state is CandidateState.ASKED:
                self._in_flight -= 1
