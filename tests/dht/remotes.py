"""A node and remote nodes, played with plain packets in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterator

from lycosa.dht.core.bencode import Value, decode
from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.ids import ID_BITS, ID_BYTES, distance
from lycosa.dht.core.krpc import (
    PING,
    Query,
    decode_message,
    encode_query,
    encode_reply,
)
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.responder import Neighbourhood

INFOHASH = b"h" * 20
ASKER = Contact(b"q" * 20, pack("30.1.1.1", 6881))
MINUTE = 60.0
DEFAULTS = NodeConfig()


def a_node(ip: str = "20.1.1.1", config: NodeConfig = DEFAULTS, shared: Neighbourhood | None = None) -> DhtNode:
    node = DhtNode(pack(ip, 6881), config, random.Random(ip).randbytes, shared=shared)
    node.start(None, [], 0.0)
    return node


def remote(number: int, node_id: bytes = b"") -> Contact:
    return Contact(node_id or random.Random(number).randbytes(20), pack(f"40.{number // 250}.{number % 250}.1", 6881))


def sent(node: DhtNode) -> Iterator[tuple[dict[bytes, Value], bytes]]:
    for data, destination in node.datagrams_to_send():
        message = decode(data)
        assert isinstance(message, dict)
        yield message, destination


def queries(node: DhtNode) -> list[tuple[Query, bytes]]:
    found = [(decode_message(data), destination) for data, destination in node.datagrams_to_send()]
    return [(message, destination) for message, destination in found if isinstance(message, Query)]


def ask(
    node: DhtNode, method: bytes, arguments: bytes = b"", asker: Contact = ASKER, now: float = 1.0
) -> dict[bytes, Value]:
    """Send a query to the node and return the message that comes back."""
    node.receive_datagram(encode_query(b"aa", method, asker.id, arguments), asker.endpoint, now)
    (answer,) = (message for message, to in sent(node) if to == asker.endpoint and message[b"y"] != b"q")
    return answer


def returned(answer: dict[bytes, Value]) -> dict[bytes, Value]:
    values = answer[b"r"]
    assert isinstance(values, dict)
    return values


def answer(node: DhtNode, query: Query, contact: Contact, now: float) -> None:
    node.receive_datagram(encode_reply(query.transaction, contact.id, node.endpoint), contact.endpoint, now)


def meet(node: DhtNode, contact: Contact, now: float) -> None:
    """Let the node ping a remote, which answers."""
    node.ping(contact.endpoint, now)
    (ping,) = (query for query, to in queries(node) if to == contact.endpoint and query.method == PING)
    answer(node, ping, contact, now)


def a_node_with(count: int) -> tuple[DhtNode, list[Contact]]:
    """Return a node that met this many remotes, and the remotes in its table."""
    node = a_node()
    for number in range(count):
        meet(node, remote(number), 0.0)
    list(sent(node))
    return node, list(node.table.contacts())


def run_until(node: DhtNode, end: float, *, answering: list[Contact]) -> list[tuple[float, Query, bytes]]:
    """Let time pass; the remotes answer all queries. Return the queries."""
    by_endpoint = {contact.endpoint: contact for contact in answering}
    asked, now = [], 0.0
    while (timer := node.next_timer()) is not None and timer <= end:
        now = max(now, timer) + 0.001
        node.handle_timer(now)
        for query, to in queries(node):
            asked.append((now, query, to))
            if to in by_endpoint:
                answer(node, query, by_endpoint[to], now)
    return asked


def closest(contacts: list[Contact], target: bytes) -> set[Contact]:
    return set(sorted(contacts, key=lambda contact: distance(contact.id, target))[:8])


def common_prefix_bits(one: bytes, other: bytes) -> int:
    """Return how many leading bits two ids share: 0 to 160."""
    return ID_BITS - distance(one, other).bit_length()


def id_with_prefix(prefix: bytes, bits: int, rest: bytes) -> bytes:
    """Return an id: the first `bits` bits from `prefix`, the remaining ones from `rest` (20 random bytes)."""
    mask = (1 << (ID_BITS - bits)) - 1
    return (int.from_bytes(prefix) & ~mask | int.from_bytes(rest) & mask).to_bytes(ID_BYTES)
