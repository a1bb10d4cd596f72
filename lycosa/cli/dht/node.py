"""`lycosa dht node`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lycosa.cli.dht.node_report import AddressAdvice, TrafficRates, show_lines, status_line
from lycosa.cli.dht.options import NodeOptions, joined_line, node_options, report, run_with_node
from lycosa.cli.exit_codes import DONE
from lycosa.cli.parameters import NON_EMPTY


@click.command("node")
@node_options(is_short=False)
@click.option(
    "--metrics",
    type=NON_EMPTY,
    metavar="[ADDR:]PORT",
    help="Serve Prometheus metrics at /metrics; on 127.0.0.1 unless an address is given.",
)
@click.option("--allow-remote", is_flag=True, help="Allow an address for --metrics that other machines can reach.")
def command(options: NodeOptions, metrics: str | None, *, allow_remote: bool) -> int:
    """Run a DHT node until Ctrl-C, and show its routing table, its traffic, and whether other nodes can reach it.

    \b
    lycosa dht node --bind 0.0.0.0:6881 --bootstrap default --state node
    """
    from lycosa.infra.web.metrics_page import parse_address

    if metrics is not None:
        parse_address(metrics)
    return run_with_node(options, lambda session: _run(session, options, metrics, allow_remote=allow_remote))


async def _run(session: Any, options: NodeOptions, metrics: str | None, *, allow_remote: bool) -> int:
    from lycosa.app.dht import serve_node_metrics
    from lycosa.dht.core.endpoints import text

    advice = [AddressAdvice(endpoint, is_read_only=options.read_only) for endpoint in session.endpoints]
    for endpoint, status, each in zip(session.endpoints, session.status(), advice, strict=True):
        report(f"node {status.node_id.hex()} listens on {text(endpoint)} (UDP)")
        report(*each.at_start())
    if session.is_isolated:
        report("it knows no other node: write --bootstrap HOST:PORT, or --bootstrap default for the public network")
    async with serve_node_metrics(session, metrics, allow_remote=allow_remote) as url:
        if url:
            report(f"metrics: {url}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_report_join(session))
            tasks.create_task(_show(session, advice))
    return DONE


async def _report_join(session: Any) -> None:
    if not session.is_isolated:
        count = await session.joined()
        report(joined_line(count) if count else "no node answers; trying again later")


async def _show(session: Any, advice: list[AddressAdvice]) -> None:
    rates = [TrafficRates() for _ in advice]
    with show_lines() as (every_s, show):
        while True:
            await asyncio.sleep(every_s)
            nodes = list(zip(session.endpoints, session.status(), advice, rates, strict=True))
            for _, status, each, _ in nodes:
                report(*each.on_change(status.reachability))
            now = asyncio.get_running_loop().time()
            show(
                [status_line(endpoint, status, rate.update(status.traffic, now)) for endpoint, status, _, rate in nodes]
            )
