"""`lycosa crawl URL...|NAME...`, and what all commands that crawl share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.crawl.spiders import enter_project, find_spiders, load_named, no_spiders, project_settings
from lycosa.cli.options import GroupedCommand, crawl_options, setting_flags, spider_arguments
from lycosa.config import Settings, load
from lycosa.core.errors import BadSpider, BadUrl, StorageError, UsageError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command("crawl", cls=GroupedCommand)
@click.argument("targets", nargs=-1, required=True, metavar="URL...|NAME...")
@crawl_options
def command(targets: Sequence[str], arguments: Sequence[str], sets: Sequence[str], **options: Any) -> int:
    """Crawl sites: follow the links of every page, and write every page as an item. Or run spiders of a project by
    name; several spiders share one crawl.

    The same command resumes an interrupted or killed crawl. If the crawl is finished, the command fetches nothing: add
    --retry-dead to queue the URLs that failed, or -O to start afresh.

    \b
    lycosa crawl https://example.com -o items.jsonl --index index --delay 1
    lycosa crawl quotes -o quotes.jsonl -a tag=humor
    """
    flags, spider_args = setting_flags(options), spider_arguments(arguments)
    urls = [each for each in targets if "://" in each]
    if urls:
        if names := [each for each in targets if "://" not in each]:
            raise BadUrl(_no_url(names[0], "URLs and spider names cannot be mixed"))
        if spider_args:
            raise UsageError("-a gives arguments to a spider, and a crawl of URLs has no spider: give a spider's name")
        enter_project()
        return run(urls, load(flags, sets=sets, environ=os.environ, folder=Path.cwd()), {})
    return run_spiders(_find_spiders(targets, sets), flags, sets, spider_args)


def run_spiders(
    spiders: Sequence[type[Any]], flags: Mapping[str, object], sets: Sequence[str], spider_args: Mapping[str, str]
) -> int:
    """Run spiders, each with its own custom_settings. Return the exit code."""
    settings = [settings_for(spider, flags, sets) for spider in spiders]
    return run(spiders[0], settings[0], spider_args) if len(spiders) == 1 else run(spiders, settings, spider_args)


def settings_for(spider: type[Any] | None, flags: Mapping[str, object], sets: Sequence[str]) -> Settings:
    """Load the settings, with a spider's custom_settings. Raises `BadSpider` or `BadSetting`."""
    custom = getattr(spider, "custom_settings", None) or {}
    if not isinstance(custom, Mapping):
        raise BadSpider(f"{spider.__name__ if spider else ''}.custom_settings is not a dict")
    return load(flags, sets=sets, spider_settings=custom, environ=os.environ, folder=Path.cwd())


def run(
    target: Sequence[str] | type[Any] | Sequence[type[Any]],
    settings: Settings | Sequence[Settings],
    spider_args: Mapping[str, str],
) -> int:
    """Crawl, with progress and a summary on standard error. Return the exit code.

    The log and the progress use the settings of the first spider.
    """
    from lycosa.app.crawl.run import run_crawl

    first = settings if isinstance(settings, Settings) else settings[0]
    set_up_log(first)
    with progress.show_progress(first) as observe:
        summary = run_crawl(settings, target, spider_args=spider_args, observe=observe)
    if not first.quiet:
        progress.write(progress.summary_lines(summary))
    return progress.exit_code(summary)


def _find_spiders(names: Sequence[str], sets: Sequence[str]) -> list[type[Any]]:
    """Raises `BadUrl` for an unknown name that looks like an address, or if `spider_modules` is empty."""
    enter_project()
    modules = project_settings(sets).spider_modules
    if not modules:
        raise BadUrl(_no_url(names[0], no_spiders()))
    spiders = find_spiders(modules)
    unknown = next((name for name in names if not spiders.named(name)), "")
    if not spiders.broken and _looks_like_address(unknown):
        raise BadUrl(_no_url(unknown, "and the project has no spider of this name"))
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{duplicate!r} is given twice: a spider runs once in a crawl")
    return [spiders.one(name) for name in names]


def _looks_like_address(text: str) -> bool:
    return "." in text or ":" in text or text == "localhost"


def _no_url(text: str, reason: str) -> str:
    if text.endswith(".py"):
        return f"{text!r} is not a URL: lycosa runspider {text} runs the spider in a file"
    if _looks_like_address(text):
        return f"{text!r} has no scheme: write https://{text}"
    return f"{text!r} is not a URL: write https://... ({reason})"


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the current `sys.stderr`, which the live display temporarily replaces."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def spider_and_settings(name: str | None, sets: Sequence[str]) -> tuple[type[Any] | None, Settings]:
    """Enter the project, and set up the log. Return the spider, if any, and the settings."""
    enter_project()
    spider = load_named(name, project_settings(sets)) if name else None
    settings = settings_for(spider, {}, sets)
    set_up_log(settings)
    return spider, settings


def set_up_log(settings: Settings) -> None:
    """Set up the log. Raises `StorageError`."""
    from lycosa.app import NOTICES
    from lycosa.infra.json_log import JsonFormatter

    handler: logging.Handler = _StderrHandler()
    if settings.log_file is not None:
        try:
            handler = logging.FileHandler(settings.log_file, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"--log-file {settings.log_file}: {error.strerror}") from None
    handler.setFormatter(JsonFormatter() if settings.log_json else logging.Formatter(LOG_FORMAT))
    # Notices are shown at any log level: they name the port of the metrics, which the system may have chosen, and a new
    # crawl, whose name may be a typo.
    logging.getLogger(NOTICES).setLevel(logging.NOTSET if settings.quiet else logging.INFO)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
