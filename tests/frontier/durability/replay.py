"""A disk that can lose its power: what a folder may look like after any prefix of recorded operations.

The model is stricter than what ext4, XFS or btrfs do:

- what is written to a file is there for certain after the next `fsync` or `fdatasync` of that file, or, when it was
  written with O_DSYNC, that write alone. Until then each write may be there or not, whatever became of the others, and
  so may each of its 512-byte sectors; a file may have grown and hold zeros where the data were to be;
- a name (new, removed, or given to another file) is there for certain after the next `fsync` of its folder, whatever
  was done to the file. Until then a folder has the names after some prefix of the changes, each folder for itself;
- a rename is atomic within one folder; from one to another, the file may be in both or in neither.
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
    Cut,
    Make,
    MakeFolder,
    Mark,
    Operation,
    Remove,
    Rename,
    Sync,
    SyncWrite,
    Write,
)

SECTOR = 512
Tree = dict[str, bytes | None]
"""Paths with what they hold; None for a folder."""


@dataclass
class Change:
    """A write or a cut of a file, and whether it is on the disk for certain."""

    what: Write | Cut
    certain: bool = False


@dataclass
class File:
    """What is on the disk for certain, and what was done since."""

    synced: bytes = b""
    changes: list[Change] = field(default_factory=list)
    size: int = 0

    def change(self, what: Write | Cut) -> None:
        """Write or cut."""
        if isinstance(what, Write):
            what = what._replace(offset=self.size) if what.offset is None else what
            self.size = max(self.size, (what.offset or 0) + len(what.data))
        else:
            self.size = what.size
        self.changes.append(Change(what))

    def content(self, outage: Outage) -> bytes:
        """Return what is found after the power came back."""
        found = bytearray(self.synced)
        for change in self.changes:
            outage.change(found, change)
        return bytes(found)

    def sync(self) -> None:
        """All of it is on the disk."""
        self.synced = self.content(Outage())
        self.changes.clear()


@dataclass
class Folder:
    """The names in a folder that are on the disk for certain, and what was done since: steps of names and nodes."""

    synced: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)
    steps: list[dict[str, Node | None]] = field(default_factory=list)

    def step(self, step: dict[str, Node | None]) -> None:
        """Give names, or take them away, all at once."""
        self.steps.append(step)
        take_step(self.names, step)

    def found(self, outage: Outage) -> dict[str, Node]:
        """Return what is found after the power came back."""
        names = dict(self.synced)
        for step in self.steps[: outage.steps(len(self.steps))]:
            take_step(names, step)
        return names

    def sync(self) -> None:
        """All of it is on the disk."""
        self.synced = dict(self.names)
        self.steps.clear()


Node = File | Folder


def take_step(names: dict[str, Node], step: dict[str, Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            del names[name]
        else:
            names[name] = node


class Outage:
    """Decides what of the uncertain is there: here, all of it."""

    def steps(self, count: int) -> int:
        """Return how many of the uncertain changes of names are there."""
        return count

    def change(self, content: bytearray, change: Change) -> None:
        """Do to the content what is there of the change."""
        apply(content, change.what)


class Worst(Outage):
    """Nothing is there but what is certain."""

    def steps(self, count: int) -> int:
        """None."""
        return 0

    def change(self, content: bytearray, change: Change) -> None:
        """Only what is certain."""
        if change.certain:
            apply(content, change.what)


class Chance(Outage):
    """Some of it is there, some sectors of a write, some zeros in place of data."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def steps(self, count: int) -> int:
        """Some."""
        return self._chance.choice((0, count, self._chance.randint(0, count)))

    def change(self, content: bytearray, change: Change) -> None:
        """Whole, not at all, in part, or only its length."""
        lot = "whole" if change.certain else self._chance.choice(("whole", "whole", "lost", "torn", "zeros"))
        if lot == "whole" or (lot != "lost" and isinstance(change.what, Cut)):
            apply(content, change.what)
        elif isinstance(change.what, Write) and lot == "torn":
            for sector in sectors(change.what):
                if self._chance.random() < 0.5:
                    apply(content, sector)
        elif isinstance(change.what, Write) and lot == "zeros":
            end = (change.what.offset or 0) + len(change.what.data)
            content.extend(bytes(max(0, end - len(content))))


def apply(content: bytearray, what: Write | Cut) -> None:
    """Do it."""
    if isinstance(what, Cut):
        del content[what.size :]
        content.extend(bytes(what.size - len(content)))
        return
    begin = what.offset or 0
    content.extend(bytes(max(0, begin - len(content))))
    content[begin : begin + len(what.data)] = what.data


def sectors(write: Write) -> list[Write]:
    """Cut a write where sectors of the disk begin."""
    begin, end = write.offset or 0, (write.offset or 0) + len(write.data)
    cuts = [begin, *range(begin - begin % SECTOR + SECTOR, end, SECTOR), end]
    return [Write(write.path, left, write.data[left - begin : right - begin]) for left, right in pairwise(cuts)]


class Disk:
    """A folder that holds a tree for certain, and what happens in it."""

    def __init__(self, tree: Tree) -> None:
        self._root = Folder()
        for path in sorted(tree):
            content = tree[path]
            folder, name = self._place(path)
            folder.names[name] = Folder() if content is None else File(content, size=len(content))
            folder.sync()

    def apply(self, operation: Operation) -> None:
        """Do the next operation."""
        match operation:
            case Write() | Cut():
                self._file(operation.path).change(operation)
            case Make(path):
                self._make(path, File, known=True)
            case MakeFolder(path):
                self._make(path, Folder, known=False)
            case Rename(path, new):
                self._rename(path, new)
            case Remove(path):
                folder, name = self._place(path)
                folder.step({name: None})
            case Sync(path):
                self._node(path).sync()
            case SyncWrite(path):
                self._file(path).changes[-1].certain = True
            case Mark():
                pass
            case _:
                assert_never(operation)

    def tree(self, outage: Outage) -> Tree:
        """Return what is found after a power loss now."""
        tree: Tree = {}
        ahead: list[tuple[str, Folder]] = [("", self._root)]
        while ahead:
            prefix, folder = ahead.pop()
            for name, node in folder.found(outage).items():
                tree[prefix + name] = node.content(outage) if isinstance(node, File) else None
                if isinstance(node, Folder):
                    ahead.append((f"{prefix}{name}/", node))
        return tree

    def _make(self, path: str, kind: Callable[[], Node], *, known: bool) -> None:
        folder, name = self._place(path)
        if not (known and name in folder.names):
            folder.step({name: kind()})

    def _rename(self, path: str, new: str) -> None:
        (folder, name), (target, new_name) = self._place(path), self._place(new)
        node = folder.names[name]
        if folder is target:
            folder.step({name: None, new_name: node})
        else:
            folder.step({name: None})
            target.step({new_name: node})

    def _place(self, path: str) -> tuple[Folder, str]:
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


def read(folder: Path) -> Tree:
    """Return what a folder holds."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")
    }


def build(tree: Tree, folder: Path) -> None:
    """Make the folder hold this and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
