"""`lycosa dht node`: run a node until SIGINT (exit 130) or SIGTERM (0), and show how it is doing."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lycosa.cli.dht.options import BIND, NodeOptions, node_options, report, run_with_node
from lycosa.cli.parameters import NON_EMPTY
from lycosa.core.units import format_duration, format_size

REPORT_EVERY_S = 5.0


@click.command("node")
@node_options(BIND)
@click.option(
    "--metrics",
    type=NON_EMPTY,
    metavar="[ADDR:]PORT",
    help="Serve Prometheus metrics at /metrics; on 127.0.0.1 unless an address is given.",
)
def command(options: NodeOptions, metrics: str | None) -> int:
    """Run a node of the DHT, until Ctrl-C, and show its table, its traffic, and whether others can reach it.

    \b
    lycosa dht node --bind 0.0.0.0:6881 --bootstrap default --state node
    """
    return run_with_node(options, lambda session: _run(session, options, metrics))


async def _run(session: Any, options: NodeOptions, metrics: str | None) -> int:
    from lycosa.app.dht import serve_node_metrics
    from lycosa.dht.core.endpoints import text

    for endpoint, status in zip(session.endpoints, session.status(), strict=True):
        report(f"node {status.node_id.hex()} on {text(endpoint)}, UDP")
    if session.is_isolated:
        report("it knows no other node and waits for queries: --bootstrap HOST:PORT joins a network")
    async with serve_node_metrics(session, metrics) as url:
        if url:
            report(f"metrics: {url}")
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            for status in session.status():
                report(status_line(status))


def status_line(status: Any) -> str:
    """Return the state of a node in one line."""
    traffic = status.traffic
    return ", ".join(
        [
            f"{status.contacts.good} good and {status.contacts.questionable} questionable contacts",
            f"{traffic.queries_in:,} queries answered, {traffic.queries_out:,} sent",
        ]
    )
