"""The folder of an index: its files, the lock of its writer, and its current generation.

    DIR/lycosa-index.json   the marker: {format, version, kind, words, engine, generation, ...}. Replaced when a rebuilt
                            index is adopted. A folder with only the lock is an unfinished new index.
    DIR/positions.json      (tantivy) source -> position: replaced after each commit, so that positions are never ahead
                            of the documents
    DIR/writer.lock         locked (flock) while a process has the index open for writing; contains its process id
    DIR/tantivy/            the files of the engine; tantivy.1/ for the second generation, and so on
    DIR/tantivy.erased/     files of the engine that are being removed

After kill -9, the index has the documents of the last commit, and the positions of that commit or of the previous one.
Indexing the difference again is harmless: a document replaces the one with the same key.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from lycosa.core.errors import IndexDamaged, IndexFailure, IndexFull, IndexLocked
from lycosa.infra.disk import is_full
from lycosa.infra.durable_files import replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close
from lycosa.search.core.schema import PAGES, TORRENTS, Schema

FORMAT = "lycosa-index"
VERSION = 1
MARKER, LOCK, POSITIONS = "lycosa-index.json", "writer.lock", "positions.json"
UNFINISHED = {LOCK, f"{MARKER}.new"}
"""The files in the folder of a new index before its marker is written."""
ERASED = ".erased"
"""Suffix of a folder whose files are being removed; a killed process may leave it behind."""
_SYSTEM_MESSAGE = re.compile(r'message: "([^"]+)"')
"""The message in an error of tantivy: IoError { io_error: Os { ..., message: "..." }, ... }."""
_DAMAGE = re.compile(
    r"UnexpectedEof|InvalidData|FileDoesNotExist|data corrupt|incompatible index|malformed|not a database",
    re.IGNORECASE,
)
"""What tantivy and SQLite say about damaged files."""
_DAMAGED_FILE = re.compile(r'(?:filepath: |in file `|FileDoesNotExist\()"(?:[^"]*/)?([^"/]+)"')
NO_SPACE = ("No space left", "Disk quota exceeded", "database or disk is full")
"""How the system and SQLite begin when they say that a device is full."""
REBUILT_BY = {schema.kind: schema.rebuilt_by for schema in (PAGES, TORRENTS)}


class Marker(msgspec.Struct, omit_defaults=True):
    """Marks a folder as an index, and describes it."""

    format: str
    version: int
    kind: str = "pages"
    words: int = 1
    engine: str = "tantivy"
    generation: int = 0
    analysis: tuple[str, ...] = ()
    fields: dict[str, tuple[str, ...]] = {}


SEGMENT_BYTES = 50_000_000
"""Space that the threads of tantivy may need for new segments."""


@contextlib.contextmanager
def failures(path: Path, what: str) -> Iterator[None]:
    """Translate errors of the engine and of the system into `IndexFailure`: `IndexFull` for a full device,
    `IndexDamaged` for damaged files."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        if message := _SYSTEM_MESSAGE.search(reason):
            reason = message[1]
        elif isinstance(error, ValueError) and _DAMAGE.search(reason):
            raise IndexDamaged(f"the index {path} {what}: {_damage(path, reason)}") from error
        # An error in a thread of tantivy does not state its cause, which may be a full disk. The files that did not fit
        # may already have been removed.
        needed = SEGMENT_BYTES if "thread" in reason else 0
        if reason.startswith(NO_SPACE) or is_full(path, needed):
            raise IndexFull(f"the index {path} {what}: no space left on the device") from error
        raise IndexFailure(f"the index {path} {what}: {reason[:1].lower()}{reason[1:]}") from error


def _damage(path: Path, reason: str) -> str:
    """Say which file is damaged, and what to do."""
    file = _DAMAGED_FILE.search(reason)
    said = f"{file[1] if file else 'its file'} is {'missing' if 'FileDoesNotExist' in reason else 'damaged'}"
    marker = marker_of(path)
    command = REBUILT_BY.get(marker.kind) if marker else None
    return f"{said}: run {command} to rebuild it" if command else said


