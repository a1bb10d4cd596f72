"""Why nobody can listen at a place, as the system says it: Python puts the address around it, which is told anyway."""

from __future__ import annotations

import os
import socket


def refusal(error: OSError | UnicodeError) -> str:
    """Return what the system says."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return (getattr(error, "strerror", None) or str(error)).lower()
