"""The state folder of a DHT crawl, and the location of its torrents.

DIR/node.json, DIR/lock    the node: its id and its contacts
DIR/queue/                 the frontier of infohashes, which `lycosa frontier` can show
DIR/torrents.sqlite        the torrents, unless they are on a database server
DIR/rules/                 the rules that were added to the built-in ones
DIR/index/                 the search index, by default
DIR/store                  the place where the last crawl stored its torrents
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from lycosa.core.errors import DamagedState, UsageError
from lycosa.core.units import format_size
from lycosa.dht.crawler.core.hash_records import FETCHED, POLICY
from lycosa.frontier.core.description import Description
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.ports import ReadableFrontier
from lycosa.frontier.state_dir import StateDir
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import replace_file
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.records.sql import open_sql_records, without_password
from lycosa.storage.records.sqlite import SqliteRecordStore
from lycosa.storage.records.tables import TableRecordStore

QUEUE, TORRENTS, STORE = "queue", "torrents.sqlite", "store"
NAME = "infohashes of the DHT"


class RecordsLocation(NamedTuple):
    """The location of torrents: a state folder, or the URL of a database server."""

    state: str | None
    store: str | None


@contextmanager
def queue_advice(queue: Path) -> Iterator[None]:
    """Replace the advice of `DamagedState`: it names -O, which only web crawls have."""
    try:
        yield
    except DamagedState as error:
        raise DamagedState(
            error.problem,
            advice=f"restore {queue} from a backup, or delete this folder: the torrents stay, and the crawl starts with"
            " an empty queue",
        ) from None


@asynccontextmanager
async def open_hash_frontier(folder: Path, now: float) -> AsyncIterator[LocalFrontier[bytes]]:
    """Open the frontier of a state folder. Raises `StateError`; `StateLocked` if another process has locked it."""
    state = StateDir(folder / QUEUE)
    try:
        with queue_advice(folder / QUEUE):
            state.check_complete()
            # The store forgets an eviction once the torrent is queued again, so the queue must survive power loss.
            frontier = embedded_frontier(state.frontier, POLICY, sync=True, now=now)
        try:
            if not state.description.name:
                state.describe(Description(name=NAME))
            yield frontier
        finally:
            await frontier.close()
    finally:
        state.close()


@asynccontextmanager
async def open_records(
    location: RecordsLocation,
    policy: RecordPolicy | None = None,
    *,
    create: bool = False,
    max_bytes: int | None = None,
    outage_wait: OutageWait | None = None,
) -> AsyncIterator[RecordStore]:
    """Open the store of torrents. Raises `UsageError`, for example if there is no store and `create` is false.

    `outage_wait` waits while the open store is down or full. Opening does not wait, since the URL may be wrong.
    """
    store = _records(location, policy, create=create, max_bytes=max_bytes)
    await store.open()
    store.outage_wait = outage_wait
    try:
        yield store
    finally:
        await store.close()


def check_store(store_url: str | None, max_bytes: int | None = None) -> None:
    """Raise `UsageError` for a wrong URL, a driver that is not installed, or a URL together with `max_bytes`."""
    _records(RecordsLocation(".", store_url), None, create=True, max_bytes=max_bytes)


def _records(
    location: RecordsLocation, policy: RecordPolicy | None, *, create: bool, max_bytes: int | None
) -> TableRecordStore:
    if location.store is not None and max_bytes is not None:
        raise UsageError("--max-size limits torrents.sqlite; leave it out with --store, and set a limit on the server")
    if location.store is not None:
        return open_sql_records(location.store, policy)
    if location.state is None:
        raise UsageError("which torrents? Write --state DIR, or --store URL for a database server")
    path = Path(location.state) / TORRENTS
    if not create and not path.exists():
        raise UsageError(
            f"{location.state} has no torrents: is it the --state of a dht crawl? If they are on a server, add --store"
        )
    if not path.parent.parent.is_dir():
        raise UsageError(f"{path.parent.parent} does not exist: --state DIR is created only in an existing folder")
    return SqliteRecordStore(path, policy, max_bytes=max_bytes, sync=True)


async def note_store(
    folder: Path, store_url: str | None, store: RecordStore, queue: ReadableFrontier, say: Callable[[str], None]
) -> None:
    """Save where the torrents are stored. Warn if the store lacks torrents that the queue lists as fetched.

    Raises `StateError`.
    """
    path, place = folder / STORE, without_password(store_url) if store_url else TORRENTS
    fetched = (await queue.stats()).reasons.get(FETCHED, 0)
    try:
        before = path.read_text("utf-8", "replace") if path.exists() else place
        if fetched and (before != place or not await store.infohashes(0, 1)):
            again = f"lycosa frontier requeue --done --state {folder / QUEUE}"
            say(
                f"{place} lacks torrents that this crawl has fetched ({fetched:,} in all): the store was deleted or"
                f" replaced. They are fetched again only after: {again}"
            )
        if not path.exists() or before != place:
            replace_file(path, place.encode(), sync=True)
    except OSError as error:
        raise write_error(path, error, "the state cannot be written") from None


async def note_size(store: RecordStore, max_bytes: int, say: Callable[[str], None]) -> None:
    """Warn if the store is larger than its maximum size."""
    if (used := await store.used_bytes()) > max_bytes:
        say(
            f"{TORRENTS} has {format_size(used)}, more than --max-size {format_size(max_bytes)}: when the crawl stores"
            " torrents, it removes those with the fewest seeders until the size fits"
        )
