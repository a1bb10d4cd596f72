"""The state folder of a DHT crawl, and the location of its torrents.

DIR/node.json, DIR/lock    the node: its id and its contacts
DIR/queue/                 the infohashes, in a frontier, which `lycosa frontier` can show
DIR/torrents.sqlite        the torrents, unless they are on a database server
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.dht.crawler.core.hash_records import POLICY
from lycosa.frontier.core.description import Description
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.state_dir import StateDir
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.records.sql import open_sql_records
from lycosa.storage.records.sqlite import SqliteRecordStore
from lycosa.storage.records.tables import TableRecordStore

QUEUE, TORRENTS = "queue", "torrents.sqlite"
NAME = "infohashes of the DHT"


class RecordsLocation(NamedTuple):
    """The location of torrents: a state folder, or the URL of a database server."""

    state: str | None
    store: str | None


@asynccontextmanager
async def open_hash_frontier(folder: Path, now: float) -> AsyncIterator[LocalFrontier[bytes]]:
    """Open the frontier of a state folder. Raises `StateError`; `StateLocked` if another process has it."""
    state = StateDir(folder / QUEUE)
    try:
        state.check_complete()
        frontier = embedded_frontier(state.frontier, POLICY, now=now)
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
    """Open the store of torrents. Raises `UsageError`, also if there is none in the folder and `create` is false.

    `outage_wait` waits while the store is down or full. It does not apply to opening, since the URL may be wrong.
    """
    store = _records(location, policy, create=create, max_bytes=max_bytes)
    await store.open()
    store.outage_wait = outage_wait
    try:
        yield store
    finally:
        await store.close()


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
        raise UsageError(f"{location.state} has no torrents: is it the --state of a dht crawl? Or add its --store URL")
    if not path.parent.parent.is_dir():
        raise UsageError(f"{path.parent.parent} does not exist: the folder of --state is created in an existing one")
    return SqliteRecordStore(path, policy, max_bytes=max_bytes, sync=True)
