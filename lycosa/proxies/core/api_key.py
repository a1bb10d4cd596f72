"""The key for the API of a proxy pool. Without a key, only clients on this machine have access."""

from __future__ import annotations

from lycosa.core.errors import UsageError

KEY_MIN = 16
"""In characters."""


def checked_key(key: str, where: str) -> str:
    """Return the key. Raises `UsageError` if it is too short or cannot be sent in a header."""
    if not (key.isascii() and key.isprintable() and " " not in key and len(key) >= KEY_MIN):
        raise UsageError(
            f"{where}: write {KEY_MIN} or more ASCII letters and digits, for example from: openssl rand -hex 16"
        )
    return key
