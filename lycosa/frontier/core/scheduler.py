"""Chooses the host to contact next, so that all limits hold.

A host is *ready* if it has work and a free slot and its delay is over; until then it waits
(`frontier.core.fair_queue`). Two starts on a host are never closer together than its delay, and a host with a million
URLs is chosen as fast as a host with one. If the policy limits IP addresses, the hosts of one address form a group with
its own fair queue. The group competes with other hosts and groups as one entity, so every picked host can be contacted
immediately. (Modelled on the workbench of BUbiNG, Boldi et al. 2014.)

If the next turn of a host or group is for a claim (`frontier.core.claims`), it gets no lease until the claim has
started.

Times are unix seconds and may jump: see `HostScheduler.update_clock`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from lycosa.frontier.core.fair_queue import NO_WORK, Entity, FairQueue
from lycosa.frontier.core.states import Policy

TRANSFER_S = 0.2
"""Assumed duration of a transfer, to estimate the work of hosts without a delay."""

CLOCK_SLACK_S = 1.0
"""Tolerance in seconds for times that arrive out of order. A larger step back means that the clock was set back."""

PAUSE_MAX_S = 3600.0
"""Maximum length in seconds of a pause that was set just before the clock was set back (see `update_clock`)."""

CLAIMS_IN_ROW_MAX = 8
"""After this many claims in a row, a host with work gives its next turn to a lease, if leases are requested."""


class Claim:
    """A request for one transfer without a record. `wake` is called when `try_start` may return a new answer.

    `address` is the IP address to connect to, set at the start; "" for any.
    """

    __slots__ = ("address", "granted", "group", "host", "number", "wake")

    def __init__(self, host: Host, wake: Callable[[], None], number: int) -> None:
        self.host = host
        self.wake = wake
        self.number = number
        self.granted = False
        self.group: AddressGroup | None = None
        self.address = ""


@dataclass(slots=True, eq=False, kw_only=True)
class AddressGroup(Entity):
    """The hosts of one IP address. None of them may be contacted before `ready_at`.

    The group is ready when both its own limits and those of a host allow a start. A ready group may also be in the
    waiting queue, for another host."""

    address: str
    in_flight: int = 0
    members: int = 0
    queue: FairQueue[Host] = field(default_factory=FairQueue, repr=False)
    claiming_hosts: dict[Host, None] = field(default_factory=dict, repr=False)
    """Hosts with claims, in order of arrival."""
    is_tracked_idle: bool = False

    def work_s(self) -> float:
        """The work of all hosts in seconds, but at least that of the busiest host alone."""
        lane = self.queue.first_lane()
        return max(self.backlog * self.record_s, lane.longest_work_s() if lane is not None else 0.0)

    def is_idle(self) -> bool:
        return self.members == 0 and self.in_flight == 0

    def shift(self, seconds: float) -> None:
        self.queue.shift(seconds)
        self.ready_at = max(self.ready_at - seconds, 0.0)
        self.paused_until = max(self.paused_until - seconds, 0.0)
        self.yields_until = max(self.yields_until - seconds, 0.0)


@dataclass(slots=True, eq=False, kw_only=True)
class Host(Entity):
    """One active host.

    `ready_at` is the next possible start: `delay_s` after the last start, and not before `blocked_until`. `rank` is the
    lowest known rank of its queued records. `delay_s` is the larger of `required_delay_s` (from the user or robots.txt)
    and `throttle_delay_s`. `robots_at` is when its robots.txt was fetched; 0: never. `address` is valid until
    `address_until`; "" means none. While `preparing`, its robots.txt or address is being fetched, and no page is
    leased.
    """

    key: str
    delay_s: float = 0.0
    required_delay_s: float = 0.0
    throttle_delay_s: float = 0.0
    started_at: float = 0.0
    blocked_until: float = 0.0
    in_flight: int = 0
    preparing: bool = False
    robots_at: float = 0.0
    robots_attempts: int = 0
    address: str = ""
    address_until: float = 0.0
    address_attempts: int = 0
    group: AddressGroup | None = field(default=None, repr=False)
    claims: OrderedDict[Claim, None] | None = field(default=None, repr=False)
    is_tracked_idle: bool = False

    def is_idle(self) -> bool:
        return self.rank == NO_WORK and self.in_flight == 0 and self.claims is None

    def set_delay(self, required_s: float, throttle_s: float, concurrency: int) -> None:
        self.required_delay_s, self.throttle_delay_s = required_s, throttle_s
        self.delay_s = max(required_s, throttle_s)
        self.record_s = max(self.delay_s, TRANSFER_S / concurrency)

    def shift(self, seconds: float) -> None:
        """A time of 0 (never, or at once) stays 0; an expired `address_until` may become negative."""
        self.ready_at = max(self.ready_at - seconds, 0.0)
        self.paused_until = max(self.paused_until - seconds, 0.0)
        self.address_until -= seconds
        self.started_at = max(self.started_at - seconds, 0.0)
        self.blocked_until = max(self.blocked_until - seconds, 0.0)
        self.yields_until = max(self.yields_until - seconds, 0.0)
        self.robots_at = max(self.robots_at - seconds, 0.0)


class SavedTurn(NamedTuple):
    """`ready_at` of a host and its group before and after a start, for `undo_start`."""

    ready_at: float
    next_at: float
    group_ready_at: float
    group_next_at: float


class HostScheduler:
    """The hosts with URLs queued or in flight, and idle hosts until `forget_idle` drops them."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, AddressGroup] = {}
        self.now = -NO_WORK
        """The latest time seen."""
        self.wants_leases = False
        """Whether the last request for leases could not be filled."""
        self.concurrency = policy.concurrency_per_host
        self._queue: FairQueue[Host | AddressGroup] = FairQueue()
        self._idle: list[tuple[float, int, Host | AddressGroup]] = []
        self._idle_number = 0
        self._paused: dict[Host, float] = {}

    def activate(self, key: str) -> Host:
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = Host(key=key)
            host.set_delay(self.policy.delay_s, self.policy.start_delay_s, self.concurrency)
            self.track_idle(host)
        return host

    def add_work(self, host: Host, rank: float = 0.0, count: int = 1) -> None:
        host.backlog += count
        if host.group is not None:
            host.group.backlog += count
        if rank < host.rank:
            host.rank = rank
            self.reschedule(host)
        elif host.lane is not None and host.backlog >= host.regrade_from:
            self.reschedule(host)

    def reschedule(self, host: Host) -> None:
        """Make the host ready or waiting, or neither."""
        group = host.group
        queue: FairQueue[Host] = self._queue if group is None else group.queue  # type: ignore[assignment]
        busy = host.rank == NO_WORK or host.preparing or host.in_flight >= self.concurrency
        if busy or (host.claims is not None and not yields_to_leases(self, host)):
            queue.remove_ready(host)
            queue.stop_waiting(host)
        elif host.ready_at <= self.now:
            queue.stop_waiting(host)
            queue.add_ready(host)
        else:
            queue.remove_ready(host)
            queue.wait(host, host.ready_at)
        if group is not None:
            self._reschedule_group(group)

    def pick(self, now: float) -> Host | None:
        """Return the host to contact next. Then take one of its records and call `start`, or `mark_empty` if it has
        none."""
        self.update_clock(now)
        return self.pick_next()

    def pick_next(self) -> Host | None:
        queue = self._queue
        if queue.heap and queue.heap[0][0] <= self.now:
            self._promote_due()
        lane = queue.first_lane()
        if lane is None:
            return None
        entity = lane.pick()
        if isinstance(entity, AddressGroup):
            lane = entity.queue.first_lane()
            assert lane is not None, "a group is ready when one of its hosts is"
            entity = lane.pick()
        return entity  # type: ignore[return-value]

    def start(self, host: Host, next_rank: float | None) -> None:
        """Start a transfer of the picked host. `next_rank` is the rank of the host's next record, if any."""
        group, lane, backlog, now = host.group, host.lane, host.backlog, self.now
        if next_rank is None:
            host.rank, host.backlog = NO_WORK, 0
        else:
            host.rank = next_rank
            # The backlog is an estimate: it must not drop to 0 while a record is left.
            if backlog > 1:
                host.backlog = backlog - 1
        host.in_flight += 1
        host.started_at = now
        if host.delay_s:
            host.ready_at = now + host.delay_s
        if group is not None:
            group.backlog += host.backlog - backlog
            group.in_flight += 1
            group.ready_at = max(group.ready_at, now + self.policy.delay_per_ip_s)
            self.reschedule(host)
        # If none of these applies (the usual case without a delay), no rescheduling is needed.
        elif host.delay_s or host.claims or host.in_flight >= self.concurrency or not lane or lane.rank != next_rank:
            self.reschedule(host)
        if host.claims_in_row or (group is not None and group.claims_in_row):
            reset_claims_in_row(host, group)

    def mark_empty(self, host: Host) -> None:
        """The picked host has nothing queued after all."""
        if host.group is not None:
            host.group.backlog -= host.backlog
        host.rank, host.backlog = NO_WORK, 0
        self.reschedule(host)
        self.track_idle(host)

    def start_robots(self, host: Host) -> None:
        host.preparing = True
        host.backlog += 1
        if host.group is not None:
            host.group.backlog += 1
        self.start(host, host.rank)
        self.reschedule(host)

    def start_address_lookup(self, host: Host) -> None:
        """An address lookup uses a slot, but is not a transfer to the host: no delay starts."""
        host.in_flight += 1
        host.preparing = True
        self.reschedule(host)

    def finish(self, host: Host, group: AddressGroup | None = None) -> None:
        """End a transfer, successful or not. `group` is the group in which the transfer was started."""
        host.in_flight -= 1
        if group is not None:
            group.in_flight -= 1
        if host.lane is None and host.wait_entry is None:
            if host.rank != NO_WORK or group is not None:
                self.reschedule(host)
            if host.rank == NO_WORK and not host.is_tracked_idle:
                self.track_idle(host)
        if group is not None:
            self._reschedule_group(group)
            self.track_idle(group)
        if host.claims is not None or group is not None:
            wake_claims(host, group)

    def undo_start(self, host: Host, group: AddressGroup | None, turn: SavedTurn) -> None:
        """Drop the delay after a start that never contacted the host. `finish` must follow."""
        # If a later start, block or delay has changed `ready_at`, the later value stays.
        if host.ready_at == turn.next_at:
            host.ready_at = max(turn.ready_at, host.paused_until)
            self.reschedule(host)
        if group is not None and group.ready_at == turn.group_next_at:
            group.ready_at = max(turn.group_ready_at, group.paused_until)
            self._reschedule_group(group)

    def block(self, host: Host, until: float) -> None:
        host.blocked_until = max(host.blocked_until, until)
        self._pause(host, until)

    def set_delay(self, host: Host, delay_s: float, now: float) -> None:
        """The Crawl-delay of a robots.txt counts from now: fetching robots.txt was a request too."""
        host.set_delay(max(delay_s, self.policy.delay_s), host.throttle_delay_s, self.concurrency)
        self._pause(host, now + host.delay_s)

    def throttle(self, host: Host, delay_s: float) -> None:
        """Set the throttle delay, counted from the last start. The required delay remains the minimum."""
        host.set_delay(host.required_delay_s, delay_s, self.concurrency)
        host.ready_at = max(host.paused_until, host.started_at + host.delay_s if host.started_at else 0.0)
        self.reschedule(host)
        if host.claims is not None:
            wake_claims(host, host.group)

    def next_ready(self) -> float | None:
        """When the first host may be contacted; 0: now; None: no host has both work and a free slot."""
        return 0.0 if self._queue.first_lane() is not None else self._queue.next_due()

    def restore(self, host: Host, started_at: float, blocked_until: float) -> None:
        """Apply the saved state of the host. Its pause is recomputed with the current delay."""
        host.started_at = started_at
        self.block(host, blocked_until)
        if started_at:
            self._pause(host, started_at + host.delay_s)

    def set_address(self, host: Host, address: str, until: float, now: float) -> None:
        """Transfers in flight still count for the old group."""
        host.address, host.address_until = address, until
        old = host.group
        if not self.policy.limits_addresses or address == (old.address if old is not None else ""):
            return
        (self._queue if old is None else old.queue).remove_ready(host)
        (self._queue if old is None else old.queue).stop_waiting(host)
        host.group = (self.groups.get(address) or self._new_group(address)) if address else None
        if host.group is not None:
            host.group.members += 1
            host.group.backlog += host.backlog
            if host.claims is not None:
                host.group.claiming_hosts[host] = None
            # The group did not count the last start: it was in an earlier process, or the address was not known yet.
            if old is None and host.started_at:
                pause_group(host.group, host.started_at + self.policy.delay_per_ip_s)
        self.reschedule(host)
        if old is not None:
            self._leave_group(host, old)
        if host.claims is not None:
            wake_claims(host, old)

    def forget_idle(self, now: float) -> None:
        """Drop idle hosts and groups whose pause is over, so that memory use depends only on active hosts."""
        while self._idle and self._idle[0][0] <= now:
            entity = heappop(self._idle)[2]
            entity.is_tracked_idle = False
            if entity.is_idle() and entity.ready_at <= now:
                self._forget(entity)
            else:
                self.track_idle(entity)

    def update_clock(self, now: float) -> None:
        """Set the time. If the clock was set back, all pauses move with it and keep their remaining length.

        A pause set since the previous call may have been computed with the old or the new time, so it does not move.
        It still ends when it was set to end, but no later than `now` + PAUSE_MAX_S.
        """
        if now < self.now - CLOCK_SLACK_S:
            self._shift(self.now - now)
            self.now = now
            for host, until in list(self._paused.items()):
                self.block(host, min(until, now + PAUSE_MAX_S))
        elif now > self.now:
            self.now = now
        self._paused.clear()

    def _shift(self, seconds: float) -> None:
        """Move all times back. This is the only operation that scans all hosts."""
        self._queue.shift(seconds)
        self._idle = [(at - seconds, number, entity) for at, number, entity in self._idle]
        for group in self.groups.values():
            group.shift(seconds)
        for host in self.hosts.values():
            host.shift(seconds)

    def _pause(self, host: Host, until: float) -> None:
        self._paused[host] = max(until, self._paused.get(host, until))
        host.paused_until = max(host.paused_until, until)
        if until > host.ready_at:
            host.ready_at = until
            self.reschedule(host)

    def _promote_due(self) -> None:
        queue, now = self._queue, self.now
        while (due := queue.pop_due(now)) is not None:
            if isinstance(due, AddressGroup):
                while (host := due.queue.pop_due(now)) is not None:
                    due.queue.add_ready(host)
                self._reschedule_group(due)
            else:
                queue.add_ready(due)

    def _reschedule_group(self, group: AddressGroup) -> None:
        lane, next_due = group.queue.first_lane(), group.queue.next_due()
        concurrency = self.policy.concurrency_per_ip
        if 0 < concurrency <= group.in_flight or is_claimed(self, group):
            lane = next_due = None
        if lane is not None and group.ready_at <= self.now:
            group.rank = lane.rank
            self._queue.add_ready(group)
        else:
            self._queue.remove_ready(group)
            if lane is not None:
                next_due = group.ready_at
        if next_due is None:
            self._queue.stop_waiting(group)
        else:
            self._queue.wait(group, max(next_due, group.ready_at))

    def _new_group(self, address: str) -> AddressGroup:
        concurrency = self.policy.concurrency_per_ip or self.concurrency
        record_s = max(self.policy.delay_per_ip_s, TRANSFER_S / concurrency)
        group = self.groups[address] = AddressGroup(address=address, record_s=record_s)
        return group

    def _leave_group(self, host: Host, group: AddressGroup) -> None:
        group.members -= 1
        group.backlog -= host.backlog
        group.claiming_hosts.pop(host, None)
        self._reschedule_group(group)
        self.track_idle(group)

    def track_idle(self, entity: Host | AddressGroup) -> None:
        if entity.is_idle() and not entity.is_tracked_idle:
            entity.is_tracked_idle = True
            self._idle_number += 1
            heappush(self._idle, (entity.ready_at, self._idle_number, entity))

    def _forget(self, entity: Host | AddressGroup) -> None:
        if isinstance(entity, AddressGroup):
            del self.groups[entity.address]
            return
        del self.hosts[entity.key]
        if entity.group is not None:
            self._leave_group(entity, entity.group)


