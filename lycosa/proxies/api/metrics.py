"""A proxy pool as metrics. A label takes few values: states, and the TARGETS_MAX targets that lend most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from lycosa.core.metrics import Metric, Samples
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyView, TargetView

TARGETS_MAX = 200


def pool_metrics(proxies: Sequence[ProxyView], targets: Sequence[TargetView], held: int) -> list[Metric]:
    """Return the metrics. `held`: leases that this process lent over HTTP."""
    states = Counter(view.state for view in proxies)
    latencies = [view.latency_s for view in proxies if view.latency_s is not None]
    shown = sorted(targets, key=lambda view: -view.granted)[:TARGETS_MAX]
    return [
        Metric("lycosa_proxies", "gauge", "Proxies, by what is known of them everywhere.", _by_state(states, {})),
        Metric("lycosa_proxy_latency_median_seconds", "gauge", "Half of them are nearer.", _one(latencies)),
        _sum("uses_total", "Requests through proxies of the pool.", sum(view.uses for view in proxies)),
        _sum("good_total", "Requests that went well.", sum(view.good for view in proxies)),
        _sum("bad_total", "Requests that were refused or broke.", sum(view.bad for view in proxies)),
        Metric("lycosa_proxy_targets", "gauge", "Targets.", [({}, len(targets))]),
        Metric("lycosa_proxy_api_leases", "gauge", "Leases of the API that were not given back.", [({}, held)]),
        Metric(
            "lycosa_proxy_target_proxies",
            "gauge",
            "Proxies of a target.",
            [sample for view in shown for sample in _by_state(view.states, {"target": view.target})],
        ),
        _of("leases", "gauge", "Leases under way.", [(view.target, view.leases) for view in shown]),
        _of("granted_total", "counter", "Leases.", [(view.target, view.granted) for view in shown]),
        _of(
            "leaked_total", "counter", "Leases not given back in time.", [(view.target, view.leaked) for view in shown]
        ),
        _of("stale_total", "counter", "Leases given back too late.", [(view.target, view.stale) for view in shown]),
        _of(
            "interval_seconds",
            "gauge",
            "Least time between two leases of one proxy.",
            [(view.target, view.interval_s) for view in shown],
        ),
    ]


def _by_state(counts: Mapping[ProxyState, int], labels: Mapping[str, str]) -> Samples:
    return [({**labels, "state": str(state)}, counts.get(state, 0)) for state in ProxyState]


def _one(latencies: Sequence[float]) -> Samples:
    return [({}, median(latencies))] if latencies else []


def _sum(name: str, said: str, value: float) -> Metric:
    return Metric(f"lycosa_proxy_{name}", "counter", said, [({}, value)])


def _of(name: str, kind: str, said: str, values: Sequence[tuple[str, float]]) -> Metric:
    return Metric(f"lycosa_proxy_target_{name}", kind, said, [({"target": target}, value) for target, value in values])
