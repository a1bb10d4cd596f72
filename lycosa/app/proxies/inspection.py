"""The parts of a pool's HTTP API that commands use, too."""

from __future__ import annotations

from lycosa.proxies.api.schemas import (
    PoolStats,
    VerdictInfo,
    explanation_text,
    pool_stats,
    proxy_info,
    select_proxies,
    verdict_info,
)
from lycosa.proxies.api.snapshot_cache import SnapshotCache

__all__ = [
    "PoolStats",
    "SnapshotCache",
    "VerdictInfo",
    "explanation_text",
    "pool_stats",
    "proxy_info",
    "select_proxies",
    "verdict_info",
]
