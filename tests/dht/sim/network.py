"""A network of DHT nodes in virtual time: datagrams are delayed, lost, duplicated and reordered, and pass NATs.

One seed decides everything. The network also checks what may never happen: a query sent faster than the limits of its
sender, a datagram longer than 1,024 bytes, and timers that do not move on.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from lycosa.dht.core.endpoints import ip_of
from lycosa.dht.core.events import Event
from lycosa.dht.core.krpc import SENT_BYTES_MAX
from lycosa.dht.core.limits import QUERIES_BURST, QUERIES_PER_S
from lycosa.dht.core.node import DhtNode
from tests.dht.sim.attackers import Attacker

NAT_MAPPING_S = 120.0
"""How long a NAT accepts answers after the last datagram to an endpoint (RFC 4787: at least two minutes)."""
STEPS_AT_ONCE_MAX = 1_000


@dataclass(frozen=True)
class Conditions:
    """The quality of the network for datagrams."""

    loss: float = 0.0
    duplication: float = 0.0
    latency_s: tuple[float, float] = (0.01, 0.2)
    """Each datagram draws its own latency, so that later ones overtake earlier ones."""


IDEAL = Conditions()


@dataclass(eq=False)
class Host:
    """A node at a public endpoint, possibly behind a NAT that accepts only answers."""

    endpoint: bytes
    node: DhtNode | Attacker
    behind_nat: bool = False
    since: float = 0.0
    up: bool = True
    timer_at: float = inf
    mappings: dict[bytes, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Host, Event], None] | None = None


class Network:
    """See the module."""

    def __init__(self, seed: int, conditions: Conditions = IDEAL) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.hosts: dict[bytes, Host] = {}
        self.datagrams = 0
        self.queries = 0
        self._conditions = conditions
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._added = 0
        self._whole_at: dict[bytes, float] = {}

    # Hosts.

    def add(self, host: Host) -> Host:
        self.hosts[host.endpoint] = host
        host.since = self.now
        self.settle(host)
        return host

    def remove(self, host: Host) -> None:
        host.up = False
        del self.hosts[host.endpoint]

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule a call."""
        self._added += 1
        heapq.heappush(self._agenda, (when, self._added, action, arguments))

    def run(self, until: float) -> None:
        agenda = self._agenda
        while agenda and agenda[0][0] <= until:
            when, _, action, arguments = heapq.heappop(agenda)
            self.now = when
            action(*arguments)
        self.now = until

    # Datagrams.

    def settle(self, host: Host) -> None:
        """Act as the shell after each call of the node: send datagrams, report events, set the timer."""
        node = host.node
        for data, destination in node.datagrams_to_send():
            self.send(host, data, destination)
        while (event := node.next_event()) is not None:
            if host.on_event is not None:
                host.on_event(host, event)
            else:
                host.events.append(event)
        when = node.next_timer()
        if when is not None and when < host.timer_at:
            host.timer_at = when
            self.at(max(when, self.now), self._timer, host, when)

    def send(self, host: Host, data: bytes, destination: bytes) -> None:
        """Send a datagram through the simulated network."""
        assert len(data) <= SENT_BYTES_MAX, f"a datagram of {len(data)} bytes"
        self.datagrams += 1
        if data.endswith(b"1:y1:qe"):
            self.queries += 1
            if isinstance(host.node, DhtNode):
                self._check_rate(host, destination)
        if host.behind_nat:
            host.mappings[destination] = self.now
        conditions, chance = self._conditions, self.chance
        copies = 0 if chance.random() < conditions.loss else 1 + (chance.random() < conditions.duplication)
        for _ in range(copies):
            self.at(self.now + chance.uniform(*conditions.latency_s), self._deliver, data, host.endpoint, destination)

    def _check_rate(self, host: Host, destination: bytes) -> None:
        pair = ip_of(host.endpoint) + ip_of(destination)
        whole_at = max(self._whole_at.get(pair, 0.0), self.now)
        assert whole_at - self.now <= (QUERIES_BURST - 1) / QUERIES_PER_S + 0.001, "queries faster than the limit"
        self._whole_at[pair] = whole_at + 1 / QUERIES_PER_S

    def _deliver(self, data: bytes, source: bytes, destination: bytes) -> None:
        host = self.hosts.get(destination)
        if host is None or (host.behind_nat and host.mappings.get(source, -inf) + NAT_MAPPING_S < self.now):
            return
        host.node.receive_datagram(data, source, self.now)
        self.settle(host)

    def _timer(self, host: Host, when: float) -> None:
        if not host.up or when != host.timer_at:
            return
        host.timer_at = inf
        for _ in range(STEPS_AT_ONCE_MAX):
            host.node.handle_timer(self.now)
            timer = host.node.next_timer()
            if timer is None or timer > self.now:
                break
        else:
            raise AssertionError("a timer does not move on")
        self.settle(host)
