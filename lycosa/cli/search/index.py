"""`lycosa index`, and its commands `build`, `stats` and `sphinx-config`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import one_line
from lycosa.cli.search.folders import chosen_index, index_option
from lycosa.cli.search.torrents import IndexOptions, index_torrents
from lycosa.cli.task_progress import task_progress
from lycosa.core.errors import IndexFailure, UsageError
from lycosa.core.units import format_count, format_duration, format_size
from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.documents import PARTS
from lycosa.search.ports import DocumentIndex

POLL_EVERY_S = 0.1
ENGINES = ("tantivy", "fts5")
SIZE = re.compile(r"[1-9]\d{0,5}[KMG]")
DESCRIBED = {
    "title": "title",
    "text": "text, such as body,maker.name",
    "headings": "headings",
    "url": "URL",
    "lang": "language",
    "date": "date",
    "key": "key; an item replaces the earlier item with the same key",
}
F = TypeVar("F", bound=Callable[..., Any])


def engine_option(command: F) -> F:
    """Add `--engine NAME`; None if it is not given."""
    return click.option("--engine", type=click.Choice(ENGINES), help="Engine of a new index.  [default: tantivy]")(
        command
    )


def analysis_option(command: F) -> F:
    """Add `--analysis NAMES`, as a tuple; None if it is not given."""
    return click.option(
        "--analysis",
        metavar="NAMES",
        callback=lambda _ctx, _param, value: None if value is None else _analysis(value),
        help="Text analysis of the index. simplified: index traditional Chinese as simplified; stem-english (or "
        "another language): reduce words to their stems; names-only: index the names of torrents, not of their files. "
        "Separate several with commas.",
    )(command)


def _analysis(written: str) -> tuple[str, ...]:
    names = _names(written)
    try:
        analysis_of(names)
    except IndexFailure as error:
        raise UsageError(f"--analysis {written}: {error}") from None
    return names


def field_options(command: F) -> F:
    """Add options that name the item fields for each part of a document."""
    for part in reversed(PARTS):
        option = click.option(
            f"--{part}",
            default="",
            metavar="FIELDS",
            callback=lambda _ctx, _param, value: _names(value),
            help=f"Item fields that hold the {DESCRIBED[part]}.",
        )
        command = option(command)
    return command


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@click.group("index", invoke_without_command=True)
@records_options
@click.option(
    "--index",
    "index_dir",
    metavar="DIR",
    help="Folder of the index, or sphinx://HOST:PORT/NAME.  [default: index in the --state folder]",
)
@click.option("--follow", is_flag=True, help="Keep indexing what a crawl stores, until Ctrl-C.")
@click.option(
    "--rebuild", is_flag=True, help="Build a new index; searches use the old one until the new one is complete."
)
@engine_option
@analysis_option
@click.pass_context
def command(
    ctx: click.Context,
    location: Any,
    index_dir: str | None,
    engine: str | None,
    analysis: tuple[str, ...] | None,
    *,
    follow: bool,
    rebuild: bool,
) -> int | None:
    """Index the torrents of a DHT crawl, or build and inspect indexes of items.

    \b
    lycosa index --state torrents --follow
    """
    if ctx.invoked_subcommand is not None:
        return None
    if location.state is None and location.store is None:
        click.echo(ctx.get_help())
        return None
    return index_torrents(location, IndexOptions(index_dir, engine, analysis), follow=follow, rebuild=rebuild)


@command.command("build", short_help="Add items to an index, or create an empty one.")
@click.argument("files", nargs=-1, metavar="[ITEMS.jsonl...]")
@index_option
@click.option("--fresh", is_flag=True, help="Empty the index first.")
@engine_option
@analysis_option
@field_options
def build(
    files: Sequence[str],
    index_dir: str | None,
    fresh: bool,
    engine: str | None,
    analysis: tuple[str, ...] | None,
    **fields: tuple[str, ...],
) -> None:
    """Add the items in these files to an index, and create the index if it does not exist.

    Each file is read from where the last build stopped. An item replaces an earlier item with the same key (its
    fingerprint, or its URL). For items that are not pages, the command guesses which fields hold the title, the text
    and so on, unless options name them. The index stores these options and --analysis. If no files are
    given, but such options, --analysis or --engine, an empty index is created, for a crawl with --index.

    \b
    lycosa index build --index index items.jsonl
    lycosa index build --index lamps lamps.jsonl --title name --text maker.name,description
    """
    from lycosa.app.search import declare_index, erase_index, open_index

    declared = {part: paths for part, paths in fields.items() if paths}
    if not files and not declared and analysis is None and engine is None:
        raise UsageError("which items? Give files of items, or the fields or analysis of a new index")
    place = chosen_index(index_dir)
    paths = [Path(file) for file in files]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if fresh:
        erase_index(place)
    if analysis is not None or declared:
        declare_index(place, analysis or (), declared, engine)
    with closing(open_index(place, write=True, engine=engine)) as index:
        for path in paths:
            _build(index, path)
        progress.write([f"{place}: {format_count(index.count(), 'document')}"])


@command.command("stats", short_help="Show the size of an index, and how much of each source is indexed.")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def stats(index_dir: str | None, as_json: bool) -> None:
    """Show an index's number of documents, its size, and how many bytes of each source file are indexed."""
    from lycosa.app.search import index_stats

    documents, size_bytes, positions = index_stats(chosen_index(index_dir))
    if as_json:
        print(json.dumps({"documents": documents, "size_bytes": size_bytes, "positions": positions}, indent=2))
        return
    print(f"documents  {documents:,}\nsize       {format_size(size_bytes)}")
    for source, position in positions.items():
        print(f"source     {one_line(source)}, read to {position:,} bytes")


