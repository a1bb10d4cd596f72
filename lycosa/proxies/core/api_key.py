"""Access to the API of a proxy pool: by a key that cannot be guessed; without a key, from this machine only."""

from __future__ import annotations

from ipaddress import ip_address

from lycosa.core.errors import UsageError

KEY_MIN = 16
"""Characters of a key."""

LOCAL_NAMES = frozenset({"localhost"})


def checked_key(key: str, where: str) -> str:
    """Return the key. Raises `UsageError` for one that can be guessed, or that no header can hold."""
    if not (key.isascii() and key.isprintable() and " " not in key and len(key) >= KEY_MIN):
        raise UsageError(f"{where}: write {KEY_MIN} or more ASCII letters and digits, such as: openssl rand -hex 16")
    return key


def is_loopback(host: str) -> bool:
    """Whether an address or name, without port, is this machine for certain."""
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") in LOCAL_NAMES
