"""`lycosa proxies explain`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.app.proxies.inspection import SnapshotCache, VerdictInfo, explanation_text, verdict_info
from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import TextTable, format_time, json_option, print_json, print_styled
from lycosa.cli.proxies.pool import (
    COLORS,
    find_proxies,
    limit_option,
    parse_tags,
    pool_option,
    report_limit,
    run,
    tag_option,
    target_argument,
)
from lycosa.core.units import format_count
from lycosa.proxies.core.explain import Why
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.ports import ProxyPool


@click.command("explain")
@target_argument
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@tag_option
@click.option(
    "--session",
    default="",
    metavar="WORD",
    help="Explain for a request with this session word: all requests with the word use one proxy.",
)
@limit_option(50)
@json_option
def command(
    target: str,
    proxies: Sequence[str],
    address: str | None,
    tags: Sequence[str],
    session: str,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Show the order in which the proxies would now be leased for a target, and why others cannot be leased.

    A proxy is given by its key, the start of its key, its name or its address.

    \b
    lycosa proxies explain shop.example --pool pool
    lycosa proxies explain shop.example 10.0.0.1:8080 --tag country=de --pool pool
    """
    request = ProxyRequest(parse_tags(tags), session)

    async def action(pool: ProxyPool) -> None:
        cache, now = SnapshotCache(pool), time.time()
        found = await cache.explain(target, request)
        drawn_from = sum(each.verdict.why is Why.NEXT for each in found)
        if proxies:
            keys = {proxy.key for proxy in find_proxies(proxies, await cache.proxies())}
            found = [each for each in found if each.verdict.key in keys]
            if len(found) < len(keys):
                progress.write([f"some are not explained: they are neither proxies of {target} nor among the fastest"])
        shown = [
            verdict_info(each, explanation_text(each, request, lambda at: format_time(at, now)))
            for each in found[: limit or None]
        ]
        if as_json:
            for verdict in shown:
                print_json(verdict)
        elif not found and not proxies:
            progress.write(["the pool has no proxies: lycosa proxies add FILE"])
        else:
            _print_table(target, shown, drawn_from)
            report_limit(len(shown), len(found))

    run(address, action)


def _print_table(target: str, verdicts: Sequence[VerdictInfo], drawn_from: int) -> None:
    head = (
        f"the next proxy is drawn from {format_count(drawn_from, 'proxy')}"
        if drawn_from
        else "no proxy would be leased now"
    )
    print_styled(f"{one_line(target)}: {head}", "bold")
    table = TextTable("state", ">place", ">weight", "key", "proxy", "why", style=0, colors=COLORS)
    table.write(
        [
            [each.state, f"{each.place:,}" if each.place else "-", f"{each.weight:.0%}", each.key, each.name, each.text]
            for each in verdicts
        ]
    )
