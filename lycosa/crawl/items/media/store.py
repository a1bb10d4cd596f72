"""The folder that media go to: a file is there under its name when it is complete, and not before.

    <store>/full/0a79...jpg     complete files, put there by a rename
    <store>/.parts/<run>/<n>    what is being written; a run holds the lock of its folder, so that the folder of a
                                killed one is known by being free, and removed by the next run that opens the store

Names come from URLs and pages, so they are hostile: one that is absolute, leaves the store (by `..` or by a symbolic
link), or cannot be the name of a file is refused. Without `sync` files survive the death of the process; with it, also
that of the machine.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lycosa.core.errors import BodyTooLarge, LycosaError, StorageError, StorageFull
from lycosa.infra.disk import NO_ROOM

PARTIAL_FOLDER = ".parts"
NAME_MAX = 255
PATH_MAX = 1024
"""Bytes of one name, and of a whole path within the store."""

OPEN_TRIES = 100
OF_THE_NAME = frozenset({errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EILSEQ, errno.ELOOP})
"""Errors that the name is to blame for, not the disk: another file has the name of a folder, say."""


class FileException(LycosaError):
    """The file cannot be had or kept."""


class PartialFile:
    """A file that is being written: called with each piece of a body. Raises `BodyTooLarge`, `StateError`.

    `restart` forgets what was written: a transfer that begins again calls it first.
    """

    def __init__(self, path: Path, size_max: int) -> None:
        self.path = path
        self.size = 0
        self.error: LycosaError | None = None
        self._size_max = size_max
        self._md5 = hashlib.md5(usedforsecurity=False)
        with _storing(path):
            self._file = path.open("xb", buffering=0)

    def __call__(self, piece: bytes) -> None:
        """Write a piece of the body."""
        self.size += len(piece)
        try:
            if self.size > self._size_max:
                raise BodyTooLarge(f"more than {self._size_max} bytes (media_max_size)")
            with _storing(self.path):
                rest = memoryview(piece)
                while rest:
                    rest = rest[self._file.write(rest) :]
        except LycosaError as error:
            self.error = error  # on its way out others may make something else of it
            raise
        self._md5.update(piece)

    @property
    def checksum(self) -> str:
        """MD5 of what was written, in hexadecimal."""
        return self._md5.hexdigest()

    def restart(self) -> None:
        """Forget what was written."""
        with _storing(self.path):
            self._file.seek(0)
            self._file.truncate()
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def complete(self, *, sync: bool) -> None:
        """Write no more."""
        with _storing(self.path):
            if sync:
                os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Remove what was not kept. Never raises."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class FolderStore:
    """The files of one pipeline in a folder. Raises `StateError` for what the disk is to blame for."""

    def __init__(self, folder: str | os.PathLike[str], *, sync: bool = False) -> None:
        self._root = Path(folder)
        self._sync = sync
        self._run: Path | None = None
        self._lock = -1
        self._numbers = itertools.count()

    def open(self) -> None:
        """Make the folder, and remove what killed runs have left in it."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._root = Path(os.path.realpath(self._root))
            parts = self._root / PARTIAL_FOLDER
            for _ in range(OPEN_TRIES):
                with suppress(FileExistsError):  # `exist_ok` looks again, and another run may have removed it by then
                    parts.mkdir()
                if self._begin(parts / secrets.token_hex(8)):
                    for left in parts.iterdir():
                        _remove_if_free(left)
                    return
        except OSError as error:
            raise StorageError(f"{self._root} cannot be a folder for files: {error.strerror or error}") from error
        raise StorageError(f"{parts} cannot be used: something removes what is made in it")

    def close(self) -> None:
        """Remove what is not complete."""
        if self._run is not None:
            shutil.rmtree(self._run, ignore_errors=True)
            os.close(self._lock)
            with suppress(OSError):  # other runs are in it
                self._run.parent.rmdir()
            self._run = None

    def part(self, size_max: int) -> PartialFile:
        """Return a new file to write into."""
        if self._run is None:
            raise StorageError(f"{self._root} is not open: no file can be kept before `open_spider`")
        return PartialFile(self._run / str(next(self._numbers)), size_max)

    def keep(self, part: PartialFile, path: str) -> None:
        """Give what was written its name, in the place of what had it before. Raises `FileException` for the name."""
        part.complete(sync=self._sync)
        target = self.place(path)
        with _naming(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            part.path.replace(target)
            self._sync_folders(target)

    def link(self, path: str, part: PartialFile, kept: str) -> bool:
        """Make `path` another name of the file `kept`, if that holds what was written; False when it does not."""
        original, target = self.place(kept), self.place(path)
        with _naming(target):
            if not _same(original, part.path):
                return False
            if original == target:
                return True
            target.parent.mkdir(parents=True, exist_ok=True)
            name = part.path.with_name(part.path.name + "-link")
            name.unlink(missing_ok=True)
            os.link(original, name)
            name.replace(target)
            name.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing
            self._sync_folders(target)
        return True

    def size(self, path: str) -> int | None:
        """Return the size of a complete file in bytes; None when there is none."""
        try:
            found = self.place(path).stat()
        except OSError:
            return None
        return found.st_size

    def place(self, path: str | os.PathLike[str]) -> Path:
        """Return where a file of this name is. Raises `FileException` for a name that is refused."""
        name = str(os.fspath(path))
        why = _refusal(name)
        if not why:
            target = self._root / name
            try:
                folder = Path(os.path.realpath(target.parent))
            except (OSError, ValueError) as error:
                raise FileException(f"{name!r:.200} cannot be the name of a file: {error}") from error
            if folder.is_relative_to(self._root):
                return folder / target.name
            why = "a symbolic link leads out of the store"
        raise FileException(f"{name!r:.200} cannot be the name of a file: {why}")

    def _begin(self, run: Path) -> bool:
        """Make the folder of this run; False when another run removed it as a dead one's before it was locked."""
        try:
            run.mkdir()
            lock = os.open(run / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_there(lock, run / "lock"):
            os.close(lock)
            return False
        self._run, self._lock = run, lock
        return True

    def _sync_folders(self, target: Path) -> None:
        folder = target.parent
        while self._sync:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if folder == self._root:
                return
            folder = folder.parent


def _refusal(name: str) -> str:
    """Say why a name is refused, "" when it is not."""
    if not name:
        return "it is empty"
    try:
        sizes = [len(part.encode()) for part in name.split("/")]
    except UnicodeEncodeError:
        return "it holds half a surrogate pair"
    if name.startswith("/"):
        return "it is absolute"
    if any(char < " " or char == "\x7f" for char in name):
        return "it holds a control character"
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "it has a part that is empty, '.' or '..'"
    if parts[0] == PARTIAL_FOLDER:
        return f"{PARTIAL_FOLDER} is for files that are not complete"
    if max(sizes) > NAME_MAX or sum(sizes) + len(sizes) > PATH_MAX:
        return f"it is too long, at most {NAME_MAX} bytes a name and {PATH_MAX} in all"
    return ""


def _same(one: Path, other: Path) -> bool:
    """Whether two files hold the same: a checksum is no proof, others may have made two contents with one MD5."""
    try:
        with one.open("rb") as first, other.open("rb") as second:
            while True:
                piece = first.read(1 << 16)
                if piece != second.read(1 << 16):
                    return False
                if not piece:
                    return True
    except FileNotFoundError:
        return False


def _remove_if_free(run: Path) -> None:
    """Remove the folder of a run that nobody holds the lock of any more."""
    try:
        lock = os.open(run / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        shutil.rmtree(run, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(run, ignore_errors=True)
    except BlockingIOError:
        pass  # another run uses this store
    finally:
        os.close(lock)


def _is_there(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in NO_ROOM:
            raise StorageFull(f"{path}: no space left for files ({why}); make room and run again") from error
        raise StorageError(f"{path}: files cannot be written: {why}") from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    with _storing(path):
        try:
            yield
        except OSError as error:
            if error.errno in OF_THE_NAME:
                raise FileException(f"{path} cannot be the name of a file: {error.strerror}") from error
            raise
