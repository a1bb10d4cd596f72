"""The Bloom filters of a state on disk: layers, which are rarely rewritten, and frames with later fingerprints.

    filter.S.N   layer N of segment S, as written by `core.bloom.Layer.dump`
    filter.S     frames of [length, checksum, payload], one for each checkpoint after the layers were written

The first frame records the log generation (see `memtable`) up to which the layers are complete. Each later frame
continues the previous one. If the frames end before the generation that LMDB has, or a file is damaged, the filter is
rebuilt from the table of fingerprints: an incomplete filter is never used. The files of archived segments are deleted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from lycosa.core.bloom import Filter, Layer
from lycosa.core.errors import StateError
from lycosa.infra.durable_files import replace_file, storage_errors, sync_file
from lycosa.infra.frames import HEAD, encode_frame, frame_at

log = logging.getLogger(__name__)

ADDED_MAX = 200_000
"""Once this many fingerprints are in frames, the layers are rewritten with them."""

ADDED_SHARE = 32
"""With large layers, frames may have more fingerprints than ADDED_MAX: up to 1/ADDED_SHARE of those in the filter."""

WARN_MIN = 100_000
"""Rebuilding the filter of this many URLs takes long, and logs a warning."""

FINGERPRINT_BYTES = 9
"""The size of a fingerprint in a frame."""


class Frame(NamedTuple):
    """The fingerprints added by the generations after `before`, up to and including `last`.

    The first frame of a file has no fingerprints; its `layers` is the number of layer files.
    """

    before: int
    last: int
    layers: int
    added: list[int]


_decode = msgspec.msgpack.Decoder(Frame).decode


class FilterFile:
    """The files of one segment's filter. Raises `StorageFull` and `StorageError`."""

    def __init__(self, folder: Path, segment: int, *, sync: bool) -> None:
        self._path = folder / f"filter.{segment}"
        self._sync = sync
        self._saved: dict[int, int] = {}
        """The number of fingerprints in each layer when it was written."""

    def load(self, generation: int, expected: int) -> Filter | None:
        """The filter, if it is complete up to this generation."""
        try:
            frames = self._read()
            layers = [Layer.load(self._layer(n).read_bytes()) for n in reversed(range(frames[0].layers))]
        except (OSError, ValueError, IndexError, msgspec.MsgspecError):
            return None
        if not layers or not _is_complete(frames, generation):
            return None
        found = Filter(expected, layers=layers)
        self._saved = {n: layer.count for n, layer in enumerate(reversed(layers))}
        for frame in frames:
            found.update(frame.added)
        return found

    def append(self, before: int, last: int, added: list[int]) -> None:
        with storage_errors(self._path):
            with self._path.open("ab") as stream:
                stream.write(_encode(Frame(before, last, 0, added)))
            if self._sync:
                sync_file(self._path)

    def is_long(self, known: int) -> bool:
        """Whether the layers should be rewritten. The filter has `known` fingerprints."""
        try:
            return self._path.stat().st_size >= max(ADDED_MAX, known // ADDED_SHARE) * FINGERPRINT_BYTES
        except OSError:
            return True

    def save(self, filter_: Filter, generation: int) -> None:
        """Write the changed layers. The filter has all fingerprints up to this generation."""
        with storage_errors(self._path):
            layers = filter_.layers[::-1]
            for n, layer in enumerate(layers):
                if self._saved.get(n) != layer.count:
                    replace_file(self._layer(n), layer.dump(), sync=self._sync)
                    self._saved[n] = layer.count
            replace_file(self._path, _encode(Frame(generation, generation, len(layers), [])), sync=self._sync)

    def exists(self) -> bool:
        return self._path.exists()

    def delete(self) -> None:
        with storage_errors(self._path):
            for path in (self._path, *self._path.parent.glob(self._path.name + ".*")):
                path.unlink(missing_ok=True)
        self._saved.clear()

    def _read(self) -> list[Frame]:
        data = self._path.read_bytes()
        frames, at = [], 0
        while (payload := frame_at(data, at)) is not None:
            frames.append(_decode(payload))
            at += HEAD.size + len(payload)
        if at < len(data):  # a torn frame: a frame appended after it would never be read
            os.truncate(self._path, at)
        return frames

    def _layer(self, n: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{n}")


def load_or_rebuild(
    file: FilterFile, generation: int, expected: int, fingerprints: Callable[[], Iterable[int]], name: str
) -> Filter:
    """Load the filter. If there is none, rebuild it from all `fingerprints`, and save it."""
    found = file.load(generation, expected)
    if found is not None:
        return found
    rebuilt = Filter(expected)
    rebuilt.update(fingerprints())
    if len(rebuilt):
        level = logging.WARNING if len(rebuilt) >= WARN_MIN else logging.INFO
        text = "the Bloom filter of segment %r was missing or damaged: rebuilt from %d URLs"
        log.log(level, text, name, len(rebuilt))
    file.delete()
    try:
        file.save(rebuilt, generation)
    except StateError as error:
        # Not fatal: the filter in memory is complete. The next commit will report the disk error.
        log.info("the Bloom filter could not be saved: %s", error)
    return rebuilt


def _encode(frame: Frame) -> bytes:
    return encode_frame(msgspec.msgpack.encode(frame))


def append_to_all(folder: Path, before: int, last: int, added: dict[int, list[int]], *, sync: bool) -> None:
    """Append a frame, perhaps an empty one, to every filter: each must reach generation `last`."""
    for path in folder.glob("filter.*"):
        segment = path.name.removeprefix("filter.")
        if segment.isascii() and segment.isdigit():
            FilterFile(folder, int(segment), sync=sync).append(before, last, added.get(int(segment), []))


def _is_complete(frames: list[Frame], generation: int) -> bool:
    last = frames[0].last
    for frame in frames[1:]:
        if frame.before > last:
            return False
        last = max(last, frame.last)
    return last >= generation
