"""Two or a few nodes that talk to each other."""

from __future__ import annotations

import random

from lycosa.dht.core.endpoints import pack, with_port
from lycosa.dht.core.events import AnnounceFinished, LookupFinished, LookupProgress, QueryFinished
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from tests.dht.sim.network import Host, Network

INFOHASH = b"i" * 20
DEFAULTS = NodeConfig()


def a_host(number: int, config: NodeConfig = DEFAULTS) -> Host:
    endpoint = pack(f"20.0.{number}.1", 6881)
    return Host(endpoint, DhtNode(endpoint, config, random.Random(number).randbytes))


def two_nodes(**of_second: object) -> tuple[Network, Host, Host]:
    network = Network(1)
    one, other = a_host(1), a_host(2, NodeConfig(**of_second))
    one.node.start(None, [], 0.0)
    other.node.start(None, [one.endpoint], 0.0)
    for host in (one, other):
        network.add(host)
    network.run(30.0)
    return network, one, other


def test_two_nodes_come_to_know_each_other():
    _, one, other = two_nodes()
    assert [each.endpoint for each in one.node.table.contacts()] == [other.endpoint]
    assert [each.endpoint for each in other.node.table.contacts()] == [one.endpoint]


def test_a_node_finds_what_another_announced():
    network, one, other = two_nodes()
    announced = other.node.announce(INFOHASH, 999, network.now)
    network.settle(other)
    network.run(network.now + 5)
    assert AnnounceFinished(announced, INFOHASH, 1, 1) in other.events
    found = other.node.get_peers(INFOHASH, network.now)
    network.settle(other)
    network.run(network.now + 5)
    assert LookupProgress(found, (with_port(other.endpoint, 999),)) in other.events
    (finished,) = (each for each in other.events if isinstance(each, LookupFinished))
    assert (finished.peers, [each.endpoint for each in finished.closest]) == (1, [one.endpoint])


def test_a_ping_is_answered():
    network, one, other = two_nodes()
    one.node.ping(other.endpoint, network.now)
    network.settle(one)
    network.run(network.now + 5)
    (event,) = (each for each in one.events if isinstance(each, QueryFinished))
    assert (event.node_id, event.error) == (other.node.node_id, "")


def test_a_ping_that_nobody_answers_ends():
    network, one, _ = two_nodes()
    one.node.ping(pack("20.9.9.9", 1), network.now)
    network.settle(one)
    network.run(network.now + 30)
    (event,) = (each for each in one.events if isinstance(each, QueryFinished))
    assert (event.node_id, event.error) == (None, "no answer")
