"""A model of a disk that can lose power: the possible contents of a folder after any prefix of recorded operations.

The model guarantees less than ext4, XFS or btrfs do:

- a write to a file is durable after the next `fsync` or `fdatasync` of that file; a write with O_DSYNC is durable by
  itself. Until then each write may be lost or not, independently of the others, and so may each of its 512-byte
  sectors; a file may also have grown and hold zeros in place of the data;
- a change of a name (added, removed or renamed) is durable after the next `fsync` of its folder, whatever was done to
  the file. Until then a folder has the names after some prefix of its changes, independently of other folders;
- a rename is atomic within one folder; between two folders the file may be in both or in neither.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import assert_never

from tests.frontier.durability.recorder import (
    Create,
    CreateFolder,
    Mark,
    Operation,
    Remove,
    Rename,
    Sync,
    SyncWrite,
    Truncate,
    Write,
)

SECTOR = 512
Tree = dict[str, bytes | None]
"""The content of each path, None for a folder."""


@dataclass
class Change:
    """A write or truncation of a file, and whether it is durable."""

    operation: Write | Truncate
    durable: bool = False


@dataclass
class File:
    """The durable content of a file, and the changes since then."""

    synced: bytes = b""
    changes: list[Change] = field(default_factory=list)
    size: int = 0

    def change(self, operation: Write | Truncate) -> None:
        """Write or truncate."""
        if isinstance(operation, Write):
            operation = operation._replace(offset=self.size) if operation.offset is None else operation
            self.size = max(self.size, (operation.offset or 0) + len(operation.data))
        else:
            self.size = operation.size
        self.changes.append(Change(operation))

    def content(self, loss: PowerLoss) -> bytes:
        """Return the state after a power loss."""
        found = bytearray(self.synced)
        for change in self.changes:
            loss.change(found, change)
        return bytes(found)

    def sync(self) -> None:
        """Make all changes durable."""
        self.synced = self.content(PowerLoss())
        self.changes.clear()


@dataclass
class Folder:
    """The durable names of a folder, and the changes since then. Each change maps names to nodes."""

    synced: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, change: dict[str, Node | None]) -> None:
        """Add and remove names atomically."""
        self.changes.append(change)
        apply_names(self.names, change)

    def found(self, loss: PowerLoss) -> dict[str, Node]:
        """Return the state after a power loss."""
        names = dict(self.synced)
        for change in self.changes[: loss.name_changes(len(self.changes))]:
            apply_names(names, change)
        return names

    def sync(self) -> None:
        """Make all changes durable."""
        self.synced = dict(self.names)
        self.changes.clear()


Node = File | Folder


def apply_names(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            del names[name]
        else:
            names[name] = node


class PowerLoss:
    """Decides which of the changes that are not durable survive a power loss. In this class all of them do."""

    def name_changes(self, count: int) -> int:
        """Return how many of these changes of names survive."""
        return count

    def change(self, content: bytearray, change: Change) -> None:
        """Apply to the content the surviving part of the change."""
        apply(content, change.operation)


class WorstLoss(PowerLoss):
    """Only durable changes survive."""

    def name_changes(self, count: int) -> int:
        """Return 0."""
        return 0

    def change(self, content: bytearray, change: Change) -> None:
        """Apply durable changes only."""
        if change.durable:
            apply(content, change.operation)


class RandomLoss(PowerLoss):
    """Some changes survive whole. Some writes survive only in some sectors, or leave zeros in place of their data."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def name_changes(self, count: int) -> int:
        """Return a random number."""
        return self._rng.choice((0, count, self._rng.randint(0, count)))

    def change(self, content: bytearray, change: Change) -> None:
        """Apply the change whole, in part, not at all, or only the length of the write."""
        outcome = "whole" if change.durable else self._rng.choice(("whole", "whole", "lost", "torn", "zeros"))
        if outcome == "whole" or (outcome != "lost" and isinstance(change.operation, Truncate)):
            apply(content, change.operation)
        elif isinstance(change.operation, Write) and outcome == "torn":
            for sector in sectors(change.operation):
                if self._rng.random() < 0.5:
                    apply(content, sector)
        elif isinstance(change.operation, Write) and outcome == "zeros":
            end = (change.operation.offset or 0) + len(change.operation.data)
            content.extend(bytes(max(0, end - len(content))))


def apply(content: bytearray, operation: Write | Truncate) -> None:
    """Apply an operation to the content of a file."""
    if isinstance(operation, Truncate):
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
        return
    start = operation.offset or 0
    content.extend(bytes(max(0, start - len(content))))
    content[start : start + len(operation.data)] = operation.data


def sectors(write: Write) -> list[Write]:
    """Split a write at the sector boundaries of the disk."""
    start, end = write.offset or 0, (write.offset or 0) + len(write.data)
    bounds = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    return [Write(write.path, left, write.data[left - start : right - start]) for left, right in pairwise(bounds)]


class Disk:
    """A folder with a durable tree, and the operations on it."""

    def __init__(self, tree: Tree) -> None:
        self._root = Folder()
        for path in sorted(tree):
            content = tree[path]
            folder, name = self._locate(path)
            folder.names[name] = Folder() if content is None else File(content, size=len(content))
            folder.sync()

    def apply(self, operation: Operation) -> None:
        """Apply the next operation."""
        match operation:
            case Write() | Truncate():
                self._file(operation.path).change(operation)
            case Create(path):
                self._create(path, File, keep=True)
            case CreateFolder(path):
                self._create(path, Folder, keep=False)
            case Rename(path, new):
                self._rename(path, new)
            case Remove(path):
                folder, name = self._locate(path)
                folder.change({name: None})
            case Sync(path):
                self._node(path).sync()
            case SyncWrite(path):
                self._file(path).changes[-1].durable = True
            case Mark():
                pass
            case _:
                assert_never(operation)

    def tree(self, loss: PowerLoss) -> Tree:
        """Return the tree after a power loss at this point."""
        tree: Tree = {}
        ahead: list[tuple[str, Folder]] = [("", self._root)]
        while ahead:
            prefix, folder = ahead.pop()
            for name, node in folder.found(loss).items():
                tree[prefix + name] = node.content(loss) if isinstance(node, File) else None
                if isinstance(node, Folder):
                    ahead.append((f"{prefix}{name}/", node))
        return tree

    def _create(self, path: str, kind: Callable[[], Node], *, keep: bool) -> None:
        folder, name = self._locate(path)
        if not (keep and name in folder.names):
            folder.change({name: kind()})

    def _rename(self, path: str, new: str) -> None:
        (folder, name), (target, new_name) = self._locate(path), self._locate(new)
        node = folder.names[name]
        if folder is target:
            folder.change({name: None, new_name: node})
        else:
            folder.change({name: None})
            target.change({new_name: node})

    def _locate(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        node = self._node(folder or ".")
        assert isinstance(node, Folder), path
        return node, name

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in path.split("/") if path != "." else ():
            assert isinstance(node, Folder), path
            node = node.names[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        assert isinstance(node, File), path
        return node


def read_tree(folder: Path) -> Tree:
    """Return the tree of a folder."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")
    }


def write_tree(tree: Tree, folder: Path) -> None:
    """Replace the content of the folder with this tree."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
