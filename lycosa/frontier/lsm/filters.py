"""The Bloom filters of a state on the disk: whole layers now and then, and in between only what was added.

    filter.S.N   layer N of segment S, as `core.bloom.Layer.dump` writes it
    filter.S     frames of [length, checksum, payload] behind the layers: what each checkpoint added

A layer says nothing about when it was written, the frames do: the first one names the generation up to which the layers
hold everything, each later one continues the one before. If they do not reach the generation that LMDB has, or anything
is damaged, the filter is rebuilt from the table SEEN; it is never trusted with less than everything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from lycosa.core.bloom import Filter, Layer
from lycosa.core.errors import StateError
from lycosa.infra.durable_files import replace_file, storage_error, sync_file

log = logging.getLogger(__name__)

HEAD = Struct("<IQ")
ADDED_MAX = 1_000_000
"""Fingerprints that lie in frames before the layers are written anew."""

ADDED_SHARE = 32
"""So small a share of what the layers hold may lie in frames, when that is more."""

TOLD_MIN = 100_000
"""URLs from which on it takes so long to rebuild a filter that the user is told."""

FINGERPRINT_BYTES = 9
"""What one takes in a frame."""


class Frame(NamedTuple):
    """What the generations behind `before`, up to `last`, added. The first frame of a file adds nothing."""

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
        """By layer, how many fingerprints it had when it was written."""

    def load(self, generation: int, expected: int) -> Filter | None:
        """Return the filter if it has everything up to this generation."""
        try:
            frames = self._read()
            layers = [Layer.load(self._layer(n).read_bytes()) for n in reversed(range(frames[0].layers))]
        except (OSError, ValueError, IndexError, msgspec.MsgspecError):
            return None
        if not layers or not _reaches(frames, generation):
            return None
        found = Filter(expected, layers=layers)
        self._saved = {n: layer.count for n, layer in enumerate(reversed(layers))}
        for frame in frames:
            found.update(frame.added)
        return found

    def append(self, before: int, last: int, added: list[int]) -> None:
        """Note what these generations added."""
        try:
            with self._path.open("ab") as stream:
                stream.write(_framed(Frame(before, last, 0, added)))
            if self._sync:
                sync_file(self._path)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def is_long(self, known: int) -> bool:
        """Whether the layers, which hold so many, should be written anew."""
        try:
            return self._path.stat().st_size >= max(ADDED_MAX, known // ADDED_SHARE) * FINGERPRINT_BYTES
        except OSError:
            return True

    def save(self, filter_: Filter, generation: int) -> None:
        """Write the layers, which hold everything up to this generation."""
        try:
            layers = filter_.layers[::-1]
            for n, layer in enumerate(layers):
                if self._saved.get(n) != layer.count:
                    replace_file(self._layer(n), layer.dump(), sync=self._sync)
                    self._saved[n] = layer.count
            replace_file(self._path, _framed(Frame(generation, generation, len(layers), [])), sync=self._sync)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def delete(self) -> None:
        """Remove the files."""
        try:
            for path in (self._path, *self._path.parent.glob(self._path.name + ".*")):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(self._path, error) from error
        self._saved.clear()

    def _read(self) -> list[Frame]:
        data = self._path.read_bytes()
        frames, end = _frames(data)
        if end < len(data):  # torn: nothing may be written behind it
            os.truncate(self._path, end)
        return frames

    def _layer(self, n: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{n}")


def load_or_rebuild(
    file: FilterFile, generation: int, expected: int, everything: Callable[[], Iterable[int]], name: str
) -> Filter:
    """Return the saved filter, or one made of `everything`, which is then saved."""
    found = file.load(generation, expected)
    if found is not None:
        return found
    rebuilt = Filter(expected)
    rebuilt.update(everything())
    if len(rebuilt):
        level = logging.WARNING if len(rebuilt) >= TOLD_MIN else logging.INFO
        text = "the Bloom filter of segment %r was missing or damaged: rebuilt from %d URLs"
        log.log(level, text, name, len(rebuilt))
    file.delete()
    try:
        file.save(rebuilt, generation)
    except StateError as error:
        log.info("the Bloom filter could not be saved: %s", error)  # what comes next will not be, either
    return rebuilt


def _framed(frame: Frame) -> bytes:
    payload = msgspec.msgpack.encode(frame)
    return HEAD.pack(len(payload), xxh3_64_intdigest(payload)) + payload


def _frames(data: bytes) -> tuple[list[Frame], int]:
    """Return the frames that are whole, and where they end."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        length, checksum = HEAD.unpack_from(data, at)
        payload = data[at + HEAD.size : at + HEAD.size + length]
        if len(payload) < length or xxh3_64_intdigest(payload) != checksum:
            break
        found.append(_decode(payload))
        at += HEAD.size + length
    return found, at


def append_to_all(folder: Path, before: int, last: int, added: dict[int, list[int]], *, sync: bool) -> None:
    """Note in the file of every segment what these generations added, nothing included."""
    for path in folder.glob("filter.*"):
        segment = path.name.removeprefix("filter.")
        if segment.isascii() and segment.isdigit():
            FilterFile(folder, int(segment), sync=sync).append(before, last, added.get(int(segment), []))


def _reaches(frames: list[Frame], generation: int) -> bool:
    last = frames[0].last
    for frame in frames[1:]:
        if frame.before > last:
            return False
        last = max(last, frame.last)
    return last >= generation
