"""What `test_claims` and `test_redis_claims` share: a record of all transfers, and the definitions it is held against.

The gap between two starts, the transfers at one time, of a host and of an address; and how long a claim may wait.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from lycosa.frontier.core.model import Lease
from lycosa.frontier.core.states import Policy
from tests.frontier.sim.test_fairness import check

FAST_S = 0.05
CLAIMS_ROW = 8
"""What is promised: a literal, so that another number is noticed."""

NEAR_S = 1e-6
"""A timer may be late by this."""

BIG = "http://h0.example:80"

Hosts = Generator[list[str], None, None]
"""What a callback is: it yields the hosts on which it claims at a time."""


@dataclass
class Start:
    """A transfer, the pause that was in force when it started, when it was asked for."""

    at: float
    end: float
    delay: float
    claimed_at: float
    claim: bool
    address: str
    worker: int = 0


class Transfers:
    """The transfers of a crawl, by host, in the order of their starts. Each lasts FAST_S to `slow_s`."""

    policy: Policy
    chance: random.Random
    delays: dict[str, float]
    addresses: dict[str, str]
    starts: dict[str, list[Start]]
    slow_s: float

    def began(self, host: str, now: float, claimed_at: float, *, claim: bool, worker: int = 0) -> float:
        """Note that a transfer starts now. Return its end."""
        end = now + self.chance.uniform(FAST_S, self.slow_s)
        address = self.addresses.get(host, "")
        self.starts[host].append(Start(now, end, self.delays[host], claimed_at, claim, address, worker))
        return end

    def is_polite(self) -> None:
        """All limits were kept."""
        by_address = defaultdict(list)
        for host, starts in self.starts.items():
            for earlier, later in pairwise(starts):
                assert later.at >= earlier.at + later.delay - NEAR_S, f"{host}: {earlier} {later}"
            check([(start.at, start.end) for start in starts], 0.0, self.policy.concurrency_per_host)
            for start in starts:
                by_address[start.address].append((start.at, start.end))
        by_address.pop("", None)
        for transfers in by_address.values():
            check(sorted(transfers), self.policy.delay_per_ip_s - NEAR_S, self.policy.concurrency_per_ip or math.inf)

    def claims(self, host: str) -> list[Start]:
        """Return those that were no records."""
        return [start for start in self.starts[host] if start.claim]


class Claimed(Protocol):
    """A crawl of which callbacks know the hosts."""

    chance: random.Random
    counts: dict[str, int]


def wait_in_turn(claims: Sequence[Start], pace: float, more_s: float) -> None:
    """Check that each waits for those before it and for every ninth turn, of a lease; and `more_s`."""
    for number, start in enumerate(claims):
        before = sum(earlier.at >= start.claimed_at for earlier in claims[:number])
        turns = (before + 1) * (1 + 1 / CLAIMS_ROW) + 1
        assert start.at - start.claimed_at <= turns * pace + more_s, f"{start} had {before} before it"


def no_claims(crawl: Any, lease: Lease | None) -> Hosts:
    """Claim nothing."""
    yield from ()


def by_chance(crawl: Claimed, lease: Lease | None) -> Hosts:
    """Claim a few times, one or many at a time, half of them on the own host."""
    chance, hosts = crawl.chance, list(crawl.counts)
    for _ in range(chance.choice([0, 0, 1, 3])):
        count = chance.choice([1, 1, 1, 5])
        yield [lease.record.host if lease and chance.random() < 0.5 else chance.choice(hosts) for _ in range(count)]


def crosswise(crawl: Claimed, lease: Lease | None) -> Hosts:
    """Claim on all other hosts, and then twice on the own one."""
    assert lease is not None
    for _ in range(3):
        yield [host for host in crawl.counts if host != lease.record.host]
        yield [lease.record.host] * 2
