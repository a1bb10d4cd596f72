"""Write to a connection that may be closed.

asyncio's own writers drop the data silently, and those of uvloop raise RuntimeError.
"""

from __future__ import annotations

import asyncio
import errno
import os


def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write without waiting. Raises `ConnectionResetError` if the connection is closed or closing."""
    if writer.is_closing():
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    writer.write(data)


def is_closed(error: RuntimeError) -> bool:
    """Return whether this is uvloop's error for a write to a closed connection."""
    return "the handler is closed" in str(error)
