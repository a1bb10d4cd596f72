"""Where a crawl stores its items, its small durable data and the metadata of torrents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.core.torrent_record import (
    Change,
    Popularity,
    PutResult,
    Refusal,
    RemovedRows,
    SearchedTorrent,
    Standing,
    StoredTorrent,
    TorrentRecord,
)

CHANGES_READ_MAX = 50_000
"""Maximum number of changes that a search reads to find removed rows. More wait only if no indexer runs."""


class Sink(Protocol):
    """Stores items exactly once: on resume, items after the committed position are cut off."""

    name: str
    """Identifies the output in the state. It is the same in every run."""

    async def check(self) -> None:
        """Raise the errors that `open` would raise, without changing the output."""

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

        Raises `StorageError` if the sink is not open: a position of 0 would make the next run cut off all items.
        """

    async def close(self) -> None:
        """Release the output. Items that were not flushed are dropped."""


class KeyStore(Protocol):
    """Small durable data of a crawl besides its frontier: cookies, spider state, the list of fetched media.

    `get` returns a value right after `put`. The value is durable after the next `flush`, which comes before the commit
    of the frontier.
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
    """Stores the metadata of torrents. Several processes may write to one store.

    Only the first 20 bytes of infohashes are compared. A change is durable when its call returns. A call that raises
    leaves no half-written record, and may be repeated. Raises `StorageError`, `StorageFull`.
    """

    async def open(self) -> None:
        """Open the store; create it if it does not exist. Raises `StateError` if Lycosa did not create it."""

    async def standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        """Return which of these infohashes are stored or must not be stored."""

    async def refusal(self, infohash: bytes, now: float) -> Refusal | None:
        """Return why an infohash may not be stored; None if it may."""

    async def count(self) -> int:
        """Return the number of torrents. Takes about a second for ten million."""

    async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
        """Store new records that are allowed, and complete known ones.

        Merge two stored torrents if a record shows that they are the same.
        """

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        """Return the torrent with this infohash of either version, if it is stored."""

    async def mark_seen(self, infohashes: Sequence[bytes], now: float) -> None:
        """Note that these torrents were seen now. Infohashes that are not stored are ignored."""

    async def set_popularity(self, counts: Sequence[Popularity]) -> None:
        """Store peer counts. Counts of unknown torrents, and counts not newer than the stored one, are ignored."""

    async def set_content(self, facts: Mapping[int, ContentFacts]) -> int:
        """Replace the content facts of stored torrents, by id. Return how many torrents have changed."""

    async def due_for_count(self, before: float, limit: int) -> list[tuple[bytes, ...]]:
        """Return the infohashes, 20 bytes each, of torrents whose peers are to be counted.

        Torrents never counted come first, then those last counted before `before`, oldest first. A large store may
        return fewer than `limit`, because it searches for more torrents only every few minutes.
        """

    async def changes(self, limit: int) -> list[Change]:
        """Return rows that were stored, changed or removed, and not acknowledged since. Each row appears once.

        A row that was removed before it was ever returned is left out.
        """

    async def acknowledge(self, changes: Sequence[Change]) -> None:
        """Forget these changes. A row that changed again in the meantime stays."""

    async def torrents(self, after_id: int, limit: int) -> list[StoredTorrent]:
        """Return the next torrents, in order of id."""

    async def by_id(self, ids: Sequence[int], files_max: int | None = None) -> list[StoredTorrent]:
        """Return the stored torrents with these ids, in any order, each with at most its first `files_max` files."""

    async def removed(self, limit: int) -> RemovedRows:
        """Return at most `limit` removed rows whose removal was not acknowledged, among the first CHANGES_READ_MAX
        changes that were not acknowledged."""

    async def scan(self, after_id: int, limit: int) -> list[Change]:
        """Return the next torrents after this id as changes, to fill an index. `token` is 0: no change is pending."""

    async def mark_listed(self) -> int:
        """Return the largest id. From now on, `changes` has each change of the torrents up to this id.

        This lets several processes fill an index from `searched`, while another one follows the changes.
        """

    async def searched(self, after_id: int, last_id: int, limit: int) -> list[SearchedTorrent]:
        """Return the next torrents with ids above `after_id`, up to `last_id`."""

    async def acknowledge_until(self, last_id: int) -> None:
        """Forget that torrents are new, up to the id that `mark_listed` returned. Their later changes stay."""

    async def infohashes(self, after_id: int, limit: int) -> list[tuple[int, tuple[bytes, ...]]]:
        """Return the next ids with their infohashes, 20 bytes each."""

    async def deny(
        self,
        infohashes: Iterable[bytes],
        *,
        hashed: Iterable[bytes] = (),
        reason: str = "",
        hybrids: Iterable[Sequence[bytes]] = (),
    ) -> int:
        """Remove torrents, and never store them again. Return how many were removed.

        Infohashes that are already denied get the new reason, unless it is empty. `hashed`: see
        `torrent_record.hashed_key`.
        `hybrids` has the two infohashes of each hybrid torrent; stored torrents need not be in it.
        """

    async def denied(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        """Return how many of these infohashes are denied. Hashed infohashes that were denied in plain form are not
        counted."""

    async def allow(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        """Undo denials, plain or hashed, and evictions; for a hybrid torrent, those of both infohashes.

        Return for how many of the arguments something was undone. Removed torrents are not restored.
        """

    async def evict(self, count: int, now: float) -> int:
        """Remove the torrents with the fewest seeders; with the same number, those seen least recently. Return how
        many were removed.

        Evicted torrents are not stored again for EVICTED_S.
        """

    async def lapsed(self, now: float, limit: int) -> list[bytes]:
        """Return infohashes, 20 bytes each, whose eviction has expired, and which `forget_lapsed` has not forgotten."""

    async def forget_lapsed(self, infohashes: Sequence[bytes], now: float) -> None:
        """Forget these evictions, except those of infohashes that were denied or evicted again in the meantime."""

    async def used_bytes(self) -> int:
        """Return the disk space that the store takes; with SQLite, including its log."""

    async def close(self) -> None: ...
