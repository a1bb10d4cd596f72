"""The parts of a run, in groups."""

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
    """The storage of a run. `space` pauses the run while a device is nearly full."""

    frontier: Frontier
    sinks: Sequence[Sink]
    committer: Committer
    space: FreeSpace


@dataclass(frozen=True, slots=True)
class HostLookups:
    """Looks up the robots.txt and the address of a host, before the frontier leases its pages."""

    robots: RobotsGate
    addresses: HostAddresses


@dataclass(frozen=True, slots=True)
class RunMonitor:
    """The counters, close conditions (None if there are none) and signals of a run."""

    stats: RunStats
    close_monitor: CloseMonitor | None = None
    dispatcher: EventDispatcher = field(default_factory=EventDispatcher)
