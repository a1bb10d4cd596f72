"""A run that is to end at once waits for no server, and says what one that is away has not heard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lycosa.config import Settings
from lycosa.infra.shutdown import ShutdownDeadline, shutdown_deadline

log = logging.getLogger(__name__)

PAGES = "pages since the last commit are fetched again"
PROXIES = "proxies on loan come back when their leases are over, and their last uses do not count"


@contextmanager
def hurrying(lost: str = PROXIES, say: Callable[[str], None] = log.warning) -> Iterator[ShutdownDeadline]:
    """Have what is told to hurry, for the servers that a run opens in the block; `lost` is what one does not hear."""
    with shutdown_deadline() as deadline:
        try:
            yield deadline
        finally:
            for why in deadline.abandoned.values():
                say(f"{why}: not waited for any more: {lost}")


def lost_of(settings: Settings) -> str:
    """Return what the servers of a crawl do not hear when it ends at once."""
    return "; ".join(text for text, is_used in ((PAGES, settings.frontier), (PROXIES, settings.proxy_pool)) if is_used)
