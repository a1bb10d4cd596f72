"""The state folder of a DHT node: a lock, and the node id and contacts of each address family.

The file holds contacts of nodes only: never peers, and never the routers that were used to join.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from lycosa.core.errors import StateError, UsageError
from lycosa.dht.core.endpoints import CONTACT_BYTES, Contact
from lycosa.dht.core.events import SavedTable
from lycosa.dht.core.ids import ID_BYTES
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close

FORMAT = "lycosa dht node 1"
FILE, LOCK = "node.json", "lock"
FILE_BYTES_MAX = 1 << 20
"""Maximum size of the file that is read. Two full tables take about 100 kB."""


class SavedNode(msgspec.Struct, frozen=True):
    """The id of a node and the contacts of its table, each as hexadecimal compact node info."""

    node_id: str
    contacts: list[str]


class SavedNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file. The keys of `nodes` are the address families 4 and 6."""

    format: str
    nodes: dict[int, SavedNode]


class NodeState:
    """The folder. It is locked: two nodes with one id would disturb each other's place in the network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self) -> dict[int, SavedTable]:
        """Return the id and the contacts of each family. Raises `StateError` if the file is of another version."""
        path = self.folder / FILE
        try:
            with path.open("rb") as file:
                saved = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=SavedNodes)
            if saved.format != FORMAT:
                raise StateError(f"{path}: written as {saved.format!r}, this version reads {FORMAT!r}")
            return {family: _read(family, node) for family, node in saved.nodes.items() if family in CONTACT_BYTES}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except (msgspec.MsgspecError, ValueError):
            raise StateError(f"{path} is damaged: remove it, and the node joins again with --bootstrap") from None

    def save(self, nodes: Mapping[int, SavedTable]) -> None:
        """Replace the file. Raises `StateError` if it cannot be written."""
        saved = SavedNodes(FORMAT, {family: _write(table) for family, table in nodes.items()})
        path = self.folder / FILE
        try:
            replace_file(path, msgspec.json.format(msgspec.json.encode(saved), indent=1), sync=True, mode=0o600)
        except OSError as error:
            raise write_error(path, error, "the contacts cannot be saved") from None


@contextlib.contextmanager
def open_node_state(folder: Path) -> Iterator[NodeState]:
    """Create the folder if it does not exist, and lock it. Raises `UsageError` and `StateError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_file(folder / LOCK, 0o600)
    except BlockingIOError:
        owner = lock_owner(folder / LOCK)
        raise StateError(f"--state {folder}: in use by process {owner}: stop it, or use another folder") from None
    except OSError as error:
        problem = "not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise UsageError(f"--state {folder}: {str(problem).lower()}") from None
    try:
        yield NodeState(folder)
    finally:
        unlock_and_close(lock)


def _read(family: int, node: SavedNode) -> SavedTable:
    rows = [bytes.fromhex(row) for row in node.contacts]
    node_id = bytes.fromhex(node.node_id)
    if len(node_id) != ID_BYTES or any(len(row) != CONTACT_BYTES[family] for row in rows):
        raise ValueError(node)
    return SavedTable(node_id, tuple(Contact(row[:ID_BYTES], row[ID_BYTES:]) for row in rows))


def _write(table: SavedTable) -> SavedNode:
    return SavedNode(table.node_id.hex(), [(each.id + each.endpoint).hex() for each in table.contacts])
