"""The state folder of a DHT node: a lock, and the id and contacts of each node.

Peers and routers (public bootstrap nodes) are not saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.dht.core.endpoints import CONTACT_BYTES, Contact
from lycosa.dht.core.events import SavedTable
from lycosa.dht.core.ids import ID_BYTES
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close

FORMAT = "lycosa dht node 1"
FILE, LOCK = "node.json", "lock"
FILE_BYTES_MAX = 1 << 20
"""Two full tables take about 100 kB."""


class SavedNode(msgspec.Struct, frozen=True):
    """`contacts` are compact node info, in hexadecimal. `family` is 4 or 6."""

    family: int
    node_id: str
    contacts: list[str]


class SavedFormat(msgspec.Struct, frozen=True):
    """The part of the file that all versions have."""

    format: str


class SavedNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    format: str
    nodes: list[SavedNode]


class NodeState:
    """A locked folder, because two nodes with the same id would disturb each other."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._families: list[int] = []
        self._last: list[SavedTable | None] = []
        self._unused: list[SavedNode] = []

    def remove_if_unused(self, created: Sequence[Path]) -> None:
        """Remove the `created` folders, the state folder first, unless the state folder has contacts or files of a
        crawl."""
        has_contacts = any(table is not None and table.contacts for table in self._last)
        folder = self._path.parent
        with contextlib.suppress(OSError):  # the error of the caller is more important
            if not has_contacts and {each.name for each in folder.iterdir()} <= {FILE, LOCK}:
                self._path.unlink(missing_ok=True)
                (folder / LOCK).unlink()
                for each in created:
                    each.rmdir()

    def load(self, families: Sequence[int]) -> list[SavedTable | None]:
        """Return the saved tables: the n-th node of a family gets the n-th saved table of that family.

        Raises `StateError` for a damaged file, and for a file of another version.
        """
        unused = self._load()
        tables: list[SavedTable | None] = []
        for family in families:
            node = next((each for each in unused if each.family == family), None)
            if node is not None:
                unused.remove(node)
            tables.append(None if node is None else _read(node, self._path))
        self._families, self._last, self._unused = list(families), list(tables), unused
        return tables

    def save(self, tables: Sequence[SavedTable]) -> None:
        """Replace the file with one table for each node of `load`. Raises `StateError`.

        A table without contacts keeps the old ones: after hours offline they are the only way to join. Saved nodes that
        do not run this time stay in the file.
        """
        kept = [
            SavedTable(new.node_id, old.contacts) if old is not None and not new.contacts else new
            for new, old in zip(tables, self._last, strict=True)
        ]
        rows = [_write(table, family) for table, family in zip(kept, self._families, strict=True)]
        saved = SavedNodes(FORMAT, rows + self._unused)
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(saved), indent=1), sync=True, mode=0o600)
        except OSError as error:
            raise write_error(self._path, error, "the contacts cannot be saved") from None
        self._last = list(kept)

    def _load(self) -> list[SavedNode]:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX)
            version = msgspec.json.decode(data, type=SavedFormat).format
            if version != FORMAT:
                raise StateError(f"{self._path}: written as {version!r}, this version reads {FORMAT!r}")
            return msgspec.json.decode(data, type=SavedNodes).nodes
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"{self._path}: {(error.strerror or str(error)).lower()}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _damaged(self._path) from None


@contextlib.contextmanager
def open_node_state(folder: Path) -> Iterator[NodeState]:
    """Create the folder if it does not exist, and lock it. Raises `UsageError` and `StateError`.

    If the block raises `LycosaError` before a new folder has contacts, the folder is removed.
    """
    try:
        created = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_file(folder / LOCK, 0o600)
    except BlockingIOError:
        owner = lock_owner(folder / LOCK)
        raise StateError(f"--state {folder}: in use by process {owner}: stop it, or use another folder") from None
    except OSError as error:
        problem = "not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise UsageError(f"--state {folder}: {str(problem).lower()}") from None
    state = NodeState(folder)
    try:
        yield state
    except LycosaError:  # but not for an interrupt by the user
        if folder in created:
            state.remove_if_unused(created)
        raise
    finally:
        unlock_and_close(lock)


def _read(node: SavedNode, path: Path) -> SavedTable:
    try:
        node_id, rows = bytes.fromhex(node.node_id), [bytes.fromhex(row) for row in node.contacts]
    except ValueError:
        raise _damaged(path) from None
    if len(node_id) != ID_BYTES or any(len(row) != CONTACT_BYTES[node.family] for row in rows):
        raise _damaged(path)
    return SavedTable(node_id, tuple(Contact(row[:ID_BYTES], row[ID_BYTES:]) for row in rows))


def _write(table: SavedTable, family: int) -> SavedNode:
    return SavedNode(family, table.node_id.hex(), [(each.id + each.endpoint).hex() for each in table.contacts])


def _damaged(path: Path) -> StateError:
    return StateError(f"{path} is damaged: remove it, and the node joins again with --bootstrap")
