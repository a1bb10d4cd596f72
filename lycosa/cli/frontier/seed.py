"""`lycosa seed [URL...] [--file FILE|-] --frontier redis://...`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import click

from lycosa.app.frontier.operations import OpenState
from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.changes import Importer, import_lines, open_input, print_import_result
from lycosa.cli.frontier.rows import CrawlLocation, crawl_options, json_option, run
from lycosa.core.errors import BadUrl, UsageError
from lycosa.frontier.core.segments import validate_name


@click.command("seed")
@click.argument("urls", nargs=-1, metavar="[URL...]")
@click.option("--file", "file", metavar="FILE|-", help="URLs, one per line, or the JSON lines of `frontier export`.")
@click.option("--segment", metavar="S", help="Segment for all URLs.")
@click.option("--priority", type=click.IntRange(-(1 << 31), 1 << 31), metavar="N", help="Priority of all URLs.")
@click.option("--spider", default="", metavar="NAME", help="Spider for these URLs, in a crawl with several spiders.")
@crawl_options
@json_option
def command(
    urls: Sequence[str],
    file: str | None,
    location: CrawlLocation,
    segment: str | None,
    priority: int | None,
    spider: str,
    as_json: bool,
) -> int:
    """Add start URLs to a crawl: before it starts, while it runs, or for workers that wait (--keep-alive).

    URLs that the crawl already knows are skipped, so an interrupted command can be repeated. Invalid lines are reported
    and skipped; the exit code is then 1.

    \b
    lycosa seed https://example.com/ --frontier redis://host:6379/0 --crawl-name shop
    zcat urls.gz | lycosa seed --file - --frontier redis://host:6379/0 --crawl-name shop
    """
    validate_name(segment or "")
    with _lines(urls, file) as stream:
        result, message = _queue(stream, location, spider, {"segment": segment, "priority": priority})
    if message:
        progress.write([one_line(message)])
    return print_import_result(result, as_json=as_json)


def _lines(urls: Sequence[str], file: str | None) -> AbstractContextManager[BinaryIO]:
    """Raises `UsageError` for wrong arguments, and for an invalid URL among them."""
    if bool(urls) == (file is not None):
        raise UsageError("seed needs URLs, or --file FILE (- for standard input)" + (", not both" if urls else ""))
    if file is not None:
        return open_input(file)
    from lycosa.core.url import canonicalize

    for url in urls:  # an invalid argument stops the command, while an invalid line in a file is skipped
        if "://" not in url:
            raise BadUrl(f"{url!r} is not a URL: write https://..., or --file {url} for a file of URLs")
        canonicalize(url)
    return contextlib.nullcontext(io.BytesIO("\n".join(urls).encode()))


def _queue(
    stream: BinaryIO, location: CrawlLocation, spider: str, overrides: Mapping[str, Any]
) -> tuple[Importer, str]:
    """Return the result, and a message for the user or ""."""

    async def action(state: OpenState) -> tuple[Importer, str]:
        members = [each.name for each in state.description.members]
        if spider and spider not in members:
            problem = (
                f"the spiders of this crawl are {', '.join(members)}"
                if members
                else "this crawl does not have several spiders"
            )
            raise UsageError(f"--spider {spider}: {problem}")
        result = await import_lines(state, stream, "queued", {**overrides, "spider": spider})
        waits = result.queued and not state.runs  # the user might expect the URLs to be fetched now
        return result, f"{state.place}: no worker is running; the next worker fetches the URLs" if waits else ""

    return run(location, action, create=True)
