"""The base class of fetcher wrappers: each is an `http.ports.Fetcher` that extends the `fetch` of another fetcher.

A wrapper passes on the options that it does not use. `app/crawl/fetchers.py` defines their order.
"""

from __future__ import annotations

from lycosa.http.ports import Fetcher


class FetcherWrapper:
    """Wraps `fetcher` and closes it. Subclasses implement `fetch`."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def close(self) -> None:
        await self._fetcher.close()
