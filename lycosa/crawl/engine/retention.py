"""Drops the oldest archived segments of a crawl, after exporting them.

A segment is dropped only after its complete export is on the disk under its final name. After a kill between export and
drop, the same URLs are exported again, because an archived segment does not change. Workers of a shared crawl may use
the same folder: an export counts only if no worker has begun to drop the segment by the time it is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Selection
from lycosa.frontier.core.rows import to_line
from lycosa.frontier.core.segments import Retention, expired_segments, find_segment
from lycosa.frontier.ports import FrontierOperations
from lycosa.infra.durable_files import make_folder, storage_errors, sync_folder

SLICE = 1000

EXPORT_SUFFIX = ".jsonl"


async def drop_expired(
    operations: FrontierOperations, retention: Retention, now: float, export_to: Path | None = None
) -> Sequence[str]:
    """Drop the archived segments that need not be kept at `now` (unix seconds), the oldest first. Return their names.

    With `export_to`, the URLs of each segment are first written to a file in this folder. Raises `StorageError`.
    """
    views = {view.name: view for view in await operations.segments()}
    dropped = []
    for name in expired_segments(views.values(), retention, now):
        try:
            if export_to is not None:
                await _export(operations, name, export_to)
            forgotten = await operations.drop(name)
        except UsageError:
            continue  # another worker drops it
        await operations.commit()
        if forgotten or not (views[name].done or views[name].dead):
            dropped.append(name)
    return dropped


async def _export(operations: FrontierOperations, segment: str, folder: Path) -> None:
    """Write the URLs of a segment as JSON lines, like `lycosa frontier export`.

    Raises `UsageError` and writes nothing if the segment was dropped meanwhile.
    """
    path = folder / f"{segment}{EXPORT_SUFFIX}"
    draft = folder / f".{path.name}.{token_hex(8)}"
    with storage_errors(path):
        make_folder(folder)
        try:
            with draft.open("wb") as stream:
                cursor: str | None = ""
                while cursor is not None:
                    rows, cursor = await operations.rows(Selection(segment=segment), cursor, SLICE)
                    stream.write(b"".join([to_line(row) + b"\n" for row in rows]))
                stream.flush()
                os.fsync(stream.fileno())
            find_segment(segment, await operations.segments())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(folder)
