"""`lycosa proxies stats`."""

from __future__ import annotations

import click

from lycosa.app.proxies.inspection import PoolStats, pool_stats
from lycosa.cli.frontier.rows import TextTable, json_option, print_json, print_styled
from lycosa.cli.proxies.pool import format_latency, pool_option, run, success_rate
from lycosa.core.units import format_count, format_duration
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool, TargetView


@click.command("stats")
@pool_option
@json_option
def command(address: str | None, *, as_json: bool) -> None:
    """Show how many proxies are in each state, and how much each target uses them.

    With --json the first line is the pool, and each further line is a target.
    """

    async def action(pool: ProxyPool) -> None:
        targets = sorted(await pool.targets(), key=lambda view: (-view.granted, view.target))
        stats = pool_stats(await pool.proxies(), targets)
        stats.states = {state: count for state, count in stats.states.items() if count}
        if as_json:
            print_json(stats)
            for view in targets:
                states = {state: count for state, count in view.states.items() if count}
                print_json({**view._asdict(), "states": states})
            return
        _print_pool(stats)
        _print_targets(targets)

    run(address, action)


def _print_pool(stats: PoolStats) -> None:
    states = ", ".join(f"{count:,} {state}" for state, count in stats.states.items())
    print_styled(f"{format_count(stats.proxies, 'proxy')}{f': {states}' if states else ''}", "bold")
    if stats.latency_median_s is not None:
        print(f"  latency  {format_latency(stats.latency_median_s)} (median)")
    print(
        f"  leases   {stats.leases:,} active, {stats.granted:,} granted, {stats.leaked:,} leaked, "
        f"{stats.stale:,} released late"
    )
    rate = success_rate(stats.good, stats.bad)
    print(f"  uses     {stats.uses:,}" + (f", {rate} of the judged uses successful" if rate != "-" else ""))


def _print_targets(targets: list[TargetView]) -> None:
    states = [f">{state}" for state in ProxyState]
    table = TextTable("target", *states, ">leases", ">granted", ">leaked", ">late", ">interval")
    table.write(
        [
            [
                view.target,
                *(f"{view.states.get(state, 0):,}" for state in ProxyState),
                f"{view.leases:,}",
                f"{view.granted:,}",
                f"{view.leaked:,}",
                f"{view.stale:,}",
                format_duration(view.interval_s) if view.interval_s else "-",
            ]
            for view in targets
        ]
    )
