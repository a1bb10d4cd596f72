"""`lycosa proxies stats`: a pool and its targets in numbers."""

from __future__ import annotations

from collections import Counter
from statistics import median

import click

from lycosa.cli.frontier.rows import TextTable, print_json, print_styled
from lycosa.cli.proxies.pool import json_option, latency, pool_option, run, share
from lycosa.core.units import format_duration
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool, ProxyView, TargetView


@click.command("stats", short_help="Show the pool and its targets in numbers.")
@pool_option
@json_option
def command(address: str | None, *, as_json: bool) -> None:
    """Show how many proxies there are in each state, and what each target does with them.

    With --json the first line is the pool, each further one a target.
    """

    async def story(pool: ProxyPool) -> None:
        proxies = await pool.proxies()
        targets = sorted(await pool.targets(), key=lambda view: (-view.granted, view.target))
        if as_json:
            print_json(_sums(proxies, targets))
            for view in targets:
                states = {state: count for state, count in view.states.items() if count}
                print_json({**view._asdict(), "states": states})
            return
        _show(_sums(proxies, targets))
        _table(targets)

    run(address, story)


def _sums(proxies: list[ProxyView], targets: list[TargetView]) -> dict[str, object]:
    states = Counter(view.state for view in proxies)
    latencies = [view.latency_s for view in proxies if view.latency_s is not None]
    return {
        "proxies": len(proxies),
        "states": {state: states[state] for state in ProxyState if states[state]},
        "latency_median_s": median(latencies) if latencies else None,
        "targets": len(targets),
        "leases": sum(view.leases for view in targets),
        "granted": sum(view.granted for view in targets),
        "leaked": sum(view.leaked for view in targets),
        "stale": sum(view.stale for view in targets),
        "uses": sum(view.uses for view in proxies),
        "good": sum(view.good for view in proxies),
        "bad": sum(view.bad for view in proxies),
    }


def _show(sums: dict[str, object]) -> None:
    states = ", ".join(f"{count:,} {state}" for state, count in sums["states"].items())  # type: ignore[attr-defined]
    noun = "proxy" if sums["proxies"] == 1 else "proxies"
    print_styled(f"{sums['proxies']:,} {noun}{f': {states}' if states else ''}", "bold")
    known, well = sums["latency_median_s"], share(sums["good"], sums["bad"])  # type: ignore[arg-type]
    lines = {
        "latency": f"{latency(known)} (median)" if isinstance(known, float) else "",
        "leases": f"{sums['leases']:,} now, {sums['granted']:,} in all, "
        f"{sums['leaked']:,} leaked, {sums['stale']:,} late",
        "uses": f"{sums['uses']:,}{f', {well} of those judged went well' if well != '-' else ''}",
    }
    for name, text in lines.items():
        if text:
            print(f"  {name:<8} {text}")


def _table(targets: list[TargetView]) -> None:
    names = [f">{state}" for state in ProxyState]
    table = TextTable("target", *names, ">leases", ">in all", ">leaked", ">late", ">pace")
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
