"""`lycosa crawl URL...`: crawl sites, every page an item. Also `run`, which every command that crawls ends in."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.cli import progress
from lycosa.cli.options import GroupedCommand, crawl_options, given, spider_arguments
from lycosa.config import Settings, load
from lycosa.core.errors import BadUrl, StorageError, UsageError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command("crawl", cls=GroupedCommand)
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@crawl_options
def command(urls: Sequence[str], arguments: Sequence[str], sets: Sequence[str], **options: Any) -> int:
    """Crawl sites: follow the links of every page, and write every page as an item.

    Stopped by Ctrl-C or by force, the same command goes on where it was, and a finished crawl fetches nothing again;
    -O starts afresh. Items go to standard output, or to a file with -o.

    \b
    lycosa crawl https://example.com -o items.jsonl --index index --delay 1
    """
    for url in urls:
        if "://" not in url:
            raise BadUrl(_no_url(url))
    if spider_arguments(arguments):
        raise UsageError("-a is for the arguments of a spider, and a crawl of URLs has none: see lycosa runspider")
    settings = load(given(options), sets=sets, environ=os.environ, folder=Path.cwd())
    return run(list(urls), settings, {})


def run(target: Sequence[str] | type[Any], settings: Settings, arguments: Mapping[str, str]) -> int:
    """Crawl, showing progress and a summary on standard error. Return the exit code."""
    from lycosa.app.crawl import run_crawl

    _log(settings)
    with progress.shown(settings) as observe:
        summary = run_crawl(settings, target, spider_args=arguments, observe=observe)
    if not settings.quiet:
        progress.write(progress.summary_lines(summary))
    return progress.exit_code(summary)


def _no_url(text: str) -> str:
    if text.endswith(".py"):
        return f"{text!r} is no URL: lycosa runspider {text} runs the spider in a file"
    if "." in text or ":" in text or text == "localhost":
        return f"{text!r} has no scheme: write https://{text}"
    return f"{text!r} is no URL: write https://... (the spider in a file runs with lycosa runspider FILE)"


class _StandardError(logging.StreamHandler[Any]):
    """Logs to the standard error of the moment: the live display puts itself in front of it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def _log(settings: Settings) -> None:
    handler: logging.Handler = _StandardError()
    if settings.log_file is not None:
        try:
            handler = logging.FileHandler(settings.log_file, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"--log-file {settings.log_file}: {error.strerror}") from None
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
