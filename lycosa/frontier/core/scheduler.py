"""Which host may be contacted next: politeness by construction, without ever scanning the hosts.

A host that has work, a free place and a turn that has come is *ready*; one whose turn is to come waits for it
(`frontier.core.fair_queue` says who is first). So the gap between two starts on one host is never below its delay, and
a host with a million URLs costs as much as a host with one. Where the policy limits IP addresses, the hosts of one
address form a group with turns of its own, and the group takes turns among the others as one: whatever is at the top
can be fetched, if anything can. (The workbench of BUbiNG, Boldi et al. 2014.)

Transfers without a record claim their turns (`frontier.core.claims`): a host or group whose turn is for a claim is kept
from the leases until that has started.

Pure: `now` is an argument, in unix seconds. It may jump: see `see`.
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
"""What a transfer is taken to last where no delay says how long a host's work will take."""

CLOCK_SLACK_S = 1.0
"""A clock that is behind by less was read earlier, one that is behind by more was set back."""

PAUSE_MAX_S = 3600.0
"""The most that a pause lasts only because it may have been set after the clock was set back, not before."""

CLAIMS_IN_ROW_MAX = 8
"""After so many claims in a row a host stands open to the leases, if it has work and they are wanted."""


class Claim:
    """The turn of a transfer that is no record: `wake` is called when there is something new to know about it.

    `address` is the IP address to connect to, known when its turn has come, "" for any.
    """

    __slots__ = ("address", "granted", "group", "host", "stamp", "wake")

    def __init__(self, host: Host, wake: Callable[[], None], stamp: int) -> None:
        self.host = host
        self.wake = wake
        self.stamp = stamp
        self.granted = False
        self.group: AddressGroup | None = None
        self.address = ""


@dataclass(slots=True, eq=False, kw_only=True)
class AddressGroup(Entity):
    """The hosts of one IP address; `ready_at` is when any of them may be contacted.

    It is ready when one of its hosts is, and waits for the next one that will be, at the same time.
    """

    address: str
    in_flight: int = 0
    members: int = 0
    turns: FairQueue[Host] = field(default_factory=FairQueue, repr=False)
    claiming: dict[Host, None] = field(default_factory=dict, repr=False)
    """Its hosts for which claims wait."""
    idle: bool = False

    def work_s(self) -> float:
        """Return the work of all its hosts one after the other, or of the one that has most, if that is more."""
        lane = self.turns.lane()
        return max(self.backlog * self.pace_s, lane.most_s() if lane is not None else 0.0)

    def is_idle(self) -> bool:
        """Whether no host has this address and nothing is in flight to it."""
        return self.members == 0 and self.in_flight == 0

    def set_back(self, seconds: float) -> None:
        """Move its times and those of its hosts' turns."""
        self.turns.set_back(seconds)
        self.ready_at = max(self.ready_at - seconds, 0.0)
        self.paused_until = max(self.paused_until - seconds, 0.0)
        self.yields_until = max(self.yields_until - seconds, 0.0)


@dataclass(slots=True, eq=False, kw_only=True)
class Host(Entity):
    """The state of one active host.

    `ready_at` is the time of its next turn: `delay_s` after the last start, and not before `blocked_until`. `rank` is
    the lowest it has work for, as far as known, and `backlog` about how many records it has queued. `robots_at` is the
    time its robots.txt was fetched, 0 for never; `address` is its IP address until `address_until`, "" for none.
    `preparing` says that its robots.txt or its address is being fetched: no page until then. `delay_s` is the larger of
    `asked_s`, which the user or the host asks for, and `throttle_s`. `claims` are those that wait, None for none.
    """

    key: str
    delay_s: float = 0.0
    asked_s: float = 0.0
    throttle_s: float = 0.0
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
    idle: bool = False

    def is_idle(self) -> bool:
        """Whether nothing is queued, waits for its turn or is in flight."""
        return self.rank == NO_WORK and self.in_flight == 0 and self.claims is None

    def set_delay(self, asked_s: float, throttle_s: float, places: int) -> None:
        """Have the larger delay of the two from now on."""
        self.asked_s, self.throttle_s = asked_s, throttle_s
        self.delay_s = max(asked_s, throttle_s)
        self.pace_s = max(self.delay_s, TRANSFER_S / places)

    def set_back(self, seconds: float) -> None:
        """Move its times; 0 is never or at once, and stays."""
        self.ready_at = max(self.ready_at - seconds, 0.0)
        self.paused_until = max(self.paused_until - seconds, 0.0)
        self.address_until -= seconds
        self.started_at = max(self.started_at - seconds, 0.0)
        self.blocked_until = max(self.blocked_until - seconds, 0.0)
        self.yields_until = max(self.yields_until - seconds, 0.0)
        self.robots_at = max(self.robots_at - seconds, 0.0)


