"""Calls to the two scripts of a pool on Redis: one for all proxies, one for those of a target."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec

from lycosa.proxies.target_script import Call
from lycosa.servers.redis import package_redis
from lycosa.servers.redis_connection import Server


@cache
def script(name: str) -> tuple[bytes, str]:
    """Return the text of a script and its checksum."""
    folder = files("lycosa.proxies") / "lua"
    text = b"\n".join((folder / f"{part}.lua").read_bytes() for part in ("common", name))
    return text, sha1(text, usedforsecurity=False).hexdigest()


class Calls:
    """The calls of one pool. `now` returns the time for the scripts (unix seconds), "" for that of the server."""

    def __init__(self, server: Server, client: Any, pool: str, now: Callable[[], str]) -> None:
        self._server = server
        self._client = client
        self._pool = pool
        self._now = now

    async def target(self, target: str, call: Call) -> bytes:
        """Make a call for a target, whose keys are in one slot. Raises `StateError`."""
        return await self._run("target", f"lycosa:proxies:{{{self._pool}/{quote(target, safe='/:')}}}:", call)

    async def everywhere(self, command: str, **arguments: Any) -> Any:
        """Make a call about proxies as such. Raises `StateError`."""
        call = Call(command, msgspec.msgpack.encode(arguments))
        return msgspec.msgpack.decode(await self._run("everywhere", f"lycosa:proxies:{{{self._pool}}}:", call))

    async def targets(self) -> list[str]:
        """Return the targets, the one first that was used longest ago."""
        found = await self._server.patiently(lambda: self._client.zrange(f"lycosa:proxies:{{{self._pool}}}:t", 0, -1))
        return [name.decode() for name in found]

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def _run(self, name: str, prefix: str, call: Call) -> bytes:
        text, checksum = script(name)
        arguments = (1, prefix, self._now(), call.command, call.arguments)

        async def act() -> bytes:
            try:
                return bytes(await self._client.execute_command("EVALSHA", checksum, *arguments))
            except package_redis().exceptions.NoScriptError:
                return bytes(await self._client.execute_command("EVAL", text, *arguments))

        return await self._server.patiently(act)
