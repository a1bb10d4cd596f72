"""`lycosa proxies list`: the proxies of a pool, or those of a target."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.cli.crawl import progress
from lycosa.cli.frontier.rows import TextTable, format_time, print_json
from lycosa.cli.proxies.pool import (
    COLORS,
    json_option,
    latency,
    pool_option,
    run,
    share,
    tag_option,
    tags_of,
    tags_text,
    target_of,
    view_json,
)
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool

LIMIT = 100


@click.command("list", short_help="List proxies, all or those of a target.")
@click.argument("target", required=False, metavar="[TARGET]", callback=lambda _, __, text: target_of(text))
@pool_option
@click.option("--state", type=click.Choice([str(each) for each in ProxyState]), help="Only those in this state.")
@tag_option
@click.option("--limit", type=click.IntRange(0), default=LIMIT, show_default=True, metavar="N", help="0 for all.")
@json_option
def command(
    target: str | None, address: str | None, state: str | None, tags: Sequence[str], limit: int, *, as_json: bool
) -> None:
    """List the proxies of a pool, the nearest first, or those that a target has. Logins are not shown.

    \b
    lycosa proxies list --pool pool --state dead
    lycosa proxies list shop.example --pool pool --json
    """
    wanted = tags_of(tags)

    async def story(pool: ProxyPool) -> None:
        found = [
            view
            for view in await pool.proxies(target)
            if (state is None or view.state == state) and wanted.items() <= view.proxy.tags.items()
        ]
        shown, now = found[: limit or None], time.time()
        if as_json:
            for view in shown:
                print_json(view_json(view))
            return
        names = ("state", ">latency", ">uses", ">good", "key", "proxy", "tags", "exit", "until", "reason")
        table = TextTable(*names, style=0, colors=COLORS)
        table.write(
            [
                [
                    view.state,
                    latency(view.latency_s),
                    f"{view.uses:,}",
                    share(view.good, view.bad),
                    view.proxy.key,
                    view.proxy.name,
                    tags_text(view.proxy.tags),
                    view.exit_ip or "-",
                    format_time(view.until, now) if view.until > now else "-",
                    view.reason or "-",
                ]
                for view in shown
            ]
        )
        if len(found) > len(shown):
            progress.write([f"only the first {limit:,} of {len(found):,} are shown: --limit 0 shows all"])
        elif not found:
            progress.write(
                ["no proxies" + (" are like that" if state or wanted or target else " yet: lycosa proxies add FILE")]
            )

    run(address, story)
