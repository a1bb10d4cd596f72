"""Amounts as people say them: the one way in which messages, summaries and tables write a number of bytes."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(size_bytes: float) -> str:
    """Return a number of bytes: "999 B", "1.0 MB", "162 MB". Units are powers of 1000."""
    unit = 0
    while size_bytes >= 999.5 and unit < len(UNITS) - 1:
        size_bytes /= 1000
        unit += 1
    return f"{size_bytes:.1f} {UNITS[unit]}" if unit and size_bytes < 9.95 else f"{size_bytes:,.0f} {UNITS[unit]}"
