"""Runs the DHT nodes of a process, one per bound address, and saves their routing tables.

IPv4 and IPv6 are separate networks, each with its own node (BEP 32). A lookup, scrape or announce runs on all nodes,
and returns the results of all.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.dht.bootstrap import DEFAULT, find_bootstrap, find_routers
from lycosa.dht.core.endpoints import IPV4, AllowedNetworks, Contact, family, parse, port_of, text, unpack
from lycosa.dht.core.events import (
    AnnounceFinished,
    Event,
    InfohashesSampled,
    JoinFinished,
    LookupFinished,
    LookupProgress,
    NodeStatus,
    PeersNamed,
    QueryFinished,
)
from lycosa.dht.core.ids import ID_BYTES, distance
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.core.responder import Neighbourhood
from lycosa.dht.core.routing.table import K
from lycosa.dht.node_state import NodeState, open_node_state
from lycosa.dht.peers import FetchLimits, MetadataFetch, MetadataFetcher
from lycosa.dht.udp import DatagramShell, bind_udp, pack_address

logger = logging.getLogger(__name__)

SAVE_INTERVAL_S = 300.0
"""Seconds between two saves of the contacts."""


class PeerAddress(NamedTuple):
    """An IP address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SwarmEstimate(NamedTuple):
    """The result of a scrape, estimated from Bloom filters (BEP 33). `is_counted`: whether a node answered."""

    seeds: float
    leechers: float
    peers: int
    is_counted: bool = True


class AnnounceResult(NamedTuple):
    """How many nodes were asked to store a peer, and how many confirmed it."""

    asked: int
    confirmed: int


