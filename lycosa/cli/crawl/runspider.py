"""`lycosa runspider FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from lycosa.cli.crawl.crawl import run_spiders
from lycosa.cli.crawl.spiderfile import load_spider
from lycosa.cli.crawl.spiders import enter_project
from lycosa.cli.options import GroupedCommand, crawl_options, setting_flags, spider_arguments


@click.command("runspider", cls=GroupedCommand)
@click.argument("file", metavar="FILE")
@crawl_options
def command(file: str, arguments: Sequence[str], sets: Sequence[str], **options: Any) -> int:
    """Run the spider in a Python file. FILE:ClassName picks one of several spiders.

    Options override the spider's custom_settings. Arguments (-a) become attributes of the spider.

    \b
    lycosa runspider quotes.py -o quotes.jsonl -a tag=humor
    """
    flags, spider_args = setting_flags(options), spider_arguments(arguments)
    enter_project()
    return run_spiders([load_spider(file)], flags, sets, spider_args)
