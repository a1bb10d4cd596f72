"""Serve metrics over HTTP at `/metrics`, without a password."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from lycosa.core.metrics import CONTENT_TYPE
from lycosa.infra.web import small_site
from lycosa.infra.web.http_server import ServerResponse
from lycosa.infra.web.small_site import Pages, serve_pages

PATH = "/metrics"
OPTION = "--metrics"

Page = Callable[[], Awaitable[bytes]]


def serve_metrics(where: str, page: Page, *, allow_remote: bool = False) -> AbstractAsyncContextManager[str]:
    """Serve at `where`, which is `[ADDRESS:]PORT`. See `serve_pages`."""
    return serve_pages(where, metrics_pages(page), PATH, option=OPTION, allow_remote=allow_remote)


def metrics_pages(page: Page) -> Pages:
    """Return the metrics page, for a server that also has other pages."""

    async def respond(_query: str) -> ServerResponse:
        return ServerResponse(200, await page(), {"content-type": CONTENT_TYPE})

    return {PATH: respond}


def parse_address(where: str) -> tuple[str, int]:
    """Parse `[ADDRESS:]PORT`. Raises `UsageError`."""
    return small_site.parse_address(where, OPTION)
