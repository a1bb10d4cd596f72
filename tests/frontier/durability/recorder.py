"""What a program does to the files of a folder, recorded below it: each system call with its data, in order, by strace.

strace and not a preloaded library: it sees what never passes through libc, it needs no compiler, and with `-y` it names
the file behind every descriptor. What changes a file in a way that cannot be replayed (a writable shared mapping, say)
raises `Unrecorded`. What might bring data to the disk but promises nothing (`sync_file_range`, `sync`) is left out.

`record` returns operations on paths relative to the folder, and a `Mark` for each line that was written to `marks`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA_MAX = 64 << 20
"""Bytes of one write; strace would shorten a longer one, which is then refused."""

WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
OPENS = ("open", "openat", "creat")
REMOVES = ("unlink", "unlinkat", "rmdir")
FOLDERS = ("mkdir", "mkdirat")
OTHERS = ("lseek", "truncate", "ftruncate", "fsync", "fdatasync", "mmap")
RENAMES = ("rename", "renameat", "renameat2")
REFUSED = ("openat2", "fallocate", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat")
REFUSED += ("copy_file_range", "sendfile", "splice", "io_uring_setup", "io_submit")

CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
HANDLE = re.compile(r"(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


class Write(NamedTuple):
    """Bytes at an offset, or at the end when that is None."""

    path: str
    offset: int | None
    data: bytes


class Cut(NamedTuple):
    """The file has this size now."""

    path: str
    size: int


class Make(NamedTuple):
    """A file is there, empty when it was not."""

    path: str


class MakeFolder(NamedTuple):
    """A new folder."""

    path: str


class Rename(NamedTuple):
    """Another name, atomically in place of what had it."""

    path: str
    new: str


class Remove(NamedTuple):
    """The name is gone."""

    path: str


class Sync(NamedTuple):
    """All that was done to this file, or to the names in this folder, is on the disk."""

    path: str


class SyncWrite(NamedTuple):
    """The last write to this file is on the disk (O_DSYNC), whatever came before it."""

    path: str


class Mark(NamedTuple):
    """What the program told us at this point."""

    line: bytes


Operation = Write | Cut | Make | MakeFolder | Rename | Remove | Sync | SyncWrite | Mark


class Unrecorded(Exception):
    """A change to the folder that cannot be replayed."""


@cache
def can_trace() -> bool:
    """Whether strace is here and allowed."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    return subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def record(
    command: Sequence[str], folder: Path, marks: Path, *, kill: str, cwd: Path, env: Mapping[str, str]
) -> tuple[int, list[Operation]]:
    """Run a command to its end. Return its exit code (minus the signal that killed it) and what it did.

    `kill` is "" or "fsync:3": then it is killed as it enters its third call of that name.
    """
    trace = marks.with_suffix(".trace")
    calls = ",".join(f"?{name}" for name in WRITES + OPENS + RENAMES + REMOVES + FOLDERS + OTHERS + REFUSED)
    strace = ["strace", "-f", "-y", "-xx", "-s", str(DATA_MAX), "-e", f"trace={calls}", "-o", str(trace)]
    if kill:
        call, _, number = kill.partition(":")
        strace += ["-e", f"inject={call}:signal=SIGKILL:when={number}"]
    done = subprocess.run([*strace, *command], cwd=cwd, env=env, check=False)
    with trace.open() as lines:
        operations = list(Reader(folder, marks, cwd).operations(whole_calls(lines)))
    return done.returncode, operations


def whole_calls(lines: Iterator[str]) -> Iterator[str]:
    """Yield calls without process ids. One that another thread interrupted counts when it has returned."""
    unfinished: dict[str, str] = {}
    for line in lines:
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            unfinished[process] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.startswith("<..."):
            rest = unfinished.pop(process) + rest.partition("resumed>")[2]
        yield rest


def plain(text: str) -> bytes:
    """Undo the hexadecimal form."""
    return bytes.fromhex(text.replace("\\x", ""))


def path_of(text: str) -> str:
    """Undo the hexadecimal form of a path."""
    return os.fsdecode(plain(text))


@dataclass
class Opened:
    """An open file."""

    position: int
    append: bool
    sync: bool


