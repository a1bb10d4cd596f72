"""`lycosa proxies explain`: why each proxy would be lent for a target now, or why not."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.rows import TextTable, format_time, print_json, print_styled
from lycosa.cli.proxies.pool import (
    COLORS,
    json_option,
    meant,
    pool_option,
    proxy_request_of,
    run,
    tag_option,
    target_argument,
)
from lycosa.proxies.core.explain import Why, lacks_reason, verdict_text, with_reason
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.ports import ProxyExplanation, ProxyPool

LIMIT = 50


@click.command("explain", short_help="Say why each proxy would be lent for a target, or not.")
@target_argument
@click.argument("proxies", nargs=-1, metavar="[PROXY]...")
@pool_option
@tag_option
@click.option("--session", default="", metavar="WORD", help="As whoever asks for the proxy of this session.")
@click.option("--limit", type=click.IntRange(0), default=LIMIT, show_default=True, metavar="N", help="0 for all.")
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
    """Say of each proxy whether it would be lent for a target now: its place in the order, or what is in the way.

    A proxy is meant by its key, the beginning of that, its name or its address. Nothing is changed by asking.

    \b
    lycosa proxies explain shop.example --pool pool
    lycosa proxies explain shop.example 10.0.0.1:8080 --tag country=de --pool pool
    """
    proxy_request = proxy_request_of(tags, session)

    async def story(pool: ProxyPool) -> None:
        told = await pool.explain(target, proxy_request)
        everywhere = await pool.proxies() if proxies or any(lacks_reason(each.verdict) for each in told) else []
        reasons = {view.proxy.key: view.reason for view in everywhere}
        told = [each._replace(verdict=with_reason(each.verdict, reasons)) for each in told]
        drawn = sum(each.verdict.why is Why.NEXT for each in told)
        if proxies:
            keys = [each.key for each in meant(proxies, everywhere)]
            told = [each for each in told if each.verdict.key in keys]
            if len(told) < len(set(keys)):
                progress.write([f"{target} does not have all of them, and nearer ones would come first"])
        _show(target, told, drawn, proxy_request, limit, as_json=as_json)

    run(address, story)


def _show(
    target: str, told: Sequence[ProxyExplanation], drawn: int, proxy_request: ProxyRequest, limit: int, *, as_json: bool
) -> None:
    now, asked = time.time(), ", ".join(f"{name}={value}" for name, value in proxy_request.tags.items())
    shown = told[: limit or None]
    if as_json:
        for proxy, verdict in shown:
            says = verdict_text(verdict, lambda at: format_time(at, now), tags=asked)
            print_json({**verdict._asdict(), "name": proxy.name, "until": verdict.until or None, "says": says})
        return
    if not told:
        progress.write(["the pool has no proxies: lycosa proxies add FILE"])
        return
    head = f"the next one is drawn from {drawn:,}" if drawn else "none would be lent now"
    print_styled(f"{one_line(target)}: {head}", "bold")
    table = TextTable("state", ">place", ">weight", "key", "proxy", "why", style=0, colors=COLORS)
    table.write(
        [
            [
                verdict.state,
                f"{verdict.place:,}" if verdict.place else "-",
                f"{verdict.weight:.0%}",
                verdict.key,
                proxy.name,
                verdict_text(verdict, lambda at: format_time(at, now), tags=asked),
            ]
            for proxy, verdict in shown
        ]
    )
    if len(told) > len(shown):
        progress.write([f"only the first {limit:,} of {len(told):,} are shown: --limit 0 shows all"])
