"""Records with strace what a program does to the files of a folder: each system call with its data, in order.

It uses strace and not a preloaded library, because strace also sees calls that bypass libc, needs no compiler, and
with `-y` names the file of every descriptor. A change that cannot be replayed (for example through a writable shared
mapping) raises `UnrecordedError`. Calls that may write data to the disk but guarantee nothing (`sync_file_range`,
`sync`) are ignored.

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
"""The maximum size of one write in bytes. strace would truncate the data of a longer write, which is an error."""

WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
OPENS = ("open", "openat", "creat")
REMOVES = ("unlink", "unlinkat", "rmdir")
FOLDERS = ("mkdir", "mkdirat")
OTHERS = ("lseek", "truncate", "ftruncate", "fsync", "fdatasync", "mmap")
RENAMES = ("rename", "renameat", "renameat2")
UNSUPPORTED = ("openat2", "fallocate", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat")
UNSUPPORTED += ("copy_file_range", "sendfile", "splice", "io_uring_setup", "io_submit")

CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
HANDLE = re.compile(r"(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


class Write(NamedTuple):
    """Write bytes at an offset, or at the end when the offset is None."""

    path: str
    offset: int | None
    data: bytes


class Truncate(NamedTuple):
    """Set the size of a file."""

    path: str
    size: int


class Create(NamedTuple):
    """Create an empty file if there is none."""

    path: str


class CreateFolder(NamedTuple):
    """Create a folder."""

    path: str


class Rename(NamedTuple):
    """Rename a file atomically, replacing an existing one."""

    path: str
    new: str


class Remove(NamedTuple):
    """Remove a name."""

    path: str


class Sync(NamedTuple):
    """Make all changes of this file, or of the names in this folder, durable."""

    path: str


class SyncWrite(NamedTuple):
    """Make only the last write to this file durable (O_DSYNC)."""

    path: str


class Mark(NamedTuple):
    """A line that the program wrote to the marks file at this point."""

    line: bytes


Operation = Write | Truncate | Create | CreateFolder | Rename | Remove | Sync | SyncWrite | Mark


class UnrecordedError(Exception):
    """The folder was changed in a way that cannot be replayed."""


@cache
def can_trace() -> bool:
    """Whether strace is installed and may trace."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    return subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def record(
    command: Sequence[str], folder: Path, marks: Path, *, kill: str, cwd: Path, env: Mapping[str, str]
) -> tuple[int, list[Operation]]:
    """Run a command to its end. Return its exit code (minus the signal that killed it) and its operations.

    With `kill` "fsync:3" the command is killed as it enters its third call of that name.
    """
    trace = marks.with_suffix(".trace")
    calls = ",".join(f"?{name}" for name in WRITES + OPENS + RENAMES + REMOVES + FOLDERS + OTHERS + UNSUPPORTED)
    strace = ["strace", "-f", "-y", "-xx", "-s", str(DATA_MAX), "-e", f"trace={calls}", "-o", str(trace)]
    if kill:
        call, _, number = kill.partition(":")
        strace += ["-e", f"inject={call}:signal=SIGKILL:when={number}"]
    done = subprocess.run([*strace, *command], cwd=cwd, env=env, check=False)
    with trace.open() as lines:
        operations = list(TraceReader(folder, marks, cwd).operations(complete_calls(lines)))
    return done.returncode, operations


def complete_calls(lines: Iterator[str]) -> Iterator[str]:
    """Yield calls without process ids. A call that another thread interrupted is yielded when it has returned."""
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


def decode(text: str) -> bytes:
    """Decode strace's hexadecimal form."""
    return bytes.fromhex(text.replace("\\x", ""))


def path_of(text: str) -> str:
    """Decode a path in strace's hexadecimal form."""
    return os.fsdecode(decode(text))


@dataclass
class OpenFile:
    """An open file."""

    position: int
    append: bool
    sync: bool


class TraceReader:
    """Converts system calls to operations on the folder."""

    def __init__(self, folder: Path, marks: Path, cwd: Path) -> None:
        self._root = folder
        self._marks = str(marks)
        self._cwd = str(cwd)
        self._open_files: dict[str, OpenFile] = {}

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
            opened = self._open_files.get(arguments.partition("<")[0])
            if opened:
                opened.position = result
        elif name in REMOVES + FOLDERS:
            path = self._inside(self._paths(arguments)[0])
            if path is not None:
                yield CreateFolder(path) if name in FOLDERS else Remove(path)
        else:
            yield from self._by_handle(name, arguments)

    def _by_handle(self, name: str, arguments: str) -> Iterator[Operation]:
        paths = [self._inside(path) for path in (*self._handle_paths(arguments), *self._paths(arguments))]
        path = next((path for path in paths if path is not None), None)
        if name == "io_uring_setup":
            raise UnrecordedError(name)
        if path is None:
            return
        if name in {"fsync", "fdatasync"}:
            yield Sync(path)
        elif name in {"truncate", "ftruncate"}:
            yield Truncate(path, int(arguments.rpartition(", ")[2]))
        elif name in UNSUPPORTED or ("MAP_SHARED" in arguments and "PROT_WRITE" in arguments):
            raise UnrecordedError(f"{name} of {path}")

    def _write(self, name: str, arguments: str, size: int) -> Iterator[Operation]:
        (target,) = self._handle_paths(arguments) or ("",)
        path = self._inside(target)
        if path is None and target != self._marks:
            return
        strings = STRING.findall(arguments)
        if any(truncated for _, truncated in strings):
            raise UnrecordedError(f"{path}: a write of {size} bytes")
        data = b"".join(decode(text) for text, _ in strings)[:size]
        if path is None:
            yield Mark(data)
            return
        opened = self._open_files[arguments.partition("<")[0]]
        yield Write(path, self._offset(name, arguments, opened, size), data)
        if opened.sync:
            yield SyncWrite(path)

    def _offset(self, name: str, arguments: str, opened: OpenFile, size: int) -> int | None:
        if opened.append:
            return None
        if name in {"write", "writev"}:
            opened.position += size
            return opened.position - size
        # pwritev2 has flags after the offset, and with an offset of -1 it is writev.
        if name == "pwritev2":
            raise UnrecordedError(name)
        return int(arguments.rpartition(", ")[2])

    def _open(self, name: str, arguments: str, handle: int) -> Iterator[Operation]:
        path = self._inside(self._paths(arguments)[0])
        if path is None:
            return
        flags = "O_CREAT|O_TRUNC" if name == "creat" else arguments
        append, sync = "O_APPEND" in flags, "O_DSYNC" in flags or "O_SYNC" in flags
        self._open_files[str(handle)] = OpenFile(0, append, sync)
        if "O_TMPFILE" in flags:
            raise UnrecordedError("O_TMPFILE")
        if "O_CREAT" in flags:
            yield Create(path)
        if "O_TRUNC" in flags:
            yield Truncate(path, 0)

    def _rename(self, arguments: str) -> Iterator[Operation]:
        old, new = map(self._inside, self._paths(arguments))
        if (old is None) != (new is None) or "RENAME_EXCHANGE" in arguments:
            raise UnrecordedError(f"rename of {old} to {new}")
        if old is not None and new is not None:
            yield Rename(old, new)

    def _handle_paths(self, arguments: str) -> list[str]:
        found = HANDLE.findall(arguments)
        return [path_of(path) for number, path, deleted in found if number != "AT_FDCWD" and not deleted]

    def _paths(self, arguments: str) -> list[str]:
        """Return the paths in the arguments, each relative to the folder handle before it or to the working folder."""
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
