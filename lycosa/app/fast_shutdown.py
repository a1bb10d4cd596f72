"""End a run without waiting for servers that do not answer, and report what is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lycosa.config import Settings
from lycosa.infra.shutdown import ShutdownDeadline, shutdown_deadline

log = logging.getLogger(__name__)

PAGES = "pages fetched since the last commit are fetched again"
PROXIES = "leased proxies are free again when their leases expire, and the results of their requests are not recorded"


@contextmanager
def fast_shutdown(lost: str = PROXIES, report: Callable[[str], None] = log.warning) -> Iterator[ShutdownDeadline]:
    """Yield a deadline for all connections opened in the block. At the end, report servers that did not answer.

    `lost` is the end of each report.
    """
    with shutdown_deadline() as deadline:
        try:
            yield deadline
        finally:
            for problem in deadline.abandoned.values():
                report(f"{problem}; stopped waiting: {lost}")


def lost_by_fast_shutdown(settings: Settings) -> str:
    """Describe what a crawl with these settings loses in a fast shutdown."""
    return "; ".join(text for text, is_used in ((PAGES, settings.frontier), (PROXIES, settings.proxy_pool)) if is_used)
