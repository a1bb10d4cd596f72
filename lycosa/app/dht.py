"""Open a DHT node, and serve its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lycosa.core.metrics import exposition
from lycosa.dht.bootstrap import load_torrent
from lycosa.dht.core.endpoints import family
from lycosa.dht.metrics import node_metrics
from lycosa.dht.session import DhtSession, open_node
from lycosa.infra.web.metrics_page import serve_metrics

__all__ = ["DhtSession", "load_torrent", "open_node", "serve_node_metrics"]


@asynccontextmanager
async def serve_node_metrics(session: DhtSession, where: str | None, *, allow_remote: bool) -> AsyncIterator[str]:
    """Serve the metrics of the nodes at `where` (`[ADDRESS:]PORT`), if given. Yield the URL or ""."""
    if where is None:
        yield ""
        return

    async def page() -> bytes:
        nodes = zip(session.endpoints, session.status(), strict=True)
        return exposition(node_metrics([(family(endpoint), status) for endpoint, status in nodes]))

    async with serve_metrics(where, page, allow_remote=allow_remote) as url:
        yield url
