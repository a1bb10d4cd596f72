"""What keeps a frontier from leasing more: delays and blocks of hosts, and the maximum transfers per host."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lycosa.core.units import format_rough_duration
from lycosa.frontier.core.fair_queue import NO_WORK
from lycosa.frontier.core.scheduler import Host

HOSTS_MAX = 1_000
"""Checking more hosts would take too long, and so many hosts rarely all wait at the same time."""


class Brakes(NamedTuple):
    """`text` says what all hosts with work wait for; "" if one of them may be contacted now.

    `work_s`: the minimum seconds that the queued URLs take, because of the delays and blocks of their hosts.
    `blocked_until`: when the first host may be contacted, if all hosts with work are blocked; else 0.
    With more than HOSTS_MAX hosts, all fields have their defaults.
    """

    text: str = ""
    work_s: float = 0.0
    blocked_until: float = 0.0


def brakes_of(hosts: Collection[Host], concurrency: int, now: float) -> Brakes:
    """`concurrency` is the maximum number of transfers per host."""
    if len(hosts) > HOSTS_MAX:
        return Brakes()
    busy = [host for host in hosts if host.rank != NO_WORK]
    work_s = max((host.backlog * host.delay_s + max(0.0, host.blocked_until - now) for host in busy), default=0.0)
    blocked = [host.blocked_until - now for host in busy if host.blocked_until > now]
    delays = [host.delay_s for host in busy if host.blocked_until <= now < host.ready_at and host.delay_s]
    full = sum(host.in_flight >= concurrency for host in busy if host.ready_at <= now)
    others = sum(host.preparing for host in busy if host.ready_at <= now and host.in_flight < concurrency)
    if not busy or len(blocked) + len(delays) + full + others < len(busy):
        return Brakes("", work_s)
    texts = [
        f"delay of {_span(delays)} on {_hosts(len(delays))}" if delays else "",
        f"{_hosts(len(blocked))} blocked for {format_rough_duration(max(blocked))}" if blocked else "",
        f"{_transfers(concurrency)} at a time on {_hosts(full)}" if full else "",
        f"robots.txt or IP address of {_hosts(others)}" if others else "",
    ]
    blocked_until = min(host.blocked_until for host in busy) if len(blocked) == len(busy) else 0.0
    return Brakes(", ".join(filter(None, texts)), work_s, blocked_until)


def _span(delays: Collection[float]) -> str:
    least, most = f"{min(delays):.3g}", f"{max(delays):.3g}"
    return f"{most} s" if least == most else f"{least} to {most} s"


def _hosts(number: int) -> str:
    return f"{number:,} host" if number == 1 else f"{number:,} hosts"


def _transfers(number: int) -> str:
    return f"{number:,} transfer" if number == 1 else f"{number:,} transfers"
