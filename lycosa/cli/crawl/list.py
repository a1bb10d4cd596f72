"""`lycosa list`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from lycosa.cli.crawl.spiders import enter_project, find_spiders, no_spiders, project_settings, refuse_duplicate_names
from lycosa.cli.options import set_option
from lycosa.core.errors import BadSpider, UsageError


@click.command("list")
@set_option
def command(sets: Sequence[str]) -> None:
    """List the spiders of the project, with their files.

    If a file cannot be imported, the command fails after it has printed the list.
    """
    enter_project()
    modules = project_settings(sets).spider_modules
    if not modules:
        raise UsageError(no_spiders())
    spiders = find_spiders(modules)
    refuse_duplicate_names(spiders)
    width = max((len(each.name) for each in spiders.found), default=0)
    for each in spiders.found:
        print(f"{each.name:<{width}}  {each.file}")
    if spiders.broken:
        raise BadSpider(spiders.broken[0])
    if not spiders.found:
        print(f"no spiders in {', '.join(modules)} yet: lycosa genspider writes one", file=sys.stderr)