@command.command("sphinx-config", short_help="Print a configuration for Sphinx or Manticore.")
@click.argument("address", metavar="sphinx://HOST:PORT/NAME")
@click.option(
    "--folder", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder for the files of searchd."
)
@click.option("--pages", is_flag=True, help="Configure an index of pages, not of torrents.")
@click.option(
    "--memory",
    default="256M",
    show_default=True,
    metavar="SIZE",
    help="Memory for new documents before they are written to the disk.",
)
def sphinx_config(address: str, folder: Path, memory: str, *, pages: bool) -> None:
    """Print the configuration with which Sphinx serves an index. For Manticore, write manticore:// instead of sphinx://.

    \b
    lycosa index sphinx-config sphinx://127.0.0.1:9306/torrents --folder searchd > searchd.conf
    searchd --config searchd.conf
    lycosa index --state torrents --index sphinx://127.0.0.1:9306/torrents
    """
    from lycosa.app.search import sphinx_configuration
    from lycosa.search.core.sphinx_address import sphinx_address

    place = sphinx_address(address)
    if place is None:
        raise UsageError(f"{address}: write sphinx://HOST:PORT/NAME")
    if not SIZE.fullmatch(memory):
        raise UsageError(f"--memory {memory}: write a size such as 256M or 2G")
    folder.mkdir(parents=True, exist_ok=True)
    manticore = address.startswith("manticore:")
    print(sphinx_configuration(place, folder.absolute(), memory, pages=pages, manticore=manticore), end="")


def _build(index: DocumentIndex, path: Path) -> None:
    from lycosa.app.search import file_indexer

    indexer = file_indexer(index, path)
    size_bytes = path.stat().st_size
    indexer.start()
    start = indexer.position
    started = time.monotonic()
    drain = False
    try:
        indexer.advance(size_bytes)
        with task_progress("item", "indexed", size_bytes - start) as show:
            while indexer.is_reading:
                show(indexer.documents, indexer.position - start)
                time.sleep(POLL_EVERY_S)
        drain = True
    finally:
        indexer.close(drain=drain)
    took_s, left_bytes = time.monotonic() - started, size_bytes - indexer.position
    progress.write(_summary(path, indexer.documents, indexer.broken, took_s, left_bytes))


def _summary(path: Path, documents: int, broken: int, took_s: float, left_bytes: int) -> list[str]:
    rate = f" in {format_duration(took_s)} ({documents / took_s:,.0f} items/s)"
    lines = [f"{path}: {format_count(documents, 'item')} indexed{rate}" if documents else f"{path}: nothing new"]
    if broken:
        lines.append(f"{path}: {format_count(broken, 'line')} skipped: not a JSON object")
    if left_bytes:
        lines.append(f"{path}: the last line is incomplete; the next build indexes it")
    return lines
