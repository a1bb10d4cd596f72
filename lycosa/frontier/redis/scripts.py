"""The two scripts of the frontier on Redis: one for workers, one for operations from outside.

Redis shares no code between scripts, so each is put together from files, of which they share most.
"""

from __future__ import annotations

from lycosa.infra.redis.scripts import LuaScript

PACKAGE = "lycosa.frontier.redis"
SHARED = ("base", "limits", "telemetry", "hosts", "claims", "records", "leases")

WORKER_SCRIPT = LuaScript(PACKAGE, (*SHARED, "verbs", "exchange"))
OPERATIONS_SCRIPT = LuaScript(PACKAGE, (*SHARED, "listing", "watching", "checking"), blocks=("watching", "checking"))


def keys_of(prefix: str) -> tuple[str, str]:
    """Return the KEYS of a call for the partition of this prefix: one key that exists, and one that never does.

    While a cluster moves a partition to another server, some of its keys are here and some there. Redis looks for the
    keys that a call names, and for no others: with a single one it would run the script on the few keys at either end.
    With these two it answers TRYAGAIN until all have moved.
    """
    return (prefix, f"{prefix}m")
