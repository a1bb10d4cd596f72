"""The script of the frontier: its files put together, called by its checksum.

One script, since Redis shares no code between two. A server that does not know it (new, restarted, a replica that took
over) is sent the text once.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

PARTS = ("base", "hosts", "records", "leases", "verbs", "exchange")


@cache
def script() -> tuple[bytes, str]:
    """Return the text of the script and its checksum."""
    folder = files("lycosa.frontiers.redis") / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in PARTS).encode()
    return text, sha1(text, usedforsecurity=False).hexdigest()


async def run(client: Any, key: str, *arguments: Any) -> list[Any]:
    """Run the script on the partition behind `key`: one round trip."""
    text, checksum = script()
    try:
        found: list[Any] = await client.execute_command("EVALSHA", checksum, 1, key, *arguments)
    except NoScriptError:
        found = await client.execute_command("EVAL", text, 1, key, *arguments)
    return found