class DhtSession:
    """The nodes of a process, opened by `open_node`."""

    fetcher: MetadataFetcher

    def __init__(self, limits: NodeLimits) -> None:
        self.limits = limits
        self.shells: list[DatagramShell] = []
        self._operations: dict[tuple[int, int], asyncio.Queue[Event]] = {}
        self.listeners: list[Callable[[DatagramShell, Event], None]] = []
        """Called with each event that belongs to no operation of this session."""
        self._joined = asyncio.Event()
        self._joining: set[int] = set()
        self.is_isolated = True
        """Whether our nodes knew no other node when the session was opened."""
        self.is_read_only = False
        """Whether the nodes answer no queries (BEP 43)."""

    def add(self, shell: DatagramShell) -> None:
        """The node must not have been started."""
        self._joining.add(len(self.shells))
        for sibling in self.shells:
            sibling.siblings.append(shell)
            shell.siblings.append(sibling)
        self.shells.append(shell)

    @property
    def endpoints(self) -> list[bytes]:
        return [shell.node.endpoint for shell in self.shells]

    def status(self) -> list[NodeStatus]:
        return [shell.node.status(shell.now()) for shell in self.shells]

    async def joined(self) -> int:
        """Wait until the first search of each node for its own id has ended. Return the number of good contacts."""
        await self._joined.wait()
        return sum(status.contacts.good for status in self.status())

    async def find_node(self, target: bytes | None) -> list[Contact]:
        """Return the nodes closest to a target among those that answered.

        Without a target, each of our nodes searches for its own id.
        """
        found: list[Contact] = []
        start = lambda node, now: node.find_node(node.node_id if target is None else target, now)  # noqa: E731
        async for event in self._run(start):
            if isinstance(event, LookupFinished):
                found += event.closest
        return found if target is None else sorted(found, key=lambda contact: distance(contact.id, target))

    async def lookup(self, infohash: bytes) -> AsyncIterator[PeerAddress]:
        """Yield each peer once, as soon as a node returns it. Peers are unverified and may be false."""
        async for endpoint in self.peer_endpoints(infohash):
            yield PeerAddress(*unpack(endpoint))

    async def peer_endpoints(self, infohash: bytes, start: Sequence[Contact] = ()) -> AsyncIterator[bytes]:
        """Like `lookup`, but yield compact endpoints. `start`: contacts that are known to be close to the infohash."""
        seen: set[bytes] = set()

        def begin(node: DhtNode, now: float) -> int:
            nearby = (each for each in start if family(each.endpoint) == node.family)
            return node.get_peers(infohash, now, start=nearby)

        async for event in self._run(begin):
            if isinstance(event, LookupProgress):
                for peer in event.peers:
                    if peer not in seen:
                        seen.add(peer)
                        yield peer

    async def scrape(self, infohash: bytes, on_peer: Callable[[bytes], object] = bool) -> SwarmEstimate:
        """Estimate the number of seeds and leechers (BEP 33). `on_peer` gets the endpoint of each peer that is
        found."""
        seeds = leechers = 0.0
        is_counted = False
        peers: dict[bytes, None] = {}
        async for event in self._run(lambda node, now: node.get_peers(infohash, now, scrape=True)):
            if isinstance(event, LookupProgress):
                for peer in event.peers:
                    if peer not in peers:
                        peers[peer] = None
                        on_peer(peer)
            elif isinstance(event, LookupFinished):
                seeds += event.seeds or 0
                leechers += event.leechers or 0
                is_counted |= event.seeds is not None
        return SwarmEstimate(seeds, leechers, len(peers), is_counted)

    async def scrape_swarms(
        self, infohashes: Iterable[bytes], on_peer: Callable[[bytes], object] = bool
    ) -> SwarmEstimate:
        """Scrape all swarms of one torrent. A hybrid torrent has two.

        Returns the maximum of each estimate, because most clients are in both swarms.
        """
        peers: dict[bytes, None] = {}

        def add(peer: bytes) -> None:
            if peer not in peers:
                peers[peer] = None
                on_peer(peer)

        found = await asyncio.gather(*(self.scrape(each, add) for each in dict.fromkeys(infohashes)))
        return SwarmEstimate(
            max(each.seeds for each in found),
            max(each.leechers for each in found),
            len(peers),
            any(each.is_counted for each in found),
        )

    async def metadata(self, infohash: bytes, peers: Iterable[bytes] = ()) -> bytes:
        """Return the info dict of a torrent, from the peers that the DHT finds and from `peers`.

        `infohash` has 20 bytes, or 32 for version 2. Raises `NoMetadata`.
        """
        fetch = self.fetcher.start(infohash)
        for peer in peers:
            fetch.add_peer(peer)
        looking = asyncio.ensure_future(self._add_peers(fetch))
        try:
            return await fetch.result()
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    async def _add_peers(self, fetch: MetadataFetch) -> None:
        try:
            async for peer in self.peer_endpoints(fetch.infohash[:ID_BYTES]):
                fetch.add_peer(peer)
        except NodeBusy:
            logger.warning("too many lookups are running to find peers of %s", fetch.infohash.hex())
        finally:
            fetch.no_more_peers()

    async def announce(self, infohash: bytes, port: int | None, *, seed: bool = False) -> AnnounceResult:
        """Ask the closest nodes to store this host as a peer. Without a port, they store the port of the DHT node."""
        asked = confirmed = 0
        async for event in self._run(lambda node, now: node.announce(infohash, port, now, seed=seed)):
            if isinstance(event, AnnounceFinished):
                asked, confirmed = asked + event.asked, confirmed + event.confirmed
        return AnnounceResult(asked, confirmed)

    async def ping(self, endpoint: bytes) -> QueryFinished:
        """The result has the id of the node, or the reason for the failure."""
        event = await self._ask(endpoint, lambda node, now: node.ping(endpoint, now))
        assert isinstance(event, QueryFinished)
        return event

    async def sample_infohashes(self, contact: Contact, target: bytes) -> InfohashesSampled | QueryFinished:
        """Ask a node for a sample of its infohashes, and for contacts close to a target (BEP 51).

        Returns `QueryFinished` if there is no answer, or if the node's sampling interval has not passed yet.
        """
        event = await self._ask(contact.endpoint, lambda node, now: node.sample_infohashes(contact, target, now))
        assert isinstance(event, InfohashesSampled | QueryFinished)
        return event

    async def ask_peers(self, contact: Contact, infohash: bytes) -> PeersNamed | None:
        """Request the peers of an infohash from one node. Return None if it does not answer in time."""
        event = await self._ask(contact.endpoint, lambda node, now: node.get_peers(infohash, now, only=contact))
        return event if isinstance(event, PeersNamed) else None

    def start_ping(self, endpoint: bytes) -> None:
        """If the node answers, it may enter the table."""
        number = self._number_for(endpoint)
        if number is not None:
            shell = self.shells[number]
            shell.node.ping(endpoint, shell.now())
            shell.flush()

    async def _ask(self, endpoint: bytes, start: Callable[[DhtNode, float], int]) -> Event:
        """Send one query with our node of the same address family. Raises `UsageError`."""
        number = self._number_for(endpoint)
        if number is None:
            raise UsageError(f"{text(endpoint)}: this node has no address of that IP version: add one with --bind")
        return await anext(self._run(start, [number]))

    def _number_for(self, endpoint: bytes) -> int | None:
        numbers = (n for n, shell in enumerate(self.shells) if family(shell.node.endpoint) == family(endpoint))
        return next(numbers, None)

    async def _run(
        self, start: Callable[[DhtNode, float], int], numbers: Iterable[int] | None = None
    ) -> AsyncIterator[Event]:
        """Start an operation on all nodes, or on those with `numbers`. Yield its events until it has ended on each."""
        events: asyncio.Queue[Event] = asyncio.Queue()  # bounded, because a lookup has at most PEERS_MAX peers
        running: dict[tuple[int, int], DatagramShell] = {}
        try:
            for number in range(len(self.shells)) if numbers is None else numbers:
                shell = self.shells[number]
                key = number, start(shell.node, shell.now())
                running[key] = shell
                self._operations[key] = events
                shell.flush()
            left = len(running)
            while left:
                event = await events.get()
                left -= not isinstance(event, LookupProgress)
                yield event
        finally:
            for key, shell in running.items():
                if self._operations.pop(key, None) is not None:
                    shell.node.cancel(key[1], shell.now())

    def on_event(self, number: int, event: Event) -> None:
        """Pass an event to the operation that waits for it, else to the listeners."""
        if isinstance(event, JoinFinished):
            self._joining.discard(number)
            if not self._joining:
                self._joined.set()
        key = number, getattr(event, "operation_id", -1)
        events = self._operations.get(key)
        if events is None:
            for listener in self.listeners:
                listener(self.shells[number], event)
            return
        events.put_nowait(event)
        if not isinstance(event, LookupProgress):
            del self._operations[key]

    def contacts(self, target: bytes, count: int = K) -> list[Contact]:
        return [each for shell in self.shells for each in shell.node.closest_good(target, count, shell.now())]


