"""`lycosa index build | stats`: fill an index from files of items, and look at it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.search.folders import index_folder, index_option
from lycosa.core.errors import UsageError
from lycosa.core.units import format_duration, format_size
from lycosa.search.ports import Index

LOOK_EVERY_S = 0.1
PLAIN_EVERY_S = 5.0

Show = Callable[[int, int], None]


@click.group("index", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Build and look at a search index."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("build")
@click.argument("files", nargs=-1, required=True, metavar="ITEMS.jsonl...")
@index_option
@click.option("--fresh", is_flag=True, help="Empty the index first.")
def build(files: Sequence[str], index_dir: str | None, fresh: bool) -> None:
    """Add the items in these files to an index, which is made if need be.

    Goes on where it left off in each file; an item with the key of an earlier one (its fingerprint, or its URL)
    replaces it.

    \b
    lycosa index build --index index items.jsonl
    """
    from lycosa.app.search import erase_index, open_index

    folder = index_folder(index_dir)
    paths = [Path(file) for file in files]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} is no file" if path.exists() else f"{path} does not exist")
    if fresh:
        erase_index(folder)
    index = open_index(folder, write=True)
    try:
        for path in paths:
            _build(index, path)
        progress.write([f"{folder}: {progress.count(index.count(), 'document')}"])
    finally:
        index.close()


@command.command("stats")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def stats(index_dir: str | None, as_json: bool) -> None:
    """Show how many documents an index has, its size, and how far each source was read."""
    from lycosa.app.search import open_index

    folder = index_folder(index_dir)
    index = open_index(folder)
    try:
        documents, positions = index.count(), index.positions()
    finally:
        index.close()
    size_bytes = sum(_size(file) for file in folder.rglob("*"))
    if as_json:
        print(json.dumps({"documents": documents, "size_bytes": size_bytes, "positions": positions}, indent=2))
        return
    print(f"documents  {documents:,}\nsize       {format_size(size_bytes)}")
    for source, position in positions.items():
        print(f"source     {one_line(source)}, read to {position:,} bytes")


def _build(index: Index, path: Path) -> None:
    from lycosa.app.search import file_indexer

    indexer = file_indexer(index, path)
    size_bytes = path.stat().st_size
    indexer.start()
    before = indexer.position
    started = time.monotonic()
    drain = False
    try:
        indexer.advance(size_bytes)
        with _shown(path, size_bytes - before) as show:
            while indexer.is_reading:
                show(indexer.documents, indexer.position - before)
                time.sleep(LOOK_EVERY_S)
        drain = True
    finally:
        indexer.close(drain=drain)
    took_s, left_bytes = time.monotonic() - started, size_bytes - indexer.position
    progress.write(_summary(path, indexer.documents, indexer.broken, took_s, left_bytes))


def _summary(path: Path, documents: int, broken: int, took_s: float, left_bytes: int) -> list[str]:
    rate = f" in {format_duration(took_s)} ({documents / took_s:,.0f} items/s)" if documents else ""
    lines = [f"{path}: {progress.count(documents, 'item')} indexed{rate}" if rate else f"{path}: nothing new"]
    if broken:
        lines.append(f"{path}: {progress.count(broken, 'line')} passed over: not a JSON object")
    if left_bytes:
        lines.append(f"{path}: the last line is not complete yet: left for the next time")
    return lines


@contextmanager
def _shown(path: Path, size_bytes: int) -> Iterator[Show]:
    """Yield what to call with the items and bytes done: a bar on a terminal, elsewhere a line every few seconds."""
    if not sys.stderr.isatty():
        due = time.monotonic() + PLAIN_EVERY_S

        def show(items: int, done_bytes: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due += PLAIN_EVERY_S
                progress.write([f"{path}: {progress.count(items, 'item')}, {done_bytes * 100 // size_bytes} %"])

        yield show
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=size_bytes)
        yield lambda items, done_bytes: bar.update(
            task, completed=done_bytes, description=f"{path.name}: {items:,} items"
        )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
