"""`lycosa proxies list`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.app.proxies.inspection import proxy_info, select_proxies
from lycosa.cli.crawl import progress
from lycosa.cli.frontier.rows import TextTable, format_time, json_option, print_rows
from lycosa.cli.proxies.pool import (
    COLORS,
    format_latency,
    format_tags,
    limit_option,
    parse_tags,
    parse_target,
    pool_option,
    report_limit,
    run,
    success_rate,
    tag_option,
)
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool, ProxyView


@click.command("list")
@click.argument("target", required=False, metavar="[TARGET]", callback=lambda _, __, text: parse_target(text))
@pool_option
@click.option("--state", type=click.Choice([str(each) for each in ProxyState]), help="Only proxies in this state.")
@tag_option
@limit_option(100)
@json_option
def command(
    target: str | None, address: str | None, state: str | None, tags: Sequence[str], limit: int, *, as_json: bool
) -> None:
    """List the proxies of a pool, lowest latency first; with TARGET, only its proxies, and their states for it.

    Logins are not shown.

    \b
    lycosa proxies list --pool pool --state dead
    lycosa proxies list shop.example --pool pool --json
    """
    required_tags = parse_tags(tags)

    async def action(pool: ProxyPool) -> None:
        found = select_proxies(await pool.proxies(target), state, required_tags)
        shown, now = found[: limit or None], time.time()
        names = ("state", ">latency", ">uses", ">good", "key", "proxy", "tags", "exit", "until", "reason")
        table = TextTable(*names, style=0, colors=COLORS)
        print_rows(table, shown, lambda view: _cells(view, now), proxy_info, as_json=as_json)
        report_limit(len(shown), len(found))
        if not found:
            hint = "no proxy matches" if state or tags or target else "no proxies yet: lycosa proxies add FILE"
            progress.write([hint])

    run(address, action)


def _cells(view: ProxyView, now: float) -> list[str]:
    return [
        view.state,
        format_latency(view.latency_s),
        f"{view.uses:,}",
        success_rate(view.good, view.bad),
        view.proxy.key,
        view.proxy.name,
        format_tags(view.proxy.tags) or "-",
        view.exit_ip or "-",
        format_time(view.until, now) if view.until > now else "-",
        view.reason or "-",
    ]
