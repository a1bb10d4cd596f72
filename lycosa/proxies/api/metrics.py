"""The metrics of a proxy pool. Only the TARGETS_MAX targets with the most granted leases have metrics of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lycosa.core.metrics import Metric, Samples
from lycosa.proxies.api.schemas import PoolStats
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import TargetView

TARGETS_MAX = 200


def pool_metrics(stats: PoolStats, targets: Sequence[TargetView], api_leases: int) -> list[Metric]:
    """Return the metrics. `api_leases`: unreleased leases of this server."""
    shown = sorted(targets, key=lambda view: -view.granted)[:TARGETS_MAX]
    median_s = stats.latency_median_s
    latency: Samples = [] if median_s is None else [({}, median_s)]
    return [
        Metric("lycosa_proxies", "gauge", "Proxies, by their state across all targets.", _by_state(stats.states, {})),
        Metric("lycosa_proxy_latency_median_seconds", "gauge", "Median latency of the proxies.", latency),
        _pool_metric("uses_total", "counter", "Requests through proxies of the pool.", stats.uses),
        _pool_metric("good_total", "counter", "Requests that succeeded.", stats.good),
        _pool_metric("bad_total", "counter", "Requests that were refused or failed.", stats.bad),
        _pool_metric("targets", "gauge", "Targets.", len(targets)),
        _pool_metric("api_leases", "gauge", "Leases of the API that have not been released.", api_leases),
        Metric(
            "lycosa_proxy_target_proxies",
            "gauge",
            "Proxies of a target, by state.",
            [sample for view in shown for sample in _by_state(view.states, {"target": view.target})],
        ),
        _target_metric("leases", "gauge", "Active leases.", {view.target: view.leases for view in shown}),
        _target_metric("granted_total", "counter", "Leases granted.", {view.target: view.granted for view in shown}),
        _target_metric("leaked_total", "counter", "Leases that expired.", {view.target: view.leaked for view in shown}),
        _target_metric("stale_total", "counter", "Late releases.", {view.target: view.stale for view in shown}),
        _target_metric(
            "interval_seconds",
            "gauge",
            "Minimum time between two leases of one proxy.",
            {view.target: view.interval_s for view in shown},
        ),
    ]


def _by_state(counts: Mapping[ProxyState, int], labels: Mapping[str, str]) -> Samples:
    return [({**labels, "state": str(state)}, counts.get(state, 0)) for state in ProxyState]


def _pool_metric(name: str, kind: str, help_: str, value: float) -> Metric:
    return Metric(f"lycosa_proxy_{name}", kind, help_, [({}, value)])


def _target_metric(name: str, kind: str, help_: str, values: Mapping[str, float]) -> Metric:
    samples = [({"target": target}, value) for target, value in values.items()]
    return Metric(f"lycosa_proxy_target_{name}", kind, help_, samples)
