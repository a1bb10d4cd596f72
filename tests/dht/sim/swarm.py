"""Nodes that come and go, announce peers and look them up, on a simulated network, with or without attackers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from lycosa.dht.core.endpoints import Contact, pack, with_port
from lycosa.dht.core.events import AnnounceFinished, Event, LookupFinished, LookupProgress, SavedTable
from lycosa.dht.core.ids import distance
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.routing.maintenance import REFRESH_S
from tests.dht.sim.attackers import Attack, Attacker, Gang
from tests.dht.sim.network import Conditions, Host, Network

ANNOUNCE_S = 900.0
PEER_PORT = 5000
CONFIG = NodeConfig()


@dataclass(frozen=True)
class Scenario:
    """A population of nodes, and what they do."""

    nodes: int = 50
    hours: float = 2.0
    behind_nat: float = 0.2
    session_median_s: float = 3600.0
    infohashes: int = 20
    announcers: int = 3
    """Announcing peers per infohash."""
    lookups_per_minute: float = 4.0
    returning: float = 0.5
    """Share of nodes that return with their saved table, after ten minutes."""
    ipv6: bool = False
    attackers: int = 0
    attack: Attack = Attack.FORGING
    attack_pause_s: float = 5.0
    """Time between two queries of an attacker."""
    conditions: Conditions = field(default=Conditions(loss=0.2, duplication=0.05))


@dataclass
class Outcome:
    """Counts of a run."""

    lookups: int = 0
    found: int = 0
    announces: int = 0
    confirmed: int = 0
    asked: int = 0
    durations_s: list[float] = field(default_factory=list)

    @property
    def found_part(self) -> float:
        return self.found / max(self.lookups, 1)


class Swarm:
    """Runs a scenario. Router nodes, the first ones of the network, stay for ever."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.scenario = scenario
        self.network = Network(seed, scenario.conditions)
        self.chance = self.network.chance
        self.outcome = Outcome()
        self.infohashes = [self.chance.randbytes(20) for _ in range(scenario.infohashes)]
        self.announced: dict[bytes, dict[bytes, float]] = {each: {} for each in self.infohashes}
        self._started_lookups: dict[tuple[bytes, int], tuple[float, set[bytes], set[bytes]]] = {}
        self.honest: list[Host] = []
        self._networks: set[bytes] = set()
        self._announces: dict[tuple[bytes, int], bytes] = {}
        self.routers = [self._join(None, permanent=True) for _ in range(2)]
        for number in range(scenario.nodes - 2):
            self.network.at(number * 120.0 / scenario.nodes, self._join, None)
        for infohash in self.infohashes:
            for _ in range(scenario.announcers):
                self.network.at(self.chance.uniform(180.0, 180.0 + ANNOUNCE_S), self._announce, infohash, None)
        self.network.at(180.0 + ANNOUNCE_S, self._lookup)
        self._add_attackers()

    def run(self) -> Outcome:
        """Run to the end. Check the invariants every ten minutes."""
        end = self.scenario.hours * 3600
        while self.network.now < end:
            self.network.run(min(self.network.now + 600.0, end))
            for host in self.honest:
                self.check(host)
        return self.outcome

    def check(self, host: Host) -> None:
        node, now = host.node, self.network.now
        node.validate()
        status = node.status(now)
        assert status.outstanding < 500, "too many outstanding queries"
        assert status.waiting < 100, "too many waiting queries"
        if now - host.since > 1.5 * REFRESH_S and status.contacts.good:
            assert now - min(node.table.changes()) < 1.2 * REFRESH_S, "a bucket is not refreshed"

    # Nodes.

    def public_endpoint(self) -> bytes:
        """Return an endpoint in a new network."""
        while True:
            network = bytes([0x24, 0, *self.chance.randbytes(4)]) if self.scenario.ipv6 else self._ipv4_network()
            if network not in self._networks:
                self._networks.add(network)
                host = self.chance.randbytes(10) if self.scenario.ipv6 else bytes([self.chance.randrange(1, 255)])
                return network + host + self.chance.randrange(1024, 65536).to_bytes(2)

    def _ipv4_network(self) -> bytes:
        return bytes([self.chance.randrange(20, 100), *self.chance.randbytes(2)])

    def _join(self, saved: SavedTable | None, endpoint: bytes | None = None, *, permanent: bool = False) -> Host:
        endpoint = endpoint or self.public_endpoint()
        behind_nat = not permanent and self.chance.random() < self.scenario.behind_nat
        local = pack("192.168.1.2", 6881) if behind_nat else endpoint
        node = DhtNode(local, CONFIG, self.chance.randbytes)
        routers = [] if permanent else [each.endpoint for each in self.routers]
        node.start(saved, routers, self.network.now)
        host = self.network.add(Host(endpoint, node, behind_nat=behind_nat, on_event=self._note))
        self.honest.append(host)
        if not permanent:
            session_s = self.scenario.session_median_s * self.chance.expovariate(math.log(2))
            self.network.at(self.network.now + session_s, self._leave, host)
        return host

    def _add_attackers(self) -> None:
        scenario = self.scenario
        gang = Gang(scenario.attackers, scenario.attack, self.chance)
        for each in gang.endpoints:
            attacker = Attacker(each, gang, self._victim, self.infohashes, scenario.attack_pause_s, self.chance)
            self.network.add(Host(each, attacker))

    def _victim(self) -> Contact:
        host = self.chance.choice(self.honest)
        return Contact(host.node.node_id, host.endpoint)

    def _leave(self, host: Host) -> None:
        self.network.remove(host)
        self.honest.remove(host)
        for announced in self.announced.values():
            announced.pop(with_port(host.endpoint, PEER_PORT), None)
        if self.chance.random() < self.scenario.returning:
            self.network.at(self.network.now + 600.0, self._join, host.node.save(self.network.now), host.endpoint)
        else:
            self.network.at(self.network.now + self.chance.uniform(0, 300.0), self._join, None)

    # Actions.

    def _anybody(self) -> Host:
        old = [host for host in self.honest if self.network.now - host.since > 60.0]
        return self.chance.choice(old or self.honest)

    def _announce(self, infohash: bytes, host: Host | None) -> None:
        if host is None or not host.up:
            host = self._anybody()
        number = host.node.announce(infohash, PEER_PORT, self.network.now)
        self._announces[host.endpoint, number] = infohash
        self.network.settle(host)
        self.network.at(self.network.now + ANNOUNCE_S * self.chance.uniform(0.95, 1.05), self._announce, infohash, host)

    def _lookup(self) -> None:
        infohash = self.chance.choice([each for each in self.infohashes if self.announced[each]] or [b""])
        if infohash:
            host = self._anybody()
            number = host.node.get_peers(infohash, self.network.now)
            self._started_lookups[host.endpoint, number] = (self.network.now, set(self.announced[infohash]), set())
            self.network.settle(host)
        self.network.at(self.network.now + 60.0 / self.scenario.lookups_per_minute, self._lookup)

    def _note(self, host: Host, event: Event) -> None:
        if isinstance(event, AnnounceFinished):
            infohash = self._announces.pop((host.endpoint, event.operation_id))
            self.announced[infohash][with_port(host.endpoint, PEER_PORT)] = self.network.now
            self.outcome.announces += 1
            self.outcome.asked += event.asked
            self.outcome.confirmed += event.confirmed
        elif isinstance(event, LookupProgress):
            started = self._started_lookups.get((host.endpoint, event.operation_id))
            if started is not None:
                started[2].update(event.peers)
        elif isinstance(event, LookupFinished):
            self._judge(host, event)

    def _judge(self, host: Host, event: LookupFinished) -> None:
        since, announced, found = self._started_lookups.pop((host.endpoint, event.operation_id))
        self.outcome.lookups += 1
        self.outcome.found += bool(announced & found)
        self.outcome.durations_s.append(self.network.now - since)

    # Results.

    def neighbours_known(self) -> float:
        """Return which share of the eight reachable nodes closest to a node is in its table, over all nodes."""
        known = wanted = 0
        old = [host for host in self.honest if self.network.now - host.since > 1200.0]
        reachable = [host for host in old if not host.behind_nat]
        for host in old:
            others = sorted(
                (other for other in reachable if other is not host),
                key=lambda other: distance(other.node.node_id, host.node.node_id),
            )[:8]
            wanted += len(others)
            known += sum(Contact(other.node.node_id, other.endpoint) in host.node.table for other in others)
        return known / max(wanted, 1)

    def good_and_up(self) -> float:
        """Return which share of the good contacts in all tables is still online."""
        counted: Counter[bool] = Counter()
        for host in self.honest:
            for contact in host.node.closest_good(host.node.node_id, 1000, self.network.now):
                counted[contact.endpoint in self.network.hosts] += 1
        return counted[True] / max(counted.total(), 1)

    def held_by_attackers(self) -> list[float]:
        """Return the share of attackers in the table of each node that has been online for 20 minutes."""
        parts = []
        for host in self.honest:
            if self.network.now - host.since > 1200.0:
                kinds = [contact.endpoint[0] >= 150 for contact in host.node.table.contacts()]
                parts.append(sum(kinds) / max(len(kinds), 1))
        return parts
