"""Which host may be contacted next: politeness by construction, without ever scanning the hosts.

A heap holds every host that has something to lend and a free place, ordered by the time at which it may be contacted.
`pick` takes the earliest one if its time has come; the host goes back with the time of its next turn. So the gap
between two starts on one host is never below its delay, equal hosts take turns, and a host with a million URLs costs
as much as a host with one. (The workbench of BUbiNG, Boldi et al. 2014, with hosts only.)

Pure: `now` is an argument, in unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from lycosa.core.frontier import Policy


@dataclass(slots=True, eq=False)
class Host:
    """The state of one active host.

    `ready_at` is the time of its next turn: `delay_s` after the last start, and not before `blocked_until`. `robots_at`
    is the time its robots.txt was fetched, 0 for never.
    """

    key: str
    delay_s: float
    ready_at: float = 0.0
    started_at: float = 0.0
    blocked_until: float = 0.0
    has_work: bool = False
    in_flight: int = 0
    robots_at: float = 0.0
    robots_lent: bool = False
    robots_attempts: int = 0
    turn_at: float | None = field(default=None, repr=False)
    """When its entry on the heap says that its turn is; None when it has none. Other entries of it are stale."""


class Workbench:
    """The active hosts. A host is active while it has something queued or in flight."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.hosts: dict[str, Host] = {}
        self._heap: list[tuple[float, int, Host]] = []
        self._idle: dict[str, Host] = {}
        self._turn = 0

    def host(self, key: str) -> Host:
        """Return the host, active from now on."""
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = Host(key, self.policy.delay_s)
        return host

    def found_work(self, host: Host) -> None:
        """Something was queued for the host."""
        host.has_work = True
        self.offer(host)

    def offer(self, host: Host) -> None:
        """Let the host be picked, if it has work and a free place; sooner than it was to be, if its turn came back."""
        if not host.has_work or host.in_flight >= self._places(host):
            return
        if host.turn_at is None or host.ready_at < host.turn_at:
            self._turn += 1
            host.turn_at = host.ready_at
            heappush(self._heap, (host.ready_at, self._turn, host))

    def pick(self, now: float) -> Host | None:
        """Take the host whose turn it is, or None when no host may be contacted now.

        The caller lends one record of the host and calls `started`, or clears `has_work` if there was none.
        """
        at = self.next_ready()
        if at is None or at > now:
            return None
        host = heappop(self._heap)[2]
        host.turn_at = None
        return host

    def started(self, host: Host, now: float) -> None:
        """A transfer to the host starts now."""
        host.in_flight += 1
        host.started_at = now
        host.ready_at = max(host.ready_at, now + host.delay_s)
        self.offer(host)

    def ended(self, host: Host) -> None:
        """A transfer to the host is over, whatever came of it."""
        host.in_flight -= 1
        self.offer(host)
        if not host.has_work and host.in_flight == 0:
            self._idle[host.key] = host

    def block(self, host: Host, until: float) -> None:
        """Do not contact the host before `until`."""
        host.blocked_until = max(host.blocked_until, until)
        host.ready_at = max(host.ready_at, until)

    def set_delay(self, host: Host, delay_s: float, now: float) -> None:
        """The host asks for this delay between two starts; counted from now, since robots.txt was a request too."""
        host.delay_s = max(delay_s, self.policy.delay_s)
        host.ready_at = max(host.ready_at, now + host.delay_s)

    def next_ready(self) -> float | None:
        """When the first host may be contacted; None when no host has both work and a free place."""
        while self._heap:
            at, _, host = self._heap[0]
            if host.turn_at == at == host.ready_at:
                return at
            heappop(self._heap)
            if host.turn_at == at:  # blocked since it was put on the heap
                host.turn_at = None
                self.offer(host)
        return None

    def remind(self, host: Host, started_at: float, blocked_until: float) -> None:
        """Go on with what was remembered of the host: a pause lasts as long as it would under today's delay."""
        host.started_at = started_at
        self.block(host, blocked_until)
        if started_at:
            host.ready_at = max(host.ready_at, started_at + host.delay_s)

    def needs_robots(self, host: Host, now: float) -> bool:
        """Whether the host must show its robots.txt before it may lend pages."""
        return self.policy.robots and now - host.robots_at >= self.policy.robots_ttl_s

    def _places(self, host: Host) -> int:
        return 1 if host.robots_lent else self.policy.concurrency_per_host

    def forget_idle(self, now: float) -> None:
        """Drop the hosts that have nothing to do and owe no pause: memory depends on active hosts only."""
        for key, host in list(self._idle.items()):
            if host.has_work or host.in_flight:
                del self._idle[key]
            elif host.ready_at <= now:
                del self._idle[key], self.hosts[key]
