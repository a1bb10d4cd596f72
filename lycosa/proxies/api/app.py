"""The API and the pages of a proxy pool as one ASGI application.

    /api/...           the API (`operations`), described by /api/openapi.json
    /metrics /healthz  for Prometheus and for health checks
    /                  the pool and its targets
    /target            one target: its proxies, and why each would be leased or not
    /proxies           all proxies
    /api               how to use the API

Pages need no JavaScript and change nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lycosa.core.errors import LycosaError, NoProxy, StateError, UsageError
from lycosa.infra.web.pages import STATIC, SecurityHeaders
from lycosa.proxies.api.access import Guard, wants_json
from lycosa.proxies.api.api import Api, RulesOf
from lycosa.proxies.api.history import History
from lycosa.proxies.api.operations import OPERATIONS, openapi_document
from lycosa.proxies.api.pages import Pages
from lycosa.proxies.api.params import json_response
from lycosa.proxies.api.schemas import ErrorResponse
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyPool

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
STATUSES: tuple[tuple[type[LycosaError], int], ...] = ((UsageError, 400), (NoProxy, 409), (StateError, 503))


def build_app(
    pool: ProxyPool,
    *,
    key: str = "",
    name: str = "",
    rules_of: RulesOf = lambda _: (),
    now: Callable[[], float] = time.time,
) -> Starlette:
    """Return the application. The caller closes the pool.

    `key`: the clients' key; "" allows only this machine. `name`: the pool's name on the pages. `rules_of`: outcome
    rules of a target.
    """
    cache, history, choices = SnapshotCache(pool), History(pool, now), Choices(now)
    api, pages = Api(cache, rules_of, now, choices), Pages(cache, history, name, now, choices)
    description = openapi_document()

    async def describe(_: Request) -> Response:
        return json_response(description)

    async def favicon(_: Request) -> Response:
        return RedirectResponse("/static/favicon.svg", 301)

    async def handle_error(request: Request, error: Exception) -> Response:
        status, text = status_and_text(error)
        if not wants_json(request.url.path):
            return pages.error(status, text)
        return json_response(ErrorResponse(text), status, error.headers if isinstance(error, HTTPException) else None)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(history.run())
        try:
            yield
        finally:
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling

    operations = [
        Route(each.path, _with_timeout(getattr(api, each.name), each.method), methods=[each.method])
        for each in OPERATIONS
    ]
    return Starlette(
        routes=[
            *operations,
            Route("/api/openapi.json", describe),
            Route("/", _with_timeout(pages.home)),
            Route("/target", _with_timeout(pages.target)),
            Route("/proxies", _with_timeout(pages.proxies)),
            Route("/api", pages.api),
            Route("/favicon.ico", favicon),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(Guard, key=key)],
        exception_handlers={HTTPException: handle_error, LycosaError: handle_error, Exception: handle_error},
        lifespan=lifespan,
    )


def _with_timeout(handler: Handler, method: str = "GET") -> Handler:
    """Add a timeout, except to changes: they must not be left half done."""
    if method != "GET":
        return handler

    async def handle(request: Request) -> Response:
        return await with_store_timeout(handler(request))

    return handle


def status_and_text(error: Exception) -> tuple[int, str]:
    """Return the status and text for an error."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    # Other errors may contain secrets, so their text is not sent.
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return status, "internal error" if status == 500 else " ".join(str(error).split())
