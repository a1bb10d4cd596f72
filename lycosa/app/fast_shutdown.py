"""A run that has to end at once does not wait for servers, and reports what those that do not answer have missed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lycosa.config import Settings
from lycosa.infra.shutdown import ShutdownDeadline, shutdown_deadline

log = logging.getLogger(__name__)

PAGES = "pages since the last commit are fetched again"
PROXIES = "leased proxies come back when their leases expire, and their last uses do not count"


@contextmanager
def fast_shutdown(lost: str = PROXIES, report: Callable[[str], None] = log.warning) -> Iterator[ShutdownDeadline]:
    """Yield the deadline of all servers that are opened in the block, and report those that did not answer.

    `lost` says what a server misses that does not answer.
    """
    with shutdown_deadline() as deadline:
        try:
            yield deadline
        finally:
            for problem in deadline.abandoned.values():
                report(f"{problem}: not waited for any more: {lost}")


def lost_by_fast_shutdown(settings: Settings) -> str:
    """Return what the servers of a crawl miss if it ends at once."""
    return "; ".join(text for text, is_used in ((PAGES, settings.frontier), (PROXIES, settings.proxy_pool)) if is_used)
