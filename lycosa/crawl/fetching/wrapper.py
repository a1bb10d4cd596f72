"""The base of fetcher wrappers. Each is a `http.ports.Fetcher` that adds something to the `fetch` of another one.

A wrapper passes on the options that it does not use. `app/crawl/fetchers.py` has the order of the wrappers.
"""

from __future__ import annotations

from lycosa.http.ports import Fetcher


class FetcherWrapper:
    """Wraps `fetcher` and closes it. Subclasses implement `fetch`."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def close(self) -> None:
        await self._fetcher.close()
