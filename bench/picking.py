"""The cost of leasing the next URL and ending the lease, by the number of hosts: `python bench/picking.py`.

A trivial store in memory holds the records; every host always has work. 64 URLs are leased, their leases end, and so
on. With a delay the clock advances as fast as the hosts allow, so that a host waits for its delay as often as it is
leased. Printed are microseconds of CPU time for one lease and its end, the best of ROUNDS rounds of many leases.
"""

from __future__ import annotations

import argparse
import gc
import time
from typing import NamedTuple

from lycosa.frontier.core.leases import LeaseManager
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy

ROUNDS = 3
BATCH = 64
HOSTS = (1, 100, 10_000, 100_000)
HOSTS_PER_ADDRESS = 10
LONG_S = 1e12
BAR_US = 0.1
"""What one character of the chart stands for."""

CASES = {
    "no delay": Policy(robots=False, lease_s=LONG_S),
    "delay 1 s": Policy(robots=False, lease_s=LONG_S, delay_s=1.0),
    "no delay, 2 per IP": Policy(robots=False, lease_s=LONG_S, concurrency_per_ip=2),
    "delay 1 s, 0.1 s per IP": Policy(robots=False, lease_s=LONG_S, delay_s=1.0, delay_per_ip_s=0.1),
}


class Endless:
    """A store in which every host always has one more record."""

    def __init__(self, hosts: list[str]) -> None:
        self.found = {host: (0, UrlRecord(RECORD_VERSION, 1, host + "/", host), 0.0) for host in hosts}

    def take(self, host: str) -> tuple[int, UrlRecord, float | None]:
        """Return the same record again."""
        return self.found[host]


class Cost(NamedTuple):
    """Microseconds of CPU time for a lease and its end."""

    case: str
    hosts: int
    us: float


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--leases", type=int, default=200_000, help="leases per round (%(default)s)")
    chosen = options.parse_args()
    costs = [Cost(case, hosts, _measure(CASES[case], hosts, chosen.leases)) for case in CASES for hosts in HOSTS]
    print(f"| microseconds per lease and its end | {' | '.join(f'{hosts:,} hosts' for hosts in HOSTS)} |")
    print("|---|" + "---:|" * len(HOSTS))
    for case in CASES:
        print(f"| {case} | {' | '.join(f'{cost.us:.2f}' for cost in costs if cost.case == case)} |")
    print()
    for cost in costs:
        print(f"{cost.case:>24} {cost.hosts:7,} {'#' * round(cost.us / BAR_US)} {cost.us:.2f}")


def _measure(policy: Policy, hosts: int, leases: int) -> float:
    manager = _opened(policy, [f"http://h{number}.example:80" for number in range(hosts)])
    step = BATCH / hosts if policy.delay_s else 0.0
    clock = _cycles(manager, 0.0, step, max(hosts * 2, leases // 4))
    gc.collect()
    gc.freeze()
    spent: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        clock = _cycles(manager, clock, step, leases)
        spent.append(time.process_time() - start)
    gc.unfreeze()
    return min(spent) / leases * 1e6


def _opened(policy: Policy, hosts: list[str]) -> LeaseManager[int]:
    manager = LeaseManager(policy, Endless(hosts), 0)
    scheduler = manager.scheduler
    for number, key in enumerate(hosts):
        host = scheduler.activate(key)
        scheduler.set_address(host, f"10.0.{number // HOSTS_PER_ADDRESS}", LONG_S, 0.0)
        scheduler.add_work(host, count=1_000_000 // (number + 1) + 10)
    return manager


def _cycles(manager: LeaseManager[int], now: float, step: float, leases: int) -> float:
    """Grant and end this number of leases. Return the clock, which goes on at least to when the next host is ready."""
    done = 0
    while done < leases:
        batch = manager.lease(BATCH, now)
        for lease in batch:
            manager.end(lease, contacted=True)
        done += len(batch)
        now = max(now + step, manager.scheduler.next_ready() or 0.0) if step else now
    return now


if __name__ == "__main__":
    main()
