"""`lycosa runspider FILE`: run the spider in a Python file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import run
from lycosa.cli.options import GroupedCommand, crawl_options, given, spider_arguments
from lycosa.cli.spiderfile import load_spider
from lycosa.config import load
from lycosa.core.errors import BadSpider


@click.command("runspider", cls=GroupedCommand)
@click.argument("file", metavar="FILE")
@crawl_options
def command(file: str, arguments: Sequence[str], sets: Sequence[str], **options: Any) -> int:
    """Run the spider in a Python file; of several, FILE:ClassName picks one.

    The options win over the spider's custom_settings. -a arguments become attributes of the spider.

    \b
    lycosa runspider quotes.py -o quotes.jsonl -a tag=humor
    """
    flags, named = given(options), spider_arguments(arguments)
    spider = load_spider(file)
    custom = spider.custom_settings or {}
    if not isinstance(custom, Mapping):
        raise BadSpider(f"{spider.__name__}.custom_settings is not a dict")
    settings = load(flags, sets=sets, spider_settings=custom, environ=os.environ, folder=Path.cwd())
    return run(spider, settings, named)
