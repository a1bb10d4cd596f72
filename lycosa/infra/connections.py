"""Writing to a peer that may be gone. It is an OSError on every loop, as for reading.

asyncio drops what is written to a closed connection, uvloop raises RuntimeError for it.
"""

from __future__ import annotations

import asyncio
import errno
import os


def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write without waiting. Raises `ConnectionResetError` for a connection that is closed, or about to be."""
    if writer.is_closing():
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    writer.write(data)


def is_closed(error: RuntimeError) -> bool:
    """Tell whether it is that of uvloop, from a library that writes by itself."""
    return "the handler is closed" in str(error)
