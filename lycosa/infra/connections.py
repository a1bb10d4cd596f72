"""Writing to a peer that may be gone: an OSError on every event loop, as for reading.

For a closed connection asyncio drops the data, and uvloop raises RuntimeError.
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
    """Return whether this is uvloop's error for a closed connection, from a library that writes by itself."""
    return "the handler is closed" in str(error)
