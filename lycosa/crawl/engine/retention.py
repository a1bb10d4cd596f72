"""Drops the oldest archived segments of a crawl, after exporting them.

A segment is dropped only after its complete export is on the disk under its final name. Workers of a shared crawl need
separate folders: the worker that drops a segment too late deletes its export. After a kill between export and
drop, the same URLs are exported again, because an archived segment does not change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import SegmentView, Selection
from lycosa.frontier.core.rows import to_line
from lycosa.frontier.core.segments import Retention, expired_segments
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
        exported = await _export(operations, name, export_to) if export_to is not None else None
        if await _drop(operations, views[name]):
            dropped.append(name)
        elif exported is not None:
            exported.unlink(missing_ok=True)
    return dropped


async def _drop(operations: FrontierOperations, view: SegmentView) -> bool:
    """Return False if another worker dropped the segment first: our export may then lack URLs."""
    try:
        forgotten = await operations.drop(view.name)
    except UsageError:
        return False
    await operations.commit()
    return forgotten > 0 or not (view.done or view.dead)


async def _export(operations: FrontierOperations, segment: str, folder: Path) -> Path:
    """Write the URLs of a segment as JSON lines, like `lycosa frontier export`. Return the file."""
    path = folder / f"{segment}{EXPORT_SUFFIX}"
    draft = folder / f".{path.name}.{os.getpid()}"
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
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(folder)
    return path
