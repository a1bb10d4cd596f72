"""`lycosa crawl URL...|NAME...`: crawl sites, every page an item, or run the spiders of a project.

Also `run`, which every command that crawls ends in.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.app import NOTICES
from lycosa.cli.crawl import progress
from lycosa.cli.crawl.spiders import enter_project
from lycosa.cli.options import GroupedCommand, crawl_options, setting_flags, spider_arguments
from lycosa.config import Settings, load
from lycosa.core.errors import BadSpider, BadUrl, StorageError, UsageError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command("crawl", cls=GroupedCommand)
@click.argument("targets", nargs=-1, required=True, metavar="URL...|NAME...")
@crawl_options
def command(targets: Sequence[str], arguments: Sequence[str], sets: Sequence[str], **options: Any) -> int:
    """Crawl sites: follow the links of every page, and write every page as an item. Or run spiders of a project, by
    name; several of them share one crawl.

    An interrupted or killed crawl is resumed by the same command with -o. A finished crawl fetches nothing again;
    --retry-dead queues what failed, and -O starts afresh. Items go to standard output, or to a file with -o.

    \b
    lycosa crawl https://example.com -o items.jsonl --index index --delay 1
    lycosa crawl quotes -o quotes.jsonl -a tag=humor
    """
    flags, named = setting_flags(options), spider_arguments(arguments)
    urls = [each for each in targets if "://" in each]
    if urls:
        _refuse_names([each for each in targets if "://" not in each])
        if named:
            raise UsageError("-a is for the arguments of a spider, and a crawl of URLs has none: give a spider's name")
        enter_project()
        return run(urls, load(flags, sets=sets, environ=os.environ, folder=Path.cwd()), {})
    return run_spiders(_spiders(targets, sets), flags, sets, named)


def run_spiders(
    spiders: Sequence[type[Any]], flags: Mapping[str, object], sets: Sequence[str], named: Mapping[str, str]
) -> int:
    """Run spiders, each with the settings that it asks for. Return the exit code."""
    settings = [settings_for(spider, flags, sets) for spider in spiders]
    return run(spiders[0], settings[0], named) if len(spiders) == 1 else run(spiders, settings, named)


def settings_for(spider: type[Any] | None, flags: Mapping[str, object], sets: Sequence[str]) -> Settings:
    """Return the settings with a spider's custom_settings among them. Raises `BadSpider` or `BadSetting`."""
    custom = getattr(spider, "custom_settings", None) or {}
    if not isinstance(custom, Mapping):
        raise BadSpider(f"{spider.__name__ if spider else ''}.custom_settings is not a dict")
    return load(flags, sets=sets, spider_settings=custom, environ=os.environ, folder=Path.cwd())


def run(
    target: Sequence[str] | type[Any] | Sequence[type[Any]],
    settings: Settings | Sequence[Settings],
    arguments: Mapping[str, str],
) -> int:
    """Crawl, showing progress and a summary on standard error. Return the exit code.

    What is shown is what the settings of the first spider say.
    """
    from lycosa.app.crawl.run import run_crawl

    first = settings if isinstance(settings, Settings) else settings[0]
    set_up_log(first)
    with progress.show_progress(first) as observe:
        summary = run_crawl(settings, target, spider_args=arguments, observe=observe)
    if not first.quiet:
        progress.write(progress.summary_lines(summary))
    return progress.exit_code(summary)


def _spiders(names: Sequence[str], sets: Sequence[str]) -> list[type[Any]]:
    """Return the spiders of the project with these names. Raises `BadUrl` for what can only be meant as an address."""
    from lycosa.cli.crawl.spiders import find_spiders, no_spiders, project_settings

    enter_project()
    modules = project_settings(sets).spider_modules
    if not modules:
        raise BadUrl(_no_url(names[0], no_spiders()))
    spiders = find_spiders(modules)
    strangers = [name for name in names if not spiders.named(name)]
    if strangers and not spiders.broken and _like_an_address(strangers[0]):
        raise BadUrl(_no_url(strangers[0], "and no spider of the project"))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice!r} is there twice: a spider runs once in a crawl")
    return [spiders.one(name) for name in names]


def _refuse_names(names: Sequence[str]) -> None:
    if names:
        raise BadUrl(_no_url(names[0], "URLs and the names of spiders are two crawls"))


def _like_an_address(text: str) -> bool:
    return "." in text or ":" in text or text == "localhost"


def _no_url(text: str, otherwise: str) -> str:
    if text.endswith(".py"):
        return f"{text!r} is no URL: lycosa runspider {text} runs the spider in a file"
    if _like_an_address(text):
        return f"{text!r} has no scheme: write https://{text}"
    return f"{text!r} is no URL: write https://... ({otherwise})"


class _StandardError(logging.StreamHandler[Any]):
    """Logs to the standard error of the moment: the live display puts itself in front of it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def set_up_log(settings: Settings) -> None:
    """Log to where the settings say. Raises `StorageError`."""
    handler: logging.Handler = _StandardError()
    if settings.log_file is not None:
        try:
            handler = logging.FileHandler(settings.log_file, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"--log-file {settings.log_file}: {error.strerror}") from None
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    # At any log level: the port of the metrics may be chosen by the system, and a shared crawl may be a mistyped one.
    logging.getLogger(NOTICES).setLevel(logging.NOTSET if settings.quiet else logging.INFO)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
