"""The scripts of the frontier, one for its workers and one for who looks into it; each is called by its checksum.

Redis shares no code between two scripts: so each is put together from files, of which they share most. A server that
does not know one (new, restarted, a replica that took over) is sent the text once.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from lycosa.infra.redis.server import package_redis

SHARED = ("base", "limits", "telemetry", "hosts", "claims", "records", "leases")
WORKERS = (*SHARED, "verbs", "exchange")
OPERATIONS = (*SHARED, "listing", "watching", "checking")
APART = ("watching", "checking")
"""Files whose names are their own: Lua has room for 200 in a block."""


@cache
def script(parts: tuple[str, ...] = WORKERS) -> tuple[bytes, str]:
    """Return the text of a script and its checksum."""
    folder = files("lycosa.frontier.redis") / "lua"
    codes = {part: (folder / f"{part}.lua").read_text("utf-8") for part in parts}
    text = "\n".join(f"do\n{code}\nend" if part in APART else code for part, code in codes.items()).encode()
    return text, sha1(text, usedforsecurity=False).hexdigest()


def called(key: str, *arguments: Any) -> tuple[Any, ...]:
    """Return what follows the script in a command that runs it on the partition behind `key`.

    It names two keys, one that is there and one that never is. While a cluster moves a partition to another server,
    some keys are here and some there, and Redis looks for those that are named, and for no others: with a single one it
    would run the script on what little is at either end. With these it says to try again, until all have moved.
    """
    return (2, key, f"{key}m", *arguments)


async def run(client: Any, key: str, *arguments: Any, parts: tuple[str, ...] = WORKERS) -> Any:
    """Run a script on the partition behind `key`: one round trip."""
    text, checksum = script(parts)
    try:
        return await client.execute_command("EVALSHA", checksum, *called(key, *arguments))
    except package_redis().exceptions.NoScriptError:
        return await client.execute_command("EVAL", text, *called(key, *arguments))
