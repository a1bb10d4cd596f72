"""In which order items come out, and the priority of an item: numbers before text, the lowest first.

SQLite sorts so by itself; `sortable` makes keys of the same order for the other back ends.
"""

from __future__ import annotations

import math
import struct
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

PRIORITY_INT_MAX = (1 << 63) - 1


class Order(Enum):
    """First in, first out; last in, first out; lowest priority first, first in, first out among equals."""

    FIFO = "Queue"
    LIFO = "LifoQueue"
    PRIORITY = "PriorityQueue"


def priority_of(item: Any) -> int | float | str:
    """Return the item itself, or the first thing in it. Raises `TypeError` when that is no number and no text."""
    first = item
    if isinstance(item, tuple | list) and item:
        first = item[0]
    elif is_dataclass(item) and not isinstance(item, type):
        first = getattr(item, fields(item)[0].name)
    elif hasattr(item, "__struct_fields__"):
        first = getattr(item, item.__struct_fields__[0])
    if isinstance(first, str) or (isinstance(first, float) and not math.isnan(first)):
        return first
    if isinstance(first, int) and abs(first) <= PRIORITY_INT_MAX:
        return first
    raise TypeError(f"{first!r} is no priority: put a number or text, or a tuple that begins with one")


def sortable(priority: float | str) -> bytes:
    """Return bytes that sort as priorities do, numbers before text; none is the beginning of another.

    A number is the float next to it, and how far that is from it: no float has all the digits of a large integer.
    """
    if isinstance(priority, str):
        return b">" + priority.encode().replace(b"\0", b"\0\xff") + b"\0\0"
    number = float(priority) + 0.0  # -0.0 is 0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    bits ^= (1 << 64) - 1 if bits >> 63 else 1 << 63
    rest = int(priority) - int(number) if isinstance(priority, int) else 0
    return b"=" + struct.pack(">QH", bits, rest + (1 << 15))
