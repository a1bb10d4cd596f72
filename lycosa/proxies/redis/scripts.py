"""The two Lua scripts of a pool on Redis, and their keys: one script for all proxies, one for the members of a target.

Both scripts use the constants of the pool in memory. POOL_KEYS and TARGET_KEYS map the names used in the scripts to
stored keys, which are short because each target has its own set.
"""

from __future__ import annotations

from types import ModuleType
from urllib.parse import quote

from lycosa.infra.redis.scripts import Constant, LuaScript
from lycosa.proxies.core.pool import backoff, health, leases, order, pool, rate_guard, target, target_state

PACKAGE = "lycosa.proxies.redis"

POOL_KEYS = {
    "proxies": "p",
    "health": "h",
    "by_latency": "n",
    "prices": "c",
    "targets": "t",
    "reached_at": "a",
    "fill_version": "v",
    "facts_version": "e",
}

TARGET_KEYS = {
    "target": "m",
    "filled": "f",
    "members": "p",
    "ready": "r|",  # followed by the tier
    "waiting": "w",
    "leases": "l",
    "deadlines": "d",
    "sessions": "s",
    "session_ends": "u",
    "exit": "x|",  # followed by the exit address
}


def _constants(module: ModuleType, *names: str) -> dict[str, Constant]:
    return {name: getattr(module, name) for name in names}


SHARED = _constants(backoff, "COOL_MIN_S", "DOUBLINGS_MAX") | _constants(target_state, "SMOOTHING")
POOL_SCRIPT = LuaScript(
    PACKAGE,
    ("common", "pool"),
    {
        "KEYS_BY_NAME": POOL_KEYS,
        **SHARED,
        **_constants(health, "UNKNOWN_LATENCY_S", "DOWN_S", "DOWN_MAX_S", "DOWNS_MAX", "UNCHECKED"),
        **_constants(pool, "PROXIES_MAX", "TARGETS_MAX", "PRICES_MAX"),
    },
)
TARGET_SCRIPT = LuaScript(
    PACKAGE,
    ("common", "members", "target"),
    {
        "KEYS_BY_NAME": TARGET_KEYS,
        **SHARED,
        **_constants(target_state, "DECAY", "LATENCY_REFERENCE_S", "WORTH_MIN", "SAME_EXIT"),
        "TARGET_DOWN_S": target.DOWN_S,
        "TARGET_DOWN_MAX_S": target.DOWN_MAX_S,
        **_constants(rate_guard, "BAN_HOLD_S", "DOWN_HOLD_S", "FADE_S"),
        **_constants(rate_guard, "WINDOW_S", "WINDOW_MIN", "SLOWDOWN", "INTERVAL_MAX_S"),
        **_constants(order, "DRAW_MAX", "DRAW_SHARE", "LAST"),
        **_constants(leases, "TOKENS_PER_S", "SESSIONS_MAX"),
        "KINDS_MAX": pool.KINDS_MAX,
    },
)


def pool_prefix(pool_name: str) -> str:
    """Return the prefix of the keys of a pool."""
    return f"lycosa:proxies:{{{pool_name}}}:"


def target_prefix(pool_name: str, target_name: str) -> str:
    """Return the prefix of the keys of a target. Its hash tag is unique, so a cluster spreads the targets."""
    return f"lycosa:proxies:{{{pool_name}/{quote(target_name, safe='/:')}}}:"


def keys_of(prefix: str) -> tuple[str, str]:
    """Return the KEYS of a call: the prefix, which never exists as a key, and a key that exists.

    If a call has both, a cluster that is moving the keys to another server answers TRYAGAIN until all keys are moved.
    """
    return (prefix, prefix + POOL_KEYS["proxies"])
