"""The output of `lycosa dht node`: a status line for each node, and advice if other nodes cannot reach it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NamedTuple

from lycosa.cli.crawl import progress
from lycosa.cli.task_progress import has_terminal
from lycosa.core.units import format_count, format_size
from lycosa.dht.core.endpoints import IPV4, family, port_of
from lycosa.dht.core.events import NodeStatus, Reachability, Traffic

LIVE_EVERY_S = 1.0
PLAIN_EVERY_S = 60.0
"""Seconds between two lines if the output is not a terminal. A node may run for months: a line per minute is 100 MB a
year."""


class TrafficRate(NamedTuple):
    """Queries and bytes per second, in both directions."""

    queries_in: float = 0.0
    queries_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0


class TrafficRates:
    """Rates of the traffic since the last update."""

    def __init__(self) -> None:
        self._last: tuple[float, TrafficRate] | None = None

    def update(self, traffic: Traffic, now: float) -> TrafficRate:
        counts = TrafficRate(traffic.queries_in, traffic.queries_out, traffic.bytes_in, traffic.bytes_out)
        at, before = self._last or (now, counts)
        self._last = now, counts
        elapsed_s = now - at
        return (
            TrafficRate(*((new - old) / elapsed_s for new, old in zip(counts, before, strict=True)))
            if elapsed_s
            else TrafficRate()
        )


def status_line(endpoint: bytes, status: NodeStatus, rate: TrafficRate) -> str:
    """Return the state of a node in one line."""
    contacts, traffic = status.contacts, status.traffic
    reachable = "reachability unknown" if status.reachability is Reachability.UNKNOWN else status.reachability.value
    parts = [
        f"{'IPv4' if family(endpoint) == IPV4 else 'IPv6'} {reachable}: {contacts.good:,} good",
        f"{contacts.questionable:,} questionable, {contacts.bad:,} bad contacts",
        f"in {rate.queries_in:,.1f} queries/s {format_size(rate.bytes_in)}/s",
        f"out {rate.queries_out:,.1f} queries/s {format_size(rate.bytes_out)}/s",
        f"{traffic.answers_out:,} answered" + (f", {traffic.limited:,} refused by limits" if traffic.limited else ""),
        f"{format_count(status.peers, 'peer')} of {format_count(status.infohashes, 'torrent')}",
    ]
    return ", ".join(parts)


class AddressAdvice:
    """Tells the user whether other nodes can reach a node, and what to do if not."""

    def __init__(self, endpoint: bytes, *, is_read_only: bool) -> None:
        self._port = port_of(endpoint)
        self._ip = ip_address(endpoint[:-2])
        self._is_read_only = is_read_only
        self._said = Reachability.UNKNOWN

    def at_start(self) -> list[str]:
        if self._ip.is_loopback:
            public = "0.0.0.0:6881" if self._ip.version == 4 else "[::]:6881"
            return [f"only this machine can reach a loopback address: write --bind {public} for the public network"]
        if self._is_read_only:
            return ["read-only: it sends queries but answers none, so no port needs to be open"]
        return [f"others can reach it if UDP port {self._port} is open in the firewall and forwarded by the router"]

    def on_change(self, reachability: Reachability) -> list[str]:
        if reachability is self._said or self._ip.is_loopback or self._is_read_only:
            return []
        self._said = reachability
        if reachability is Reachability.REACHABLE:
            return [f"others can reach it: a node not queried in the last 15 minutes queried UDP port {self._port}"]
        if reachability is Reachability.UNREACHABLE:
            what = f"open UDP port {self._port} in the firewall, and forward it in the router"
            return [f"no other node has reached it for 15 minutes: {what}; or run it with --read-only"]
        return []


@contextmanager
def show_lines() -> Iterator[tuple[float, Callable[[Sequence[str]], None]]]:
    """Yield the seconds between updates, and a function that shows lines on standard error."""
    if not has_terminal():
        yield PLAIN_EVERY_S, progress.write
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def draw(lines: Sequence[str]) -> None:
        live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

    with Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True) as live:
        yield LIVE_EVERY_S, draw
