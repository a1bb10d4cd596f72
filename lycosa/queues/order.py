"""The order in which items leave a queue, and the priority of an item: numbers before text, the lowest first.

SQLite sorts values in this order natively. Redis sorts the bytes of `sort_key` instead.
"""

from __future__ import annotations

import math
import struct
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

PRIORITY_INT_MAX = (1 << 63) - 1


class Order(Enum):
    """FIFO: first in, first out. LIFO: last in, first out. PRIORITY: lowest priority first, FIFO among equals."""

    FIFO = "Queue"
    LIFO = "LifoQueue"
    PRIORITY = "PriorityQueue"


def priority_of(item: Any) -> int | float | str:
    """Return the item, or its first element or field. Raise `TypeError` if that is neither a number nor text."""
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
    raise TypeError(f"{first!r} is not a priority: put a number or text, or a tuple that begins with one")


def sort_key(priority: float | str) -> bytes:
    """Return bytes that sort like priorities. No key is a prefix of another.

    A number is stored as the nearest float and the difference from it: a float cannot hold all digits of a large
    integer.
    """
    if isinstance(priority, str):
        # NUL is escaped, so the text cannot contain the two NULs that end it.
        return b">" + priority.encode().replace(b"\0", b"\0\xff") + b"\0\0"
    number = float(priority) + 0.0  # -0.0 is 0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    # The bits sort like the floats if the sign bit is flipped and, for negative floats, all other bits as well.
    bits ^= (1 << 64) - 1 if bits >> 63 else 1 << 63
    rest = int(priority) - int(number) if isinstance(priority, int) else 0
    return b"=" + struct.pack(">QH", bits, rest + (1 << 15))
