"""`lycosa worker NAME|FILE|URL... --frontier redis://...`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from lycosa.cli.crawl.crawl import command as crawl
from lycosa.cli.crawl.crawl import run_spiders
from lycosa.cli.crawl.spiderfile import load_spider
from lycosa.cli.crawl.spiders import enter_project, project_settings
from lycosa.cli.options import COMMON_OPTIONS, GroupedCommand, crawl_options, setting_flags, spider_arguments
from lycosa.core.errors import UsageError


class WorkerCommand(GroupedCommand):
    """The help lists the options of a shared crawl, but not those that a worker refuses."""

    common = COMMON_OPTIONS | {"frontier", "crawl_name", "keep_alive"}
    refused = frozenset({"output_afresh", "processes"})


@click.command("worker", cls=WorkerCommand)
@click.argument("targets", nargs=-1, required=True, metavar="NAME|FILE|URL...")
@crawl_options
@click.pass_context
def command(
    ctx: click.Context, /, targets: Sequence[str], arguments: Sequence[str], sets: Sequence[str], **options: Any
) -> int:
    """Run one worker of a crawl that any number of workers share, on this machine or others.

    A worker ends when the whole crawl is done; with --keep-alive it waits for more URLs. Each worker needs its own
    output and its own --state. A worker refuses -O and --processes.

    \b
    lycosa worker quotes --frontier redis://host:6379/0 -o quotes-1.jsonl --state worker-1
    """
    flags = setting_flags(options)
    if not (flags.get("frontier") or project_settings(sets).frontier):
        raise UsageError("a worker needs --frontier redis://host:6379/0, the same as the other workers")
    if len(targets) == 1 and targets[0].partition(":")[0].endswith(".py"):
        enter_project()
        return run_spiders([load_spider(targets[0])], flags, sets, spider_arguments(arguments))
    code: int = ctx.invoke(crawl, targets=targets, arguments=arguments, sets=sets, **options)
    return code
