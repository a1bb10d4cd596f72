"""Selects the usable contacts and peers of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from lycosa.dht.core.endpoints import (
    ENDPOINT_BYTES,
    IPV4,
    IPV6,
    AllowedNetworks,
    Contact,
    is_contactable,
    split_contacts,
)
from lycosa.dht.core.krpc import Reply
from lycosa.dht.core.transactions import SilentEndpoints

NODES_MAX = 64
"""Maximum number of contacts read from an answer. A datagram of 1,500 bytes holds 55."""


class AnswerReader:
    """Reads the contacts and peers that may be contacted. `contacts` also skips silent endpoints."""

    def __init__(self, family: int, allowed: AllowedNetworks, silent: SilentEndpoints) -> None:
        self.family = family
        self._allowed = allowed
        self._silent = silent
        self._peer_bytes = ENDPOINT_BYTES[family]

    def contacts(self, reply: Reply, now: float) -> list[Contact]:
        return [each for each in self._named(reply, self.family) if not self._silent.contains(each.endpoint, now)]

    def contacts_of_the_other_family(self, reply: Reply) -> list[Contact]:
        return self._named(reply, IPV4 + IPV6 - self.family)

    def _named(self, reply: Reply, family: int) -> list[Contact]:
        contacts = split_contacts(reply.nodes if family == IPV4 else reply.nodes6, family)[:NODES_MAX]
        return [contact for contact in contacts if is_contactable(contact.endpoint, self._allowed)]

    def peers(self, reply: Reply) -> list[bytes]:
        return self.usable(peer for peer in reply.values if len(peer) == self._peer_bytes)

    def usable(self, peers: Iterable[bytes]) -> list[bytes]:
        return [peer for peer in peers if is_contactable(peer, self._allowed)]
