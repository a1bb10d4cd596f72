"""The folder of downloaded media: a file gets its final name only when it is complete.

    <store>/full/0a79...jpg     complete files, renamed to this path
    <store>/.parts/<run>/<n>    files being written. A run locks its folder; the next run removes folders without a
                                lock, which killed runs have left behind

Names come from URLs and pages, so they may be hostile. A name is refused if it is absolute, leads out of the store by
`..` or a symbolic link, or cannot be a file name. Files survive the death of the process; with `sync`, also a power
loss.
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

from lycosa.core.errors import BodyTooLarge, LycosaError, StorageError
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import sync_folder

PARTIAL_FOLDER = ".parts"
NAME_MAX = 255
PATH_MAX = 1024
"""Maximum bytes of one name, and of a whole path within the store."""

OPEN_TRIES = 100
NAME_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EILSEQ, errno.ELOOP})
"""Errors caused by the name, not by the disk: for example, a folder with this name exists."""


class FileException(LycosaError):
    """The file cannot be downloaded or stored."""


class PartialFile:
    """A file being written: call it with each piece of a body.

    Raises `BodyTooLarge` or `StateError`, and keeps the exception in `error`.
    """

    def __init__(self, path: Path, size_max: int) -> None:
        self.path = path
        self.size = 0
        self.error: LycosaError | None = None
        self._size_max = size_max
        self._md5 = hashlib.md5(usedforsecurity=False)
        with _disk_errors(path):
            self._file = path.open("xb", buffering=0)

    def __call__(self, piece: bytes) -> None:
        self.size += len(piece)
        try:
            if self.size > self._size_max:
                raise BodyTooLarge(f"more than {self._size_max} bytes (media_max_size)")
            with _disk_errors(self.path):
                rest = memoryview(piece)
                while rest:
                    rest = rest[self._file.write(rest) :]
        except LycosaError as error:
            self.error = error  # libcurl reports only that writing failed
            raise
        self._md5.update(piece)

    def write(self, piece: bytes) -> int:
        """Do the same as a call. Libraries that write to a file object use this method."""
        self(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""

    @property
    def checksum(self) -> str:
        """The MD5 of the content, in hexadecimal."""
        return self._md5.hexdigest()

    def restart(self) -> None:
        """Empty the file. Called before each transfer."""
        with _disk_errors(self.path):
            self._file.seek(0)
            self._file.truncate()
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def complete(self, *, sync: bool) -> None:
        """Close the file. With `sync`, force it to the disk first."""
        with _disk_errors(self.path):
            if sync:
                os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Close the file, and remove it unless it was saved. Never raises."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class FolderStore:
    """The files of one pipeline in a folder. Raises `StateError` for errors of the disk."""

    def __init__(self, folder: str | os.PathLike[str], *, sync: bool = False) -> None:
        self._root = Path(folder)
        self._sync = sync
        self._run: Path | None = None
        self._lock = -1
        self._numbers = itertools.count()

    def open(self) -> None:
        """Create the folder, and remove the partial files of killed runs."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._root = Path(os.path.realpath(self._root))
            partial = self._root / PARTIAL_FOLDER
            for _ in range(OPEN_TRIES):
                # With exist_ok, mkdir would check the folder again, which another run may have removed meanwhile.
                with suppress(FileExistsError):
                    partial.mkdir()
                if self._create_run_folder(partial / secrets.token_hex(8)):
                    for run in partial.iterdir():
                        _remove_if_unlocked(run)
                    return
        except OSError as error:
            raise StorageError(f"files cannot be stored in {self._root}: {error.strerror or error}") from error
        raise StorageError(f"{partial} cannot be used: another program removes the folders created in it")

    def close(self) -> None:
        if self._run is not None:
            shutil.rmtree(self._run, ignore_errors=True)
            os.close(self._lock)
            with suppress(OSError):  # fails while other runs use it
                self._run.parent.rmdir()
            self._run = None

    def new_file(self, size_max: int) -> PartialFile:
        if self._run is None:
            raise StorageError(f"{self._root} is not open: files can be stored only after `open_spider`")
        return PartialFile(self._run / str(next(self._numbers)), size_max)

    def save(self, file: PartialFile, path: str) -> None:
        """Rename a file to its path, replacing an older file. Raises `FileException` for a name that is refused."""
        file.complete(sync=self._sync)
        target = self.path_of(path)
        with _name_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            file.path.replace(target)
            self._sync_folders(target)

    def link(self, path: str, file: PartialFile, existing: str) -> bool:
        """Make `path` a hard link to the file `existing`. Return False if its content differs from that of `file`."""
        original, target = self.path_of(existing), self.path_of(path)
        with _name_errors(target):
            if not _have_same_content(original, file.path):
                return False
            if original == target:
                return True
            target.parent.mkdir(parents=True, exist_ok=True)
            name = file.path.with_name(file.path.name + "-link")
            name.unlink(missing_ok=True)
            os.link(original, name)
            name.replace(target)
            name.unlink(missing_ok=True)  # rename(2) does nothing if both names are links to the same file
            self._sync_folders(target)
        return True

    def size(self, path: str) -> int | None:
        """Return the size of a complete file in bytes, or None."""
        try:
            return self.path_of(path).stat().st_size
        except OSError:
            return None

    def path_of(self, path: str | os.PathLike[str]) -> Path:
        """Return the absolute path of a file in the store. Raises `FileException` for a name that is refused."""
        name = str(os.fspath(path))
        problem: object = _name_problem(name)
        if not problem:
            target = self._root / name
            try:
                folder = Path(os.path.realpath(target.parent))
                if folder.is_relative_to(self._root):
                    return folder / target.name
                problem = "a symbolic link leads out of the store"
            except (OSError, ValueError) as error:
                problem = error
        raise FileException(f"{name!r:.200} cannot be the name of a file: {problem}")

    def _create_run_folder(self, run: Path) -> bool:
        """Return False if another run removed the folder before it was locked."""
        try:
            run.mkdir()
            lock = os.open(run / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_file_at(lock, run / "lock"):
            os.close(lock)
            return False
        self._run, self._lock = run, lock
        return True

    def _sync_folders(self, target: Path) -> None:
        for folder in target.parents if self._sync else ():
            sync_folder(folder)
            if folder == self._root:
                return


def _name_problem(name: str) -> str:
    parts = name.split("/")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "it contains a lone surrogate"
    if not name:
        return "it is empty"
    if name.startswith("/"):
        return "it is absolute"
    if any(char < " " or char == "\x7f" for char in name):
        return "it contains a control character"
    if any(part in {"", ".", ".."} for part in parts):
        return "it has a part that is empty, '.' or '..'"
    if parts[0] == PARTIAL_FOLDER:
        return f"{PARTIAL_FOLDER} is reserved for partial files"
    if max(sizes) > NAME_MAX or sum(sizes) + len(sizes) - 1 > PATH_MAX:
        return f"it is too long: at most {NAME_MAX} bytes per name and {PATH_MAX} for the whole path"
    return ""


def _have_same_content(one: Path, other: Path) -> bool:
    # Not by checksum: anyone can make two different files with the same MD5.
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


def _remove_if_unlocked(run: Path) -> None:
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


def _is_file_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(path, error, "files cannot be written") from error


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    with _disk_errors(path):
        try:
            yield
        except OSError as error:
            if error.errno in NAME_ERRORS:
                raise FileException(f"{path} cannot be the name of a file: {error.strerror}") from error
            raise
