"""Parse and format counts, durations and sizes."""

from __future__ import annotations

import re
from math import isfinite

DAY_S = 86_400.0
DURATION_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S, "w": 7 * DAY_S}

_SIZE_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
_SIZE_UNITS |= {"kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_SHOWN_SIZES = ("B", "kB", "MB", "GB", "TB")
_SHOWN_DURATIONS = (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def parse_duration(text: str) -> float | None:
    """Return the seconds of "90", "90s", "30m", "2h", "1.5d" or "2w"; None for anything else."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or (found[2] or "s") not in DURATION_UNITS_S:
        return None
    seconds = float(found[1]) * DURATION_UNITS_S[found[2] or "s"]
    return seconds if isfinite(seconds) else None


def parse_size(text: str) -> int | None:
    """Return the bytes of "500000", "10MB" (powers of 1000) or "1.5 KiB" (powers of 1024); None for anything else."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or found[2] not in _SIZE_UNITS:
        return None
    size_bytes = float(found[1]) * _SIZE_UNITS[found[2]]
    return round(size_bytes) if isfinite(size_bytes) else None


def format_count(number: int, noun: str) -> str:
    """Return "1 page", "2 pages", "3 proxies", "4 successes", "5 hashes"."""
    if number == 1:
        return f"{number:,} {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith(("s", "sh")) else f"{noun}s"
    return f"{number:,} {plural}"


def format_size(size_bytes: float) -> str:
    """Return "999 B", "1.0 MB" or "162 MB", in powers of 1000."""
    unit = 0
    while size_bytes >= 999.5 and unit < len(_SHOWN_SIZES) - 1:
        size_bytes /= 1000
        unit += 1
    return (
        f"{size_bytes:.1f} {_SHOWN_SIZES[unit]}"
        if unit and size_bytes < 9.95
        else f"{size_bytes:,.0f} {_SHOWN_SIZES[unit]}"
    )


def format_duration(seconds: float) -> str:
    """Return the two largest units: "0.2 s", "59 s", "1 min 30 s", "2 d 3 h"; "0 s" for a negative number."""
    total = max(0, round(seconds))
    for unit, unit_s, rest, rest_s in _SHOWN_DURATIONS:
        if total >= unit_s:
            left = total % unit_s // rest_s
            return f"{total // unit_s:,} {unit}" + (f" {left} {rest}" if left else "")
    return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{total} s"


def format_rough_duration(seconds: float) -> str:
    """Return the largest unit, rounded: "13 h"; days from 36 hours on."""
    for unit, unit_s, *_ in _SHOWN_DURATIONS:
        if round(seconds / unit_s) >= (2 if unit == "d" else 1):
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