def yields_to_leases(scheduler: HostScheduler, entity: Host | AddressGroup) -> bool:
    """Whether a lease goes before the waiting claims: after many claims in a row, if leases are requested."""
    if entity.claims_in_row < CLAIMS_IN_ROW_MAX or not scheduler.wants_leases:
        return False
    if isinstance(entity, Host):
        return entity.rank != NO_WORK and not entity.preparing
    return entity.queue.first_lane() is not None


def is_claimed(scheduler: HostScheduler, group: AddressGroup) -> bool:
    """Whether the next turn of the group is for a claim."""
    if not group.claiming_hosts or first_claim(scheduler, group) is None:
        return False
    return not yields_to_leases(scheduler, group)


def first_claim(scheduler: HostScheduler, group: AddressGroup) -> Claim | None:
    """The group's oldest claim whose host may be contacted, ignoring the limits of the address."""
    found: Claim | None = None
    for host in group.claiming_hosts:
        busy = host.ready_at > scheduler.now or host.in_flight >= scheduler.concurrency
        if host.claims is None or busy or yields_to_leases(scheduler, host):
            continue
        claim = next(iter(host.claims))
        if found is None or claim.number < found.number:
            found = claim
    return found


def pause_group(group: AddressGroup, until: float) -> None:
    """Do not contact the hosts of the group before `until`."""
    group.paused_until = max(group.paused_until, until)
    group.ready_at = max(group.ready_at, until)


def reset_claims_in_row(host: Host, group: AddressGroup | None) -> None:
    """Let claims go first again after a lease was started."""
    host.claims_in_row = 0
    if group is not None:
        group.claims_in_row = 0
    wake_claims(host, group)


def wake_claims(host: Host, group: AddressGroup | None) -> None:
    """Wake the first claim of the host and of each other host of the group."""
    if host.claims is not None:
        next(iter(host.claims)).wake()
    if group is not None:
        for other in group.claiming_hosts:
            if other is not host and other.claims is not None:
                next(iter(other.claims)).wake()
