"""The address of an index on a search server, as users write it.

sphinx://HOST:PORT/NAME                    port 9306 if none is given
sphinx://localhost/NAME?socket=/PATH       a Unix socket
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from lycosa.core.errors import UsageError

SCHEMES = ("sphinx", "manticore")
PORT = 9306
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class SphinxAddress(NamedTuple):
    """An index on a server that speaks SphinxQL."""

    name: str
    host: str
    port: int
    socket: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"sphinx://{host}/{self.name}?socket={self.socket}"
            if self.socket
            else f"sphinx://{host}:{self.port}/{self.name}"
        )


def sphinx_address(text: str) -> SphinxAddress | None:
    """Parse the URL of an index. Return None for a folder, which has no "://". Raises `UsageError`."""
    scheme, found, _ = text.partition("://")
    if not found:
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port or PORT
    except ValueError:
        host, port = "", 0
    name = parts.path[1:] if host else ""
    if scheme not in SCHEMES or not _NAME.fullmatch(name):
        raise UsageError(f"{text}: write the folder of an index, or sphinx://HOST:PORT/NAME (a NAME such as torrents)")
    return SphinxAddress(name, host, port, dict(parse_qsl(parts.query)).get("socket", ""))
