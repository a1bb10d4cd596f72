"""Outputs that tests open, write and read back, and the errors of outputs."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lycosa.core.errors import StorageError
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.ports import Sink
from lycosa.storage.sinks.codecs import codec_of
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.formats import Csv
from lycosa.storage.sinks.json_array import JsonArraySink
from lycosa.storage.sinks.sqlite import SqliteSink
from tests.storage.output_files import READERS

KEY = ItemKey("http://a/", 1)

numbers = count()


class Harness(NamedTuple):
    """One output, which can be opened several times, as by a crawl that is resumed."""

    make: Callable[[], Sink]
    read: Callable[[], list[Any]]


FILES: dict[str, Callable[[Path], Sink]] = {
    "jsonl": FileSink,
    "jsonl.gz": lambda path: FileSink(path, codec=codec_of(".gz")),
    "jsonl.zst": lambda path: FileSink(path, codec=codec_of(".zst")),
    "csv": lambda path: FileSink(path, Csv(path.name)),
    "csv.gz": lambda path: FileSink(path, Csv(path.name), codec_of(".gz")),
    "csv.zst": lambda path: FileSink(path, Csv(path.name), codec_of(".zst")),
    "json": lambda path: JsonArraySink(path, path.with_suffix(".spool")),
    "json.gz": lambda path: JsonArraySink(path, path.with_suffix(".spool"), codec_of(".gz")),
    "json.zst": lambda path: JsonArraySink(path, path.with_suffix(".spool"), codec_of(".zst")),
    "sqlite": lambda path: SqliteSink(path, "crawl"),
}


def file_harness(kind: str, folder: Path) -> Harness:
    path = folder / f"items.{kind}"
    return Harness(lambda: FILES[kind](path), lambda: READERS[kind](path))


def put(sink: Any, item: Any) -> None:
    sink.write(sink.prepare(item), KEY._replace(number=next(numbers)))


async def run(sink: Sink, position: int | None, *items: Any, flush: bool = True) -> int:
    """One run of a crawl: open, write, flush, close. Return the position to commit."""
    position_after = await sink.open(position)
    for item in items:
        put(sink, item)
    position_after = await sink.flush() if flush else position_after
    await sink.close()
    return position_after


def open_error(sink: Sink, position: int | None = None) -> str:
    """Return the error of opening the sink. `check` must raise the same one, unless it is about the position."""
    if position is None:
        with pytest.raises(StorageError) as caught:
            asyncio.run(sink.check())
        assert str(caught.value) == run_error(sink, None)
    return run_error(sink, position)


def run_error(sink: Sink, position: int | None) -> str:
    with pytest.raises(StorageError) as caught:
        asyncio.run(run(sink, position))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def file_size_limit(size_bytes: int):
    """Emulate a full disk: a system call writes what fits, then fails."""
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)


COMPRESSED = [kind for kind in FILES if kind.endswith((".gz", ".zst")) and not kind.startswith("json.")]
