"""Takes a snapshot of a running crawl every few seconds, for the terminal, the metrics and the status page."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lycosa.dht.core.events import NodeStatus, Reachability
from lycosa.dht.crawler.core.slowness import SPAN_MIN_S, BrakeFinding, why_slow
from lycosa.dht.crawler.core.snapshot import CrawlHistory, CrawlRates, CrawlSnapshot, rates_between
from lycosa.dht.crawler.crawl import TorrentCrawl
from lycosa.dht.crawler.store import WAITING_MAX
from lycosa.dht.session import DhtSession, is_loopback

EVERY_S = 5.0


class TorrentCrawlView(NamedTuple):
    """A crawl as users see it. `findings` say what slows it down; `nodes` has the endpoint and status of each node."""

    snapshot: CrawlSnapshot
    elapsed_s: float
    rates: CrawlRates
    findings: list[BrakeFinding]
    nodes: list[tuple[bytes, NodeStatus]]


class CrawlMonitor:
    """Watches a crawl and the free disk space of its state folder, `folder`."""

    def __init__(self, crawl: TorrentCrawl, session: DhtSession, folder: Path) -> None:
        self._crawl, self._session, self._folder = crawl, session, folder
        self._started = asyncio.get_running_loop().time()
        self.history = CrawlHistory()
        self._findings: list[BrakeFinding] = []

    async def run(self) -> None:
        while True:
            snapshot = await self._take()
            self.history.add(snapshot)
            self._findings = why_slow(self.history.minute_ago(snapshot), snapshot)
            await asyncio.sleep(EVERY_S)

    async def look(self) -> TorrentCrawlView:
        snapshot = await self._take()
        before = self.history.minute_ago(snapshot)
        return self._view(snapshot, rates_between(before, snapshot), why_slow(before, snapshot))

    async def end(self) -> TorrentCrawlView:
        """Return the final view: the rates of the whole run, and what slowed the crawl down before it stopped."""
        snapshot = await self._take()
        first = self.history.points[0] if self.history.points else snapshot
        is_short = snapshot.at - first.at < SPAN_MIN_S
        findings = why_slow(first, snapshot) if is_short else self._findings
        return self._view(snapshot, rates_between(first, snapshot), findings)

    def _view(self, snapshot: CrawlSnapshot, rates: CrawlRates, findings: list[BrakeFinding]) -> TorrentCrawlView:
        nodes = nodes_of(self._session.endpoints, self._session.status(), is_read_only=self._session.is_read_only)
        return TorrentCrawlView(snapshot, snapshot.at - self._started, rates, findings, nodes)

    async def _take(self) -> CrawlSnapshot:
        status, limits, fetcher = await self._crawl.status(), self._session.limits, self._session.fetcher
        nodes = self._session.status()
        traffic = [each.traffic for each in nodes]
        good = sum(each.contacts.good for each in nodes)
        return CrawlSnapshot(
            at=asyncio.get_running_loop().time(),
            counts=dict(status.funnel.counts),
            queued=status.frontier.queued,
            queued_max=status.queued_max,
            delayed=status.frontier.delayed,
            done=status.frontier.done,
            in_work=status.frontier.leased,
            coverage=status.coverage,
            known_share=status.known_share,
            sweeps=status.sweeps,
            good_contacts=good,
            other_contacts=sum(each.contacts.questionable + each.contacts.bad for each in nodes),
            reachability=reachability_of(
                nodes_of(self._session.endpoints, nodes, is_read_only=self._session.is_read_only)
            ),
            queries_out=sum(each.queries_out for each in traffic),
            answers_in=sum(each.answers_in + each.errors_in for each in traffic),
            unanswered=sum(each.failed for each in traffic),
            bytes_out=sum(each.bytes_out for each in traffic),
            bytes_in=sum(each.bytes_in for each in traffic),
            waits=dict(limits.waits),
            waiting_queries=sum(each.waiting for each in nodes),
            waiting_fetches=fetcher.waiting_fetches,
            connections=fetcher.connection_count,
            connections_max=fetcher.limits.connections_max,
            all_lookups_used=status.all_lookups_used,
            store_waiting=status.store_waiting,
            store_waiting_max=WAITING_MAX,
            store_busy_s=status.store_busy_s,
            cpu_s=time.process_time(),
            disk_free_bytes=_free_bytes(self._folder),
        )


def nodes_of(
    endpoints: Sequence[bytes], nodes: Sequence[NodeStatus], *, is_read_only: bool
) -> list[tuple[bytes, NodeStatus]]:
    """Return the nodes with their endpoints. The reachability of loopback and of read-only nodes is unknown."""
    return [
        (endpoint, replace(node, reachability=Reachability.UNKNOWN) if is_read_only or is_loopback(endpoint) else node)
        for endpoint, node in zip(endpoints, nodes, strict=True)
    ]


def reachability_of(nodes: Sequence[tuple[bytes, NodeStatus]]) -> Reachability:
    """Return the best reachability of all nodes that are not on loopback."""
    found = {node.reachability for endpoint, node in nodes if not is_loopback(endpoint)}
    order = (Reachability.REACHABLE, Reachability.UNKNOWN, Reachability.UNREACHABLE)
    return next((each for each in order if each in found), Reachability.UNKNOWN)


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