class SavedTurn(NamedTuple):
    """When the turn of a host and of its group was, and when their next ones were to be."""

    at: float
    next_at: float
    group_at: float
    group_next_at: float


class HostScheduler:
    """The active hosts. A host is active while it has something queued or in flight."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, AddressGroup] = {}
        self.now = -NO_WORK
        """The latest time seen."""
        self.wanted = False
        """Whether more leases were asked for, the last time, than could be had."""
        self.places = policy.concurrency_per_host
        self._turns: FairQueue[Host | AddressGroup] = FairQueue()
        self._idle: list[tuple[float, int, Host | AddressGroup]] = []
        self._idled = 0
        self._paused: dict[Host, float] = {}

    def host(self, key: str) -> Host:
        """Return the host, active from now on."""
        host = self.hosts.get(key)
        if host is None:
            host = self.hosts[key] = Host(key=key)
            host.set_delay(self.policy.delay_s, self.policy.start_delay_s, self.places)
            self.rest(host)
        return host

    def found_work(self, host: Host, rank: float = 0.0, count: int = 1) -> None:
        """So many records of that rank were queued for the host."""
        host.backlog += count
        if host.group is not None:
            host.group.backlog += count
        if rank < host.rank:
            host.rank = rank
            self.offer(host)
        elif host.lane is not None and host.backlog >= host.grown:
            self.offer(host)

    def offer(self, host: Host) -> None:
        """Put the host where it belongs: among the ready, the waiting, or nowhere."""
        group = host.group
        turns: FairQueue[Host] = self._turns if group is None else group.turns  # type: ignore[assignment]
        busy = host.rank == NO_WORK or host.preparing or host.in_flight >= self.places
        if busy or (host.claims is not None and not yields_to_leases(self, host)):
            turns.leave(host)
            turns.stop_waiting(host)
        elif host.ready_at <= self.now:
            turns.stop_waiting(host)
            turns.enter(host)
        else:
            turns.leave(host)
            turns.wait(host, host.ready_at)
        if group is not None:
            self._offer_group(group)

    def pick(self, now: float) -> Host | None:
        """Return the host whose turn it is, or None when no host may be contacted now.

        The caller takes one record of the host and says that it was `lent`, or that the host was found `empty`.
        """
        self.see(now)
        return self.next()

    def next(self) -> Host | None:
        """Do what `pick` does at the time last seen."""
        turns = self._turns
        if turns.heap and turns.heap[0][0] <= self.now:
            self._come()
        lane = turns.lane()
        if lane is None:
            return None
        unit = lane.first()
        if isinstance(unit, AddressGroup):
            lane = unit.turns.lane()
            assert lane is not None, "a group is ready when one of its hosts is"
            unit = lane.first()
        return unit  # type: ignore[return-value]

    def lent(self, host: Host, rank: float | None) -> None:
        """A transfer of one record of the host picked starts now; what comes next has this rank, None for nothing."""
        group, backlog, now = host.group, host.backlog, self.now
        if rank is None:
            host.rank, host.backlog = NO_WORK, 0
        else:
            host.rank = rank
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
            self.offer(host)
        elif host.delay_s or host.claims or host.in_flight >= self.places or not host.lane or host.lane.rank != rank:
            self.offer(host)
        if host.row or (group is not None and group.row):
            reset_claims_in_row(host, group)

    def empty(self, host: Host) -> None:
        """The host picked has nothing queued after all."""
        if host.group is not None:
            host.group.backlog -= host.backlog
        host.rank, host.backlog = NO_WORK, 0
        self.offer(host)
        self.rest(host)

    def asks_robots(self, host: Host) -> None:
        """A transfer of the robots.txt of the host picked starts now."""
        host.preparing = True
        host.backlog += 1
        if host.group is not None:
            host.group.backlog += 1
        self.lent(host, host.rank)
        self.offer(host)

    def asks_address(self, host: Host) -> None:
        """The address of the host is looked up, which is no transfer to it."""
        host.in_flight += 1
        host.preparing = True
        self.offer(host)

    def ended(self, host: Host, group: AddressGroup | None = None) -> None:
        """A transfer to the host is over, whatever came of it; `group` is the one it was started in."""
        host.in_flight -= 1
        if group is not None:
            group.in_flight -= 1
        if host.lane is None and host.waits is None:
            if host.rank != NO_WORK or group is not None:
                self.offer(host)
            if host.rank == NO_WORK and not host.idle:
                self.rest(host)
        if group is not None:
            self._offer_group(group)
            self.rest(group)
        if host.claims is not None or group is not None:
            wake_claims(host, group)

    def give_back(self, host: Host, group: AddressGroup | None, turn: SavedTurn) -> None:
        """The turn was not used, since the host was not contacted; `ended` must follow."""
        if host.ready_at == turn.next_at:
            host.ready_at = max(turn.at, host.paused_until)
            self.offer(host)
        if group is not None and group.ready_at == turn.group_next_at:
            group.ready_at = max(turn.group_at, group.paused_until)
            self._offer_group(group)

    def block(self, host: Host, until: float) -> None:
        """Do not contact the host before `until`."""
        host.blocked_until = max(host.blocked_until, until)
        self._pause(host, until)

    def set_delay(self, host: Host, delay_s: float, now: float) -> None:
        """The host asks for this delay between two starts; counted from now, since robots.txt was a request too."""
        host.set_delay(max(delay_s, self.policy.delay_s), host.throttle_s, self.places)
        self._pause(host, now + host.delay_s)

    def throttle(self, host: Host, delay_s: float) -> None:
        """Let the delay of the host be this or what it asks for, if that is more; it counts from its last start."""
        host.set_delay(host.asked_s, delay_s, self.places)
        host.ready_at = max(host.paused_until, host.started_at + host.delay_s if host.started_at else 0.0)
        self.offer(host)
        if host.claims is not None:
            wake_claims(host, host.group)

    def next_ready(self) -> float | None:
        """When the first host may be contacted, 0 for at once; None when no host has both work and a free place."""
        return 0.0 if self._turns.lane() is not None else self._turns.next_due()

    def remind(self, host: Host, started_at: float, blocked_until: float) -> None:
        """Go on with what was remembered of the host: a pause lasts as long as it would under today's delay."""
        host.started_at = started_at
        self.block(host, blocked_until)
        if started_at:
            self._pause(host, started_at + host.delay_s)

    def set_address(self, host: Host, address: str, until: float, now: float) -> None:
        """The host has this IP address until then, and shares its limits; what is in flight counts where it started."""
        host.address, host.address_until = address, until
        old = host.group
        if not self.policy.limits_addresses or address == (old.address if old is not None else ""):
            return
        (self._turns if old is None else old.turns).leave(host)
        (self._turns if old is None else old.turns).stop_waiting(host)
        host.group = (self.groups.get(address) or self._new_group(address)) if address else None
        if host.group is not None:
            host.group.members += 1
            host.group.backlog += host.backlog
            if host.claims is not None:
                host.group.claiming[host] = None
            if old is None and host.started_at:  # before the process began, or before the address was known
                self._pause_group(host.group, host.started_at + self.policy.delay_per_ip_s)
        self.offer(host)
        if old is not None:
            self._leave_group(host, old)
        if host.claims is not None:
            wake_claims(host, old)

    def forget_idle(self, now: float) -> None:
        """Drop the hosts that have nothing to do and owe no pause: memory depends on active hosts only."""
        while self._idle and self._idle[0][0] <= now:
            unit = heappop(self._idle)[2]
            unit.idle = False
            if unit.is_idle() and unit.ready_at <= now:
                self._forget(unit)
            else:
                self.rest(unit)

    def see(self, now: float) -> None:
        """The clock shows `now`. One that was set back takes all pauses with it: none gets shorter or longer.

        A pause that was set since the clock was seen last may have been set by either time: it lasts as if by the old
        one, and until the end it was given if that is later, but for that no longer than PAUSE_MAX_S from now.
        """
        if now < self.now - CLOCK_SLACK_S:
            self._set_back(self.now - now)
            self.now = now
            for host, until in list(self._paused.items()):
                self.block(host, min(until, now + PAUSE_MAX_S))
        elif now > self.now:
            self.now = now
        self._paused.clear()

    def _set_back(self, seconds: float) -> None:
        """Move all times, the one scan of the hosts."""
        self._turns.set_back(seconds)
        self._idle = [(at - seconds, stamp, unit) for at, stamp, unit in self._idle]
        for group in self.groups.values():
            group.set_back(seconds)
        for host in self.hosts.values():
            host.set_back(seconds)

    def _pause(self, host: Host, until: float) -> None:
        self._paused[host] = max(until, self._paused.get(host, until))
        host.paused_until = max(host.paused_until, until)
        if until > host.ready_at:
            host.ready_at = until
            self.offer(host)

    def _pause_group(self, group: AddressGroup, until: float) -> None:
        group.paused_until = max(group.paused_until, until)
        group.ready_at = max(group.ready_at, until)

    def _come(self) -> None:
        """Make ready all whose time has come."""
        turns, now = self._turns, self.now
        while (due := turns.due(now)) is not None:
            if isinstance(due, AddressGroup):
                while (host := due.turns.due(now)) is not None:
                    due.turns.enter(host)
                self._offer_group(due)
            else:
                turns.enter(due)

    def _offer_group(self, group: AddressGroup) -> None:
        lane, next_due = group.turns.lane(), group.turns.next_due()
        places = self.policy.concurrency_per_ip
        if 0 < places <= group.in_flight or (
            group.claiming and first_claim(self, group) and not yields_to_leases(self, group)
        ):
            lane = next_due = None
        if lane is not None and group.ready_at <= self.now:
            group.rank = lane.rank
            self._turns.enter(group)
        else:
            self._turns.leave(group)
            if lane is not None:
                next_due = group.ready_at
        if next_due is None:
            self._turns.stop_waiting(group)
        else:
            self._turns.wait(group, max(next_due, group.ready_at))

    def _new_group(self, address: str) -> AddressGroup:
        pace_s = max(self.policy.delay_per_ip_s, TRANSFER_S / (self.policy.concurrency_per_ip or self.places))
        group = self.groups[address] = AddressGroup(address=address, pace_s=pace_s)
        return group

    def _leave_group(self, host: Host, group: AddressGroup) -> None:
        group.members -= 1
        group.backlog -= host.backlog
        group.claiming.pop(host, None)
        self._offer_group(group)
        self.rest(group)

    def rest(self, unit: Host | AddressGroup) -> None:
        """Remember to forget the unit when its pause is over, if it is idle."""
        if unit.is_idle() and not unit.idle:
            unit.idle = True
            self._idled += 1
            heappush(self._idle, (unit.ready_at, self._idled, unit))

    def _forget(self, unit: Host | AddressGroup) -> None:
        if isinstance(unit, AddressGroup):
            del self.groups[unit.address]
            return
        del self.hosts[unit.key]
        if unit.group is not None:
            self._leave_group(unit, unit.group)


