"""Where a crawl stores its items, its small durable data and the metadata of torrents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.core.torrent_record import (
    Change,
    Popularity,
    PutResult,
    Refusal,
    Standing,
    StoredTorrent,
    TorrentRecord,
)


class Sink(Protocol):
    """Stores items exactly once: on resume, items after the committed position are cut off."""

    name: str
    """Identifies the sink in the state: the same output has the same name in every run."""

    async def check(self) -> None:
        """Check whether the output can be written, without changing it. Raises the same errors as `open`."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Open the output for writing at `position` (None: at the end), and cut off the rest. Return the position.

        With `keep`, the data after `position` belongs to other writers: start after that data.
        """

    def prepare(self, item: Any) -> Any:
        """Return the item in the form that `write` takes. The item may change afterwards. Raises `BadItem`."""

    def write(self, prepared: Any, key: ItemKey) -> None:
        """Write one prepared item, which may stay in memory until `flush`."""

    async def flush(self) -> int:
        """Pass all written items to the operating system or server (with sync, to the disk). Return the position.

        Raises `StorageError` if the sink is not open: it has no position then, and 0 would cut everything off.
        """

    async def close(self) -> None:
        """Release the output. Items that were not flushed are dropped."""


class KeyStore(Protocol):
    """Small durable data of a crawl besides its frontier: cookies, spider state, the list of fetched media.

    A value can be read at once after `put`, and is durable after the next `flush`. As with sinks, the flush comes
    before the commit of the frontier.
    """

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None. Raises `StorageError`."""

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Set a value; None removes the key."""

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their current values, sorted by key."""

    async def flush(self) -> None:
        """Make all values durable, in one step. Raises `StorageError`, `StorageFull`."""

    async def close(self) -> None:
        """Release the store. Values that were not flushed are dropped."""


class RecordStore(Protocol):
    """The metadata of torrents, which is looked up again. Several processes may write to one store.

    Infohashes are 20 or 32 bytes; of the latter, the first 20 count. What a call has changed is durable when it
    returns; a call that raises has stored nothing by halves and may be repeated. Raises `StorageError`, `StorageFull`.
    """

    async def open(self) -> None:
        """Open the store, create it if there is none. Raises `StateError` for one that is not ours."""

    async def standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        """Return those of the infohashes that are stored or must not be stored, before anything is asked."""

    async def refusal(self, infohash: bytes, now: float) -> Refusal | None:
        """Return why an infohash may not be stored; None if it may."""

    async def count(self) -> int:
        """Return the number of torrents. It takes about a second for ten million."""

    async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
        """Store records that are new and allowed. Known ones are completed; those that prove to be one, merged."""

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        """Look a torrent up by either infohash."""

    async def mark_seen(self, infohashes: Sequence[bytes], now: float) -> None:
        """Note that the stored ones of these torrents were seen now."""

    async def set_popularity(self, counts: Sequence[Popularity]) -> None:
        """Store counts of peers, of stored torrents alone. An older count than the stored one is ignored."""

    async def due_for_count(self, before: float, limit: int) -> list[tuple[bytes, ...]]:
        """Return the infohashes, 20 bytes each, of torrents whose peers were never counted, then of those whose last
        count is the oldest, and older than `before`. Large stores look for new ones every few minutes only.
        """

    async def changes(self, limit: int) -> list[Change]:
        """Return rows that were stored, changed or removed and not acknowledged since, each once.

        Rows that were removed before they were returned here for the first time are left out.
        """

    async def acknowledge(self, changes: Sequence[Change]) -> None:
        """Forget these changes. A row that changed again in the meantime stays."""

    async def torrents(self, after_id: int, limit: int) -> list[StoredTorrent]:
        """Return the torrents with the next larger ids, in this order: to rebuild an index, to export."""

    async def by_id(self, ids: Sequence[int]) -> list[StoredTorrent]:
        """Return those of the torrents that are still stored, in any order."""

    async def scan(self, after_id: int, limit: int) -> list[Change]:
        """Return the torrents with the next larger ids as changes, to fill a new index: token 0 if none is pending."""

    async def infohashes(self, after_id: int, limit: int) -> list[tuple[int, tuple[bytes, ...]]]:
        """Return the next larger ids with their infohashes, 20 bytes each: to fill a filter in memory."""

    async def deny(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = (), reason: str = "") -> int:
        """Remove torrents, and never store them again. `hashed`: see `hashed_key`. Return how many were removed."""

    async def allow(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> None:
        """Undo `deny` and eviction for these infohashes. What was removed stays removed."""

    async def evict(self, count: int, now: float) -> int:
        """Remove torrents with the fewest seeders, the longest unseen first. They stay away for EVICTED_S."""

    async def used_bytes(self) -> int:
        """Return the space that the store takes, with its log."""

    async def close(self) -> None:
        """Release the store."""
