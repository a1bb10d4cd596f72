"""The limit on the number of files and sockets that this process may have open."""

from __future__ import annotations

import resource


def raise_open_files_limit(needed: int) -> int:
    """Raise the limit to `needed`, or to the system's maximum. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(needed, soft)
    if soft < needed:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