def yields_to_leases(bench: HostScheduler, unit: Host | AddressGroup) -> bool:
    """Whether the claims stand back: it is the turn of a lease."""
    if unit.row < CLAIMS_IN_ROW_MAX or not bench.wanted:
        return False
    if isinstance(unit, Host):
        return unit.rank != NO_WORK and not unit.preparing
    return unit.turns.lane() is not None


def first_claim(bench: HostScheduler, group: AddressGroup) -> Claim | None:
    """Return the oldest of the claims whose host may be contacted as far as only the host is asked."""
    found: Claim | None = None
    for host in group.claiming:
        if (
            host.claims is None
            or host.ready_at > bench.now
            or host.in_flight >= bench.places
            or yields_to_leases(bench, host)
        ):
            continue
        claim = next(iter(host.claims))
        if found is None or claim.stamp < found.stamp:
            found = claim
    return found


def reset_claims_in_row(host: Host, group: AddressGroup | None) -> None:
    """A lease had its turn: it is that of the claims again."""
    host.row = 0
    if group is not None:
        group.row = 0
    wake_claims(host, group)


def wake_claims(host: Host, group: AddressGroup | None) -> None:
    """Tell the first claims of the host and of the hosts of the group that something has changed."""
    if host.claims is not None:
        next(iter(host.claims)).wake()
    if group is not None:
        for other in group.claiming:
            if other is not host and other.claims is not None:
                next(iter(other.claims)).wake()
