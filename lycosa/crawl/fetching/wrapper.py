"""What the wrappers of a fetcher share. Each is a `http.ports.Fetcher` that adds something to another one's `fetch`.

Options that a wrapper does not use it passes on. `app/crawl/fetchers.py` has the order of the wrappers.
"""

from __future__ import annotations

from lycosa.http.ports import Fetcher


class FetcherWrapper:
    """Holds the wrapped fetcher, and closes it. Subclasses implement `fetch`."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def close(self) -> None:
        """Close the wrapped fetcher."""
        await self._fetcher.close()
