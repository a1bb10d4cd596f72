"""Nodes that lie. All are in two /24s and know all honest nodes; they ask honest nodes to get into their tables.

An attacker answers every search with its accomplices, under ids close to the target, and accepts announces, which it
forgets. An id that it is named by is the one it answers with. FORGING attackers take ids next to the target or victim
whether their address allows it or not; ECLIPSING ones take the closest id that BEP 42 allows them; those with PHANTOMS
take such ids, too, but name addresses where nobody answers, each attacker others, under ids that fit them.
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


class Attacker:
    """Looks to the network like a DhtNode."""

    def __init__(
        self,
        endpoint: bytes,
        accomplices: Sequence[bytes],
        attack: Attack,
        victims: Callable[[], Sequence[Contact]],
        targets: Sequence[bytes],
        pause_s: float,
        chance: random.Random,
    ) -> None:
        self.endpoint = endpoint
        self._accomplices = accomplices
        self._attack = attack
        self._victims = victims
        self._targets = targets
        self._pause_s = pause_s
        self._chance = chance
        self._outbox: list[tuple[bytes, bytes]] = []
        self._named: dict[bytes, bytes] = {}
        self._flood_at = chance.uniform(60.0, 60.0 + pause_s)
        self._phantoms_of: dict[bytes, list[Contact]] = {}
        self._ids: dict[tuple[bytes, bytes], bytes] = {}

    def receive_datagram(self, data: bytes, source: bytes, now: float) -> None:
        try:
            message = decode_message(data)
        except KrpcError:
            return
        if not isinstance(message, Query):
            return
        if not message.target:
            own_id = self._named.get(source, self._id(self.endpoint, source.ljust(20, b"\0")))
            reply = encode_reply(message.transaction, own_id, source)
        else:
            own_id = self._id(self.endpoint, message.target)
            friends = (
                self._phantoms(message.target) if self._attack is Attack.PHANTOMS else self._friends(message.target)
            )
            values = return_values(nodes=pack_contacts(friends), token=b"aoeusnth")
            reply = encode_reply(message.transaction, own_id, source, values)
        self._outbox.append((reply, source))

    def handle_timer(self, now: float) -> None:
        """Ask an honest node, under an id next to its own or next to a target."""
        self._flood_at = now + self._pause_s
        victims = self._victims()
        if not victims:
            return
        victim = self._chance.choice(victims)
        own_id = self._id(self.endpoint, self._chance.choice([victim.id, *self._targets]))
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

    def _friends(self, target: bytes) -> list[Contact]:
        friends = (Contact(self._id(each, target), each) for each in self._accomplices)
        return sorted(friends, key=lambda contact: distance(contact.id, target))[:8]

    def _phantoms(self, target: bytes) -> list[Contact]:
        known = self._phantoms_of.get(target)
        if known is None:
            endpoints = [bytes([100 + n % 50]) + self._chance.randbytes(3) + b"\x1a\xe1" for n in range(32)]
            phantoms = (Contact(self._new_id(each, target), each) for each in endpoints)
            known = self._phantoms_of[target] = sorted(phantoms, key=lambda each: distance(each.id, target))[:8]
        return known

    def _id(self, endpoint: bytes, target: bytes) -> bytes:
        """Return the id under which the node at this endpoint is named in a search for this target."""
        known = self._ids.get((endpoint, target))
        if known is None:
            known = self._ids[endpoint, target] = self._new_id(endpoint, target)
        return known

    def _new_id(self, endpoint: bytes, target: bytes) -> bytes:
        if self._attack is Attack.FORGING:
            return target[:18] + endpoint[2:4]
        allowed = [secure_id(ip_of(endpoint), target[:19] + bytes([last])) for last in range(8)]
        return min(allowed, key=lambda each: distance(each, target))
