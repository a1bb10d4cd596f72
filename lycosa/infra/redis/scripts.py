"""Lua scripts, assembled from files of a package and called by their checksum.

    CLEAR = LuaScript("lycosa.queues.redis", ["common", "clear"], {"CHUNK": 1000})
    CLEAR.run(client, keys, arguments)                # with a blocking client
    await CLEAR.run_async(client, keys, arguments)    # with a client for asyncio

A script is the concatenation of files PACKAGE/lua/NAME.lua, because Redis scripts cannot share code. The constants
precede it as local variables, so values that Python and Lua share are defined in Python only. A `#!lua` line in the
last file becomes the first line of the script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Any

from lycosa.infra.redis.driver import redis_package

Constant = str | int | float | Sequence[str] | Mapping[str, str]


@dataclass(eq=False, repr=False)
class LuaScript:
    """A script. `key_names` are the names of local variables for its KEYS.

    The files in `blocks` are enclosed in do ... end, because Lua allows only 200 local variables in a scope.

    redis-py's `register_script` answers NOSCRIPT with SCRIPT LOAD and a second EVALSHA, which has four problems. On a
    cluster SCRIPT LOAD goes to all masters, so the call fails if any of them is down. Some managed servers refuse the
    command. After a failover between the two calls, the second call gets NOSCRIPT again. A pipeline of a cluster does
    not accept registered scripts. EVAL goes to the server of the keys only, and runs the script in the same round trip.
    """

    package: str
    parts: Sequence[str]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    key_names: Sequence[str] = field(default=(), kw_only=True)
    blocks: Sequence[str] = field(default=(), kw_only=True)

    @cached_property
    def text(self) -> bytes:
        folder = files(self.package) / "lua"
        codes = {part: (folder / f"{part}.lua").read_text("utf-8") for part in self.parts}
        last = self.parts[-1]
        shebang = ""
        if codes[last].startswith("#!"):
            shebang, _, codes[last] = codes[last].partition("\n")
        codes |= {part: f"do\n{codes[part]}\nend" for part in self.blocks}
        head = [shebang] if shebang else []
        if self.key_names:
            head.append(f"local {', '.join(self.key_names)} = unpack(KEYS)")
        head += (f"local {name} = {_lua(value)}" for name, value in self.constants.items())
        return "\n".join([*head, *codes.values()]).encode()

    @cached_property
    def checksum(self) -> str:
        return sha1(self.text, usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the command for a server that has loaded the script."""
        return ("EVALSHA", self.checksum, len(keys), *keys, *arguments)

    def run(self, client: Any, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run the script, in two round trips if the server has not loaded it yet. Raises `driver_errors()`."""
        command = self.command(keys, arguments)
        try:
            return client.execute_command(*command)
        except redis_package().exceptions.NoScriptError:
            return client.execute_command("EVAL", self.text, *command[2:])

    async def run_async(self, client: Any, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        command = self.command(keys, arguments)
        try:
            return await client.execute_command(*command)
        except redis_package().exceptions.NoScriptError:
            return await client.execute_command("EVAL", self.text, *command[2:])


def _lua(value: Constant) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_lua(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence):
        return "{" + ", ".join(map(_lua, value)) + "}"
    return repr(value)
