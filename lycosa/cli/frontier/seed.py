"""`lycosa seed [URL...] [--file FILE|-] --frontier redis://...`: give a crawl start URLs from outside."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.changes import Importer, imported, opened_input, tell_imported
from lycosa.cli.frontier.rows import Opened, Where, json_option, run, state_option
from lycosa.core.errors import BadUrl, UsageError
from lycosa.frontier.core.segments import validate_name


@click.command("seed", short_help="Give a crawl start URLs from outside, before or while it runs.")
@click.argument("urls", nargs=-1, metavar="[URL...]")
@click.option("--file", "file", metavar="FILE|-", help="URLs, one a line, or the JSON lines of `frontier export`.")
@click.option("--segment", metavar="S", help="Put all of them into this segment.")
@click.option(
    "--priority", type=click.IntRange(-(1 << 31), 1 << 31), metavar="N", help="Give all of them this priority."
)
@click.option("--spider", default="", metavar="NAME", help="Whose they are, in a crawl of several spiders.")
@state_option
@json_option
def command(
    urls: Sequence[str],
    file: str | None,
    where: Where,
    segment: str | None,
    priority: int | None,
    spider: str,
    as_json: bool,
) -> int:
    """Give a crawl start URLs from outside: before it begins, while it runs, or for workers that wait (--keep-alive).

    Those that the crawl knows are left out. Bad lines are told and passed over, with exit code 1 at the end. What was
    queued when the command is ended stays queued, and the same command can be given again.

    \b
    lycosa seed https://example.com/ --frontier redis://host:6379/0 --crawl-name shop
    zcat urls.gz | lycosa seed --file - --frontier redis://host:6379/0 --crawl-name shop
    """
    validate_name(segment or "")
    with _lines(urls, file) as stream:
        done, said = _seeded(stream, where, spider, {"segment": segment, "priority": priority})
    if said:
        progress.write([one_line(said)])
    return tell_imported(done, as_json=as_json)


def _lines(urls: Sequence[str], file: str | None) -> AbstractContextManager[BinaryIO]:
    """Return the lines that are meant. Raises `UsageError`, also for a URL of the command line that is none."""
    if bool(urls) == (file is not None):
        raise UsageError("seed needs URLs, or --file FILE (- for standard input)" + (", not both" if urls else ""))
    if file is not None:
        return opened_input(file)
    from lycosa.core.url import canonicalize

    for url in urls:
        if "://" not in url:
            raise BadUrl(f"{url!r} is no URL: write https://..., or --file {url} for a file of them")
        canonicalize(url)
    return contextlib.nullcontext(io.BytesIO("\n".join(urls).encode()))


def _seeded(stream: BinaryIO, where: Where, spider: str, put: Mapping[str, Any]) -> tuple[Importer, str]:
    """Queue them. Return what became of them, and what else there is to say."""

    async def story(state: Opened) -> tuple[Importer, str]:
        members = [each.name for each in state.description.members]
        if spider and spider not in members:
            whose = f"those of this crawl are {', '.join(members)}" if members else "this crawl has not several"
            raise UsageError(f"--spider {spider}: {whose}")
        done = await imported(state, stream, "queued", {**put, "spider": spider})
        waits = done.queued and not state.runs
        return done, f"{state.place}: no worker runs, the next one fetches them" if waits else ""

    return run(where, story, make=True)