class IndexFolder:
    """The folder `path` of an engine. With `write`, locks it and creates it if needed. Raises `IndexFailure`."""

    def __init__(self, path: Path, engine: str, schema: Schema, *, write: bool) -> None:
        self.path = path
        self._new = new_marker(schema, engine)
        self._lock = _claim(path, self._new) if write else None
        try:
            self.reload()
        except BaseException:
            self.close()
            raise

    @property
    def outdated(self) -> bool:
        return is_outdated(self.marker, self._new)

    @property
    def analysis(self) -> tuple[str, ...]:
        return self.marker.analysis

    @property
    def data(self) -> Path:
        return self.generation(self.marker.generation)

    def generation(self, number: int) -> Path:
        return self.path / (f"{self.marker.engine}.{number}" if number else self.marker.engine)

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes whenever another generation is adopted."""
        status = (self.path / MARKER).stat()
        return status.st_mtime_ns, status.st_ino

    def reload(self) -> None:
        """Read the marker of the current generation; `read_at` is its stamp."""
        with contextlib.suppress(OSError):  # a missing marker is explained below
            self.read_at = self.stamp()  # read first: a generation adopted in between is noticed later
        self.marker = _check(self.path, self._new)

    def adopt(self, number: int) -> None:
        """Make a generation the current one, and remove the others."""
        write_marker(self.path, msgspec.structs.replace(self._new, generation=number))
        self.reload()
        self.remove_others()

    def remove_others(self) -> None:
        folders = self.path.glob(f"{self.marker.engine}*/")
        _remove_folders([folder for folder in folders if folder.name != self.data.name])

    def positions(self) -> dict[str, int]:
        """Return the positions; {} if they cannot be read: indexing all sources again is harmless."""
        try:
            return msgspec.json.decode((self.path / POSITIONS).read_bytes(), type=dict[str, int])
        except (OSError, msgspec.MsgspecError):
            return {}

    def write_positions(self, positions: Mapping[str, int]) -> None:
        replace_file(self.path / POSITIONS, msgspec.json.encode(positions), sync=True)

    def forget_positions(self) -> None:
        (self.path / POSITIONS).unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            unlock_and_close(self._lock)
            self._lock = None


def marker_of(path: Path) -> Marker | None:
    """Return the marker of an index; None if unreadable."""
    try:
        return msgspec.json.decode((path / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.MsgspecError):
        return None


def new_marker(schema: Schema, engine: str) -> Marker:
    """Return the marker of a new index."""
    return Marker(FORMAT, VERSION, schema.kind, schema.words, engine, 0, schema.analysis, dict(schema.fields))


def is_outdated(marker: Marker, wanted: Marker) -> bool:
    """Return whether the texts were analyzed by older or different rules."""
    return marker.words < wanted.words or marker.analysis != wanted.analysis


def check_marker(marker: Marker, wanted: Marker, place: str) -> Marker:
    """Return `marker`. Raises `IndexFailure` if it is newer, or of another kind or engine than `wanted`."""
    if marker.version > VERSION:
        raise IndexFailure(
            f"the index {place} has version {marker.version}, this Lycosa reads {VERSION}: update Lycosa"
        )
    if (marker.kind, wanted.kind) == (TORRENTS.kind, PAGES.kind):
        raise IndexFailure(f"the index {place} holds torrents, not pages: `lycosa site --state DIR` searches it")
    if marker.kind != wanted.kind:
        raise IndexFailure(f"the index {place} holds {marker.kind}, not {wanted.kind}: give another index")
    if marker.engine != wanted.engine:
        raise IndexFailure(f"the index {place} belongs to {marker.engine}, not to {wanted.engine}")
    if marker.words > wanted.words:
        raise IndexFailure(f"the index {place} was built by a newer Lycosa: update Lycosa, or build the index again")
    return marker


def schema_of(marker: Marker | None, schema: Schema, analysis: tuple[str, ...] | None = None) -> Schema:
    """Return the schema of an existing or new index. Without `analysis`, an existing index keeps its own."""
    if analysis is None:
        analysis = marker.analysis if marker else ()
    return replace(schema, analysis=analysis, fields=marker.fields if marker else schema.fields)


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Lock the local folder that belongs to an index on a search server. Raises `IndexLocked`."""
    with failures(path, "cannot be created"):
        path.mkdir(parents=True, exist_ok=True)
    lock = _lock(path)
    try:
        yield
    finally:
        unlock_and_close(lock)


def erase(path: Path, *, keeps_marker: bool = False) -> None:
    """Empty an index of any version, so that it can be built again. Raises `IndexFailure`.

    With `keeps_marker`, the index keeps its engine, its analysis and its fields.
    """
    lock = _claim(path, None)
    try:
        with failures(path, "cannot be erased"):
            (path / POSITIONS).unlink(missing_ok=True)
            _remove_folders([folder for folder in path.iterdir() if folder.is_dir()])
            if not keeps_marker:
                (path / MARKER).unlink(missing_ok=True)
    finally:
        unlock_and_close(lock)


def write_marker(path: Path, marker: Marker) -> None:
    """Replace the marker."""
    replace_file(path / MARKER, msgspec.json.encode(marker), sync=True)


def _remove_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        erased = folder.with_name(folder.name.removesuffix(ERASED) + ERASED)
        if erased.exists():
            shutil.rmtree(erased)
        if folder.exists():
            # Rename first: a kill must not leave an index with missing files.
            folder.rename(erased)
            shutil.rmtree(erased)


def _claim(path: Path, new: Marker | None) -> int:
    """Lock an index for writing.

    With `new`, create an index with this marker in a new or empty folder. Without `new`, accept any index.
    """
    with failures(path, "cannot be created"):
        path.mkdir(parents=True, exist_ok=True)
        is_new = not {entry.name for entry in path.iterdir()} - UNFINISHED
    if not is_new:  # before the lock: create no file in a folder that is not ours
        _check(path, new)
    lock = _lock(path)
    try:
        if new and is_new and not (path / MARKER).exists():  # checked again: another process may have created it
            with failures(path, "cannot be created"):
                write_marker(path, new)
    except BaseException:
        unlock_and_close(lock)
        raise
    return lock


def _check(path: Path, wanted: Marker | None) -> Marker:
    """Return the marker. Raises `IndexFailure` unless it is compatible with `wanted`; None accepts any index."""
    try:
        marker = msgspec.json.decode((path / MARKER).read_bytes(), type=Marker)
    except FileNotFoundError:
        what = "is not a search index" if path.exists() else "does not exist"
        new = ", or a new folder" if wanted else ""
        raise IndexFailure(f"{path} {what}: give --index the folder of an index{new}") from None
    except OSError as error:
        raise IndexFailure(f"{path}/{MARKER} cannot be read: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise IndexFailure(f"{path}/{MARKER} cannot be read ({error}): this is not an index of Lycosa") from error
    if marker.format != FORMAT:
        raise IndexFailure(f"{path} is a {marker.format!r}, not a search index: choose another folder")
    return marker if wanted is None else check_marker(marker, wanted, str(path))


def _lock(path: Path) -> int:
    with failures(path, "cannot be locked"):
        try:
            return lock_file(path / LOCK, 0o666)
        except BlockingIOError:
            owner = f"process {lock_owner(path / LOCK)}"
            raise IndexLocked(f"the index {path} is being written by {owner}: wait until it ends") from None