@asynccontextmanager
async def open_node(
    bind: Sequence[str] = ("127.0.0.1:6881",),
    *,
    bootstrap: Sequence[str] = (),
    state: str | Path | None = None,
    read_only: bool = False,
    allow_private: Sequence[str] = (),
    report_infohashes: bool = False,
    limits: NodeLimits | None = None,
    fetch_limits: FetchLimits | None = None,
) -> AsyncIterator[DhtSession]:
    """Open a node on each address of `bind`, and join the network.

        bind               ADDRESS:PORT; port 0 is any free port
        bootstrap          nodes to join through: HOST:PORT, a torrent file with nodes, or "default": the public routers
        state              folder for the node ids and the contacts, saved every five minutes and at the end
        read_only          send queries, but answer none (BEP 43)
        allow_private      networks that may be contacted although they are not public, such as 127.0.0.0/8
        report_infohashes  give `DhtSession.listeners` the infohashes that other nodes announce or request
        limits             limits of queries, bytes and new addresses, for all nodes together
        fetch_limits       limits of connections to peers

    Raises `UsageError` and `StateError`; `LycosaError` if no bootstrap address is found and no contacts are saved.
    """
    config = NodeConfig(
        read_only=read_only, allowed_networks=_networks(allow_private), report_infohashes=report_infohashes
    )
    async with AsyncExitStack() as stack:
        state_folder = stack.enter_context(open_node_state(Path(state))) if state is not None else None
        neighbourhood = Neighbourhood(limits)
        session = DhtSession(neighbourhood.limits)
        session.is_read_only = read_only
        for number, address in enumerate(bind):
            shell = _open_shell(address, config, neighbourhood, partial(session.on_event, number))
            stack.callback(shell.close)
            session.add(shell)
        await _join(session, config, bootstrap, state_folder)
        session.fetcher = await stack.enter_async_context(_fetcher(session, config, fetch_limits))
        if state_folder is not None:
            await stack.enter_async_context(_saving(session, state_folder))
        yield session


def _networks(written: Sequence[str]) -> AllowedNetworks:
    try:
        return AllowedNetworks(written)
    except UsageError as error:
        raise UsageError(f"--allow-private {error}") from None


def _open_shell(
    address: str, config: NodeConfig, neighbourhood: Neighbourhood, on_event: Callable[[Event], None]
) -> DatagramShell:
    try:
        endpoint = parse(address)
    except UsageError as error:
        raise UsageError(f"--bind {error}") from None
    sock = bind_udp(endpoint)
    node = DhtNode(pack_address(sock.getsockname()), config, os.urandom, shared=neighbourhood)
    return DatagramShell(node, sock, on_event)


