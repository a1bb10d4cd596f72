"""A run that is to end at once waits for no server, and says what one that is away has not heard."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lycosa.config import Settings
from lycosa.servers.patience import Patience, patience

log = logging.getLogger(__name__)

PAGES = "pages since the last commit are fetched again"
PROXIES = "proxies on loan come back when their leases are over, and their last uses do not count"


@contextmanager
def hurrying(settings: Settings) -> Iterator[Patience]:
    """Have what is told to hurry, for the servers that a run opens in the block."""
    with patience() as patient:
        try:
            yield patient
        finally:
            lost = [text for text, is_used in ((PAGES, settings.frontier), (PROXIES, settings.proxy_pool)) if is_used]
            for why in patient.left.values():
                log.warning("%s: not waited for any more: %s", why, "; ".join(lost))
