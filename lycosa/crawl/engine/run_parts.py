"""The parts of a run, grouped by what they are for: the engine and what settles leases take them as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lycosa.crawl.engine.close_monitor import CloseMonitor
from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.events.dispatcher import EventDispatcher
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.frontier.ports import Frontier
from lycosa.storage.ports import Sink


@dataclass(frozen=True, slots=True)
class RunStorage:
    """What a run reads from and writes to. The committer makes both durable in one step, items first; `space` pauses
    the run while a device it writes to is nearly full."""

    frontier: Frontier
    sinks: Sequence[Sink]
    committer: Committer
    space: FreeSpace


@dataclass(frozen=True, slots=True)
class HostLookups:
    """What answers the frontier's own questions about a host: its robots.txt and its address."""

    robots: RobotsGate
    addresses: HostAddresses


@dataclass(frozen=True, slots=True)
class RunMonitor:
    """What follows a run: counters, the conditions that end it early (None: there are none), and the signals of its
    spiders."""

    stats: RunStats
    close_monitor: CloseMonitor | None = None
    dispatcher: EventDispatcher = field(default_factory=EventDispatcher)
