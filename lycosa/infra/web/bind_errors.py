"""The reason why a server cannot listen at an address. Python's messages also repeat the address."""

from __future__ import annotations

import os
import socket


def bind_error_text(error: OSError | UnicodeError) -> str:
    """Return the system's message for the reason, without the address."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return (getattr(error, "strerror", None) or str(error)).lower()