class Reader:
    """Turns calls into operations on the folder."""

    def __init__(self, folder: Path, marks: Path, cwd: Path) -> None:
        self._root = folder
        self._marks = str(marks)
        self._cwd = str(cwd)
        self._opened: dict[str, Opened] = {}

    def operations(self, calls: Iterator[str]) -> Iterator[Operation]:
        """Yield the operations of these calls."""
        for call in calls:
            found = CALL.match(call)
            if found is None or found[3] == "-1":
                continue
            name, arguments, result = found.groups()
            yield from self._operations(name, arguments, int(result, 0))

    def _operations(self, name: str, arguments: str, result: int) -> Iterator[Operation]:
        if name in WRITES:
            yield from self._write(name, arguments, result)
        elif name in OPENS:
            yield from self._open(name, arguments, result)
        elif name in RENAMES:
            yield from self._rename(arguments)
        elif name == "lseek":
            opened = self._opened.get(arguments.partition("<")[0])
            if opened:
                opened.position = result
        elif name in REMOVES + FOLDERS:
            path = self._inside(self._named(arguments)[0])
            if path is not None:
                yield MakeFolder(path) if name in FOLDERS else Remove(path)
        else:
            yield from self._by_handle(name, arguments)

    def _by_handle(self, name: str, arguments: str) -> Iterator[Operation]:
        paths = [self._inside(path) for path in (*self._handles(arguments), *self._named(arguments))]
        path = next((path for path in paths if path is not None), None)
        if name == "io_uring_setup":
            raise Unrecorded(name)
        if path is None:
            return
        if name in {"fsync", "fdatasync"}:
            yield Sync(path)
        elif name in {"truncate", "ftruncate"}:
            yield Cut(path, int(arguments.rpartition(", ")[2]))
        elif name in REFUSED or ("MAP_SHARED" in arguments and "PROT_WRITE" in arguments):
            raise Unrecorded(f"{name} of {path}")

    def _write(self, name: str, arguments: str, size: int) -> Iterator[Operation]:
        (target,) = self._handles(arguments) or ("",)
        path = self._inside(target)
        if path is None and target != self._marks:
            return
        strings = STRING.findall(arguments)
        if any(shortened for _, shortened in strings):
            raise Unrecorded(f"{path}: a write of {size} bytes")
        data = b"".join(plain(text) for text, _ in strings)[:size]
        if path is None:
            yield Mark(data)
            return
        opened = self._opened[arguments.partition("<")[0]]
        yield Write(path, self._offset(name, arguments, opened, size), data)
        if opened.sync:
            yield SyncWrite(path)

    def _offset(self, name: str, arguments: str, opened: Opened, size: int) -> int | None:
        if opened.append:
            return None
        if name in {"write", "writev"}:
            opened.position += size
            return opened.position - size
        # pwritev2 has flags behind the offset, and with an offset of -1 it is writev.
        if name == "pwritev2":
            raise Unrecorded(name)
        return int(arguments.rpartition(", ")[2])

    def _open(self, name: str, arguments: str, handle: int) -> Iterator[Operation]:
        path = self._inside(self._named(arguments)[0])
        if path is None:
            return
        flags = "O_CREAT|O_TRUNC" if name == "creat" else arguments
        append, sync = "O_APPEND" in flags, "O_DSYNC" in flags or "O_SYNC" in flags
        self._opened[str(handle)] = Opened(0, append, sync)
        if "O_TMPFILE" in flags:
            raise Unrecorded("O_TMPFILE")
        if "O_CREAT" in flags:
            yield Make(path)
        if "O_TRUNC" in flags:
            yield Cut(path, 0)

    def _rename(self, arguments: str) -> Iterator[Operation]:
        old, new = map(self._inside, self._named(arguments))
        if (old is None) != (new is None) or "RENAME_EXCHANGE" in arguments:
            raise Unrecorded(f"rename of {old} to {new}")
        if old is not None and new is not None:
            yield Rename(old, new)

    def _handles(self, arguments: str) -> list[str]:
        found = HANDLE.findall(arguments)
        return [path_of(path) for number, path, deleted in found if number != "AT_FDCWD" and not deleted]

    def _named(self, arguments: str) -> list[str]:
        """Return the paths that are given as names, each relative to the folder before it or to where we are."""
        paths, base = [], self._cwd
        for part in arguments.split(", "):
            handle, string = HANDLE.fullmatch(part), STRING.fullmatch(part)
            if handle:
                base = path_of(handle[2])
            elif string:
                paths.append(os.path.normpath(Path(base, path_of(string[1]))))
        return paths

    def _inside(self, path: str) -> str | None:
        return Path(path).relative_to(self._root).as_posix() if Path(path).is_relative_to(self._root) else None
