"""The API and the pages of a proxy pool as one ASGI application.

    /api/...           the API (`operations`), described by /api/openapi.json
    /metrics /healthz  for Prometheus, for whoever watches
    /                  the pool, its targets
    /target            one target: its proxies, and why each would be lent or not
    /proxies           all proxies

Pages need no JavaScript and change nothing; what they may load is in `infra.web.look.HEADERS`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
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
from lycosa.proxies.api.api import Api
from lycosa.proxies.api.history import History
from lycosa.proxies.api.operations import OPERATIONS, openapi_document
from lycosa.proxies.api.pages import Pages
from lycosa.proxies.api.schemas import ErrorResponse, encode
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.outcomes.outcome import OutcomeRule
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyPool

JSON = "application/json"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
STATUSES: tuple[tuple[type[LycosaError], int], ...] = ((UsageError, 400), (NoProxy, 409), (StateError, 503))


def build_app(
    pool: ProxyPool,
    *,
    key: str = "",
    name: str = "",
    rules_of: Callable[[str], Sequence[OutcomeRule]] = lambda _: (),
    now: Callable[[], float] = time.time,
) -> Starlette:
    """Return the application over a pool, which stays its owner's to close.

    `key` is what callers have to know (`proxies.core.api_key`), "" lets in this machine only. `name` is what the pages
    call the pool, `rules_of` says what answers of a target mean.
    """
    looks, history, choices = SnapshotCache(pool), History(pool, now), Choices(now)
    api, pages = Api(pool, looks, rules_of, now, choices), Pages(pool, looks, history, name, now, choices)
    description = encode(openapi_document())

    async def describe(_: Request) -> Response:
        return Response(description, media_type=JSON)

    async def favicon(_: Request) -> Response:
        return RedirectResponse("/static/favicon.svg", 301)

    async def fail(request: Request, error: Exception) -> Response:
        if wants_json(request.url.path):
            status, line = error_line(error)
            headers = error.headers if isinstance(error, HTTPException) else None
            return Response(encode(ErrorResponse(line)), status, headers, JSON)
        return pages.failed(*error_line(error))

    return Starlette(
        routes=[
            *(
                Route(each.path, _answers(getattr(api, each.name), each.method), methods=[each.method])
                for each in OPERATIONS
            ),
            Route("/api/openapi.json", describe),
            Route("/", _answers(pages.home)),
            Route("/target", _answers(pages.target)),
            Route("/proxies", _answers(pages.proxies)),
            Route("/api", pages.api),
            Route("/favicon.ico", favicon),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(Guard, key=key)],
        exception_handlers={HTTPException: fail, LycosaError: fail, Exception: fail},
        lifespan=_following(history),
    )


def _answers(handler: Handler, method: str = "GET") -> Handler:
    """Return a handler that says so when what it looks at does not answer. Who changes something is waited for."""
    if method != "GET":
        return handler

    async def answer(request: Request) -> Response:
        return await with_store_timeout(handler(request))

    return answer


def error_line(error: Exception) -> tuple[int, str]:
    """Return the status and the line of an error. A bug shows nothing of the inside."""
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return status, " ".join(str(error).split()) if status < 500 or isinstance(error, StateError) else "internal error"


def _following(history: History) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(history.follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    return lifespan
