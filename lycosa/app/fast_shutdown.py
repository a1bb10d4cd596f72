"""Ends a run at once: it does not wait for servers that do not answer, and reports what is lost there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lycosa.config import Settings
from lycosa.infra.shutdown import ShutdownDeadline, shutdown_deadline

log = logging.getLogger(__name__)

PAGES = "pages since the last commit are fetched again"
PROXIES = "leased proxies are free again when their leases expire, and their last uses do not count"


@contextmanager
def fast_shutdown(lost: str = PROXIES, report: Callable[[str], None] = log.warning) -> Iterator[ShutdownDeadline]:
    """Yield a deadline for all servers that are opened in the block. At the end, report servers that did not answer.

    `lost` says, in these reports, what is lost at a server that does not answer.
    """
    with shutdown_deadline() as deadline:
        try:
            yield deadline
        finally:
            for problem in deadline.abandoned.values():
                report(f"{problem}: no longer waiting for it: {lost}")


def lost_by_fast_shutdown(settings: Settings) -> str:
    """Return what is lost at the servers of a crawl if it ends at once, as text for `fast_shutdown`."""
    return "; ".join(text for text, is_used in ((PAGES, settings.frontier), (PROXIES, settings.proxy_pool)) if is_used)
