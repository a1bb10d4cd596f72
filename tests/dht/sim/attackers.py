"""Nodes that lie. All are in two /24s and know all honest nodes. They query honest nodes to get into their tables.

An attacker answers every lookup with other attackers, under ids close to the target. It accepts announces and forgets
them. It answers with the id under which other attackers return it. FORGING attackers use ids next to the target or
victim, whether these fit their address or not. ECLIPSING attackers use the closest id that BEP 42 allows.
PHANTOMS attackers do so, too, but instead of other attackers they return contacts that do not exist: each answer has
other addresses, with ids that fit these addresses.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence

from lycosa.dht.core.endpoints import Contact, ip_of, pack, pack_contacts
from lycosa.dht.core.events import Event
from lycosa.dht.core.ids import distance
from lycosa.dht.core.krpc import (
    FIND_NODE,
    KrpcError,
    Query,
    decode_message,
    encode_query,
    encode_reply,
    find_node_arguments,
    return_values,
)
from lycosa.dht.core.secure_id import secure_id


class Attack(enum.Enum):
    FORGING = enum.auto()
    ECLIPSING = enum.auto()
    PHANTOMS = enum.auto()


def attacker_endpoints(count: int, chance: random.Random) -> list[bytes]:
    """Return endpoints in two /24s."""
    return [pack(f"{150 + n % 2}.7.7.{1 + n // 2}", chance.randrange(1024, 65536)) for n in range(count)]


class Gang:
    """The attackers together: they agree on the id of each attacker in a lookup of a target."""

    def __init__(self, count: int, attack: Attack, chance: random.Random) -> None:
        self.endpoints = attacker_endpoints(count, chance)
        self.attack = attack
        self._ids: dict[tuple[bytes, bytes], bytes] = {}
        self._friends: dict[bytes, list[Contact]] = {}

    def id_of(self, endpoint: bytes, target: bytes) -> bytes:
        known = self._ids.get((endpoint, target))
        if known is None:
            known = self._ids[endpoint, target] = self.new_id(endpoint, target)
        return known

    def new_id(self, endpoint: bytes, target: bytes) -> bytes:
        if self.attack is Attack.FORGING:
            return target[:18] + endpoint[2:4]
        allowed = [secure_id(ip_of(endpoint), target[:19] + bytes([last])) for last in range(8)]
        return min(allowed, key=lambda each: distance(each, target))

    def friends(self, target: bytes) -> list[Contact]:
        """Return the eight attackers that can be closest to a target."""
        known = self._friends.get(target)
        if known is None:
            known = self._friends[target] = closest(
                [Contact(self.id_of(each, target), each) for each in self.endpoints], target
            )
        return known

    def phantoms(self, target: bytes, chance: random.Random) -> list[Contact]:
        """Return eight contacts that do not exist, other ones at each call."""
        endpoints = [bytes([100 + n % 50]) + chance.randbytes(3) + b"\x1a\xe1" for n in range(16)]
        return closest([Contact(self.new_id(each, target), each) for each in endpoints], target)


def closest(contacts: list[Contact], target: bytes) -> list[Contact]:
    return sorted(contacts, key=lambda each: distance(each.id, target))[:8]


class Attacker:
    """Looks to the network like a DhtNode."""

    def __init__(
        self,
        endpoint: bytes,
        gang: Gang,
        victim: Callable[[], Contact],
        targets: Sequence[bytes],
        pause_s: float,
        chance: random.Random,
    ) -> None:
        self.endpoint = endpoint
        self._gang = gang
        self._victim = victim
        self._targets = targets
        self._pause_s = pause_s
        self._chance = chance
        self._outbox: list[tuple[bytes, bytes]] = []
        self._named: dict[bytes, bytes] = {}
        self._flood_at = chance.uniform(60.0, 60.0 + pause_s)

    def receive_datagram(self, data: bytes, source: bytes, now: float) -> None:
        try:
            message = decode_message(data)
        except KrpcError:
            return
        if not isinstance(message, Query):
            return
        target = message.target
        if not target:
            own_id = self._named.get(source) or self._gang.id_of(self.endpoint, source.ljust(20, b"\0"))
            self._outbox.append((encode_reply(message.transaction, own_id, source), source))
            return
        phantoms = self._gang.attack is Attack.PHANTOMS
        named = self._gang.phantoms(target, self._chance) if phantoms else self._gang.friends(target)
        values = return_values(nodes=pack_contacts(named), token=b"aoeusnth")
        own_id = self._gang.id_of(self.endpoint, target)
        self._outbox.append((encode_reply(message.transaction, own_id, source, values), source))

    def handle_timer(self, now: float) -> None:
        """Query an honest node, with an id next to the node's id or next to a target."""
        self._flood_at = now + self._pause_s
        victim = self._victim()
        own_id = self._gang.id_of(self.endpoint, self._chance.choice([victim.id, *self._targets]))
        self._named[victim.endpoint] = own_id
        query = encode_query(self._chance.randbytes(4), FIND_NODE, own_id, find_node_arguments(victim.id))
        self._outbox.append((query, victim.endpoint))

    def next_timer(self) -> float:
        return self._flood_at

    def datagrams_to_send(self) -> list[tuple[bytes, bytes]]:
        outbox, self._outbox = self._outbox, []
        return outbox

    def next_event(self) -> Event | None:
        return None