def _fetcher(session: DhtSession, config: NodeConfig, limits: FetchLimits | None) -> MetadataFetcher:
    """Return the fetcher. If all nodes have the same IP address, it connects from this address.

    Peers get the port of our IPv4 node, unless the node is read-only.
    """

    def meet(endpoint: bytes) -> None:
        with suppress(NodeBusy):
            session.start_ping(endpoint)

    ips = {ip_address(endpoint[:-2]) for endpoint in session.endpoints}
    ipv4_ports = [port_of(endpoint) for endpoint in session.endpoints if family(endpoint) == IPV4]
    return MetadataFetcher(
        os.urandom,
        limits=limits,
        may_connect=session.limits.may_connect,
        allowed=config.allowed_networks,
        local_ip=str(*ips) if len(ips) == 1 and not any(ip.is_unspecified for ip in ips) else None,
        dht_port=ipv4_ports[0] if ipv4_ports and not config.read_only else None,
        on_dht_node=meet,
    )


async def _join(
    session: DhtSession, config: NodeConfig, bootstrap: Sequence[str], state_folder: NodeState | None
) -> None:
    families = [family(endpoint) for endpoint in session.endpoints]
    saved = state_folder.load(families) if state_folder is not None else [None] * len(families)
    has_contacts = any(table is not None and table.contacts for table in saved)
    if DEFAULT in bootstrap and all(is_loopback(each) for each in session.endpoints):
        raise _unreachable(session.endpoints, DEFAULT)
    given: list[bytes] = []
    routers: list[bytes] = []
    try:
        given = await find_bootstrap(bootstrap, config.allowed_networks)
        routers = await find_routers(config.allowed_networks) if DEFAULT in bootstrap else []
    except UsageError:
        raise
    except LycosaError as error:  # no name server answers; saved contacts do not need one
        if not has_contacts:
            raise
        logger.warning("%s; joining through the saved contacts", error)
    _check_reachable(session.endpoints, given, bootstrap)
    for shell, own, table in zip(session.shells, families, saved, strict=True):
        own_given, own_routers = ([each for each in nodes if family(each) == own] for nodes in (given, routers))
        shell.node.start(table, own_given, shell.now(), routers=own_routers)
        session.is_isolated &= not (own_given or own_routers or (table is not None and table.contacts))
        shell.start()


def _check_reachable(binds: Sequence[bytes], given: Sequence[bytes], bootstrap: Sequence[str]) -> None:
    """Raise `UsageError` if none of our addresses can reach any of the bootstrap nodes."""
    if not given or DEFAULT in bootstrap:
        return
    if all(is_loopback(each) for each in binds) and not any(is_loopback(each) for each in given):
        raise _unreachable(binds, bootstrap[0])
    if not {family(each) for each in given} & {family(each) for each in binds}:
        other = "[::]:6881" if len(given[0]) > len(binds[0]) else "0.0.0.0:6881"
        raise UsageError(f"--bootstrap {bootstrap[0]} has an address of the other IP version: add --bind {other}")


def _unreachable(binds: Sequence[bytes], name: str) -> UsageError:
    ip, _ = unpack(binds[0])
    return UsageError(f"--bind {ip} is loopback, and cannot reach --bootstrap {name}: write --bind 0.0.0.0:6881")


def is_loopback(endpoint: bytes) -> bool:
    """Return whether an endpoint has a loopback address."""
    return ip_address(endpoint[:-2]).is_loopback


@asynccontextmanager
async def _saving(session: DhtSession, state: NodeState) -> AsyncIterator[None]:
    """Save the tables now, every SAVE_INTERVAL_S, and at the end. The first save reports an unwritable folder early.

    If the block raises a `LycosaError`, a `StateError` of the final save is ignored: a full disk often causes both.
    """

    def save() -> None:
        state.save([shell.node.save(shell.now()) for shell in session.shells])

    async def save_from_time_to_time() -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            try:
                save()
            except StateError as error:  # the node does not need the file
                logger.warning("%s", error)

    save()
    task = asyncio.create_task(save_from_time_to_time())
    ignored: list[type[StateError]] = []
    try:
        yield
    except LycosaError:
        ignored.append(StateError)
        raise
    finally:
        task.cancel()
        await asyncio.wait([task])
        with suppress(*ignored):
            save()
