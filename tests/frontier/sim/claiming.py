"""Helpers of `test_claims` and `test_redis_claims`: a record of all transfers, and the checks on it.

The checks cover, for each host and each address, the gap between two starts and the number of simultaneous transfers.
They also cover how long a claim waits.
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
"""The documented limit of claims in a row, as a literal, so that a change of the constant fails the tests."""

TOLERANCE_S = 1e-6
"""How late a timer may be."""

BIG_HOST = "http://h0.example:80"

HostBatches = Generator[list[str], None, None]
"""A callback: it yields lists of hosts, and claims each list at once."""


@dataclass
class Start:
    """A transfer, with the delay in force at its start and the time at which it was requested."""

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
    rng: random.Random
    delays: dict[str, float]
    addresses: dict[str, str]
    starts: dict[str, list[Start]]
    slow_s: float

    def record_start(self, host: str, now: float, claimed_at: float, *, claim: bool, worker: int = 0) -> float:
        """Record that a transfer starts now. Return its end."""
        end = now + self.rng.uniform(FAST_S, self.slow_s)
        address = self.addresses.get(host, "")
        self.starts[host].append(Start(now, end, self.delays[host], claimed_at, claim, address, worker))
        return end

    def assert_polite(self) -> None:
        """Check that all limits were kept."""
        by_address = defaultdict(list)
        for host, starts in self.starts.items():
            for earlier, later in pairwise(starts):
                assert later.at >= earlier.at + later.delay - TOLERANCE_S, f"{host}: {earlier} {later}"
            check([(start.at, start.end) for start in starts], 0.0, self.policy.concurrency_per_host)
            for start in starts:
                by_address[start.address].append((start.at, start.end))
        by_address.pop("", None)
        for transfers in by_address.values():
            check(
                sorted(transfers), self.policy.delay_per_ip_s - TOLERANCE_S, self.policy.concurrency_per_ip or math.inf
            )

    def claims(self, host: str) -> list[Start]:
        """Return the transfers that were started by claims."""
        return [start for start in self.starts[host] if start.claim]


class ClaimingCrawl(Protocol):
    """The parts of a crawl that callbacks use."""

    rng: random.Random
    counts: dict[str, int]


def assert_bounded_waits(claims: Sequence[Start], pace: float, extra_s: float) -> None:
    """Check that each claim waits only for those before it, for one lease per CLAIMS_ROW claims, and for `extra_s`."""
    for number, start in enumerate(claims):
        earlier_count = sum(earlier.at >= start.claimed_at for earlier in claims[:number])
        turns = (earlier_count + 1) * (1 + 1 / CLAIMS_ROW) + 1
        assert start.at - start.claimed_at <= turns * pace + extra_s, f"{start} had {earlier_count} before it"


def no_claims(crawl: Any, lease: Lease | None) -> HostBatches:
    """Make no claims."""
    yield from ()


def claim_at_random(crawl: ClaimingCrawl, lease: Lease | None) -> HostBatches:
    """Claim a few times, one or several at a time, half of them on the own host."""
    rng, hosts = crawl.rng, list(crawl.counts)
    for _ in range(rng.choice([0, 0, 1, 3])):
        count = rng.choice([1, 1, 1, 5])
        yield [lease.record.host if lease and rng.random() < 0.5 else rng.choice(hosts) for _ in range(count)]


def claim_all_hosts(crawl: ClaimingCrawl, lease: Lease | None) -> HostBatches:
    """Claim on all other hosts, then twice on the own one, three times over."""
    assert lease is not None
    for _ in range(3):
        yield [host for host in crawl.counts if host != lease.record.host]
        yield [lease.record.host] * 2
