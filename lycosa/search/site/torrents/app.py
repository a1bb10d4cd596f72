"""The torrent site over a `TorrentSearch`. It stores nothing about its visitors except their takedown requests, and
works without JavaScript.

docs/torrent-search.md describes its paths. /healthz returns {"ok": true, "documents": n, "exact": true}, or 503. Every
torrent on a page is read from the store for each request, so a takedown takes effect with the next request.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from lycosa.core.errors import LycosaError
from lycosa.infra.web.pages import STATIC, SecurityHeaders, page_templates
from lycosa.infra.web.site_processes import AnswerInProcesses, SiteProcesses
from lycosa.search.site.app import TEMPLATES
from lycosa.search.site.limits import BURST, PER_MINUTE, ClientLimit
from lycosa.search.site.responses import Answer, add_compression, conditional
from lycosa.search.site.torrents.admin.administration import Administration
from lycosa.search.site.torrents.admin.parts import AdminParts
from lycosa.search.site.torrents.api import TorrentApi
from lycosa.search.site.torrents.failures import Failures
from lycosa.search.site.torrents.feeds import TorrentFeeds
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.search.site.torrents.statistics import Statistics
from lycosa.search.site.torrents.torznab import Torznab, bad_credentials
from lycosa.search.torrents import TorrentSearch

NOT_FOR_ROBOTS = ("/search", "/api/", "/torznab/")
"""Torrents are not in this list: robots that may not read a page do not see that it is `noindex`, or was removed."""
KEYED = {"/api/search", "/api/counts", "/api/suggest", "/api/torrents/{infohash}", "/torznab/api"}
"""Paths for programs, which need a key if the site has keys. What pages link to stays open, so keys hide no data."""
UNPASSED = ("/admin", "/takedown", "/static/")
"""Paths that are never passed to child processes: administration keeps its long tasks in this process."""


def build_torrent_site(
    search: TorrentSearch,
    *,
    title: str = "Lycosa",
    base: str = "",
    admin: AdminParts | None = None,
    per_minute: float = PER_MINUTE,
    processes: SiteProcesses | None = None,
    in_child: bool = False,
) -> Starlette:
    """Return the site as an ASGI application. Without `admin`, it has no takedowns and no administration.

    `base` is the path of the site, such as "/torrents"; "" is the root. Each client on another machine may send
    `per_minute` requests on average, and BURST at once. `processes` answer most requests. With `in_child`, the site
    runs in one of these processes, and its parent limits the clients.
    """
    templates = page_templates(TEMPLATES)
    templates.globals.update(site=title, takedowns=admin is not None)
    statistics = Statistics(search)
    pages = TorrentPages(search, statistics, templates, base)
    failures = Failures(pages, base)
    feeds, api = TorrentFeeds(search, title), TorrentApi(search, pages, failures)
    torznab = Torznab(search, title, failures.log)
    administration = Administration(admin, search, pages, failures.too_many) if admin else None
    routes = {
        "/": pages.home,
        "/search": pages.search,
        "/search.{form}": feeds.search,
        "/torrent/{infohash}.json": api.torrent,
        "/torrent/{infohash}": pages.torrent,
        "/browse": pages.browse,
        "/statistics": pages.statistics,
        "/language/{code}": pages.choose_language,
        "/api": api.documentation,
        "/api/openapi.json": api.openapi,
        "/api/search": api.search,
        "/api/counts": api.counts,
        "/api/suggest": api.suggest,
        "/api/torrents/{infohash}": api.torrent,
        "/torznab/api": torznab.answer,
        "/opensearch.xml": feeds.opensearch,
        "/suggest": feeds.suggestions,
        "/healthz": api.health,
    }
    paths: list[BaseRoute] = [
        *(Route(path, conditional(_keyed(path, answer, administration))) for path, answer in routes.items()),
        *_admin_routes(administration),
        Route("/robots.txt", lambda _: PlainTextResponse(_robots(base))),
        Route("/favicon.ico", lambda _: pages.redirect("/static/favicon.svg", 301)),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
    ]
    app = Starlette(
        routes=[Mount(base, routes=paths)] if base else paths,
        exception_handlers={
            HTTPException: failures.http_error,
            LycosaError: failures.failure,
            Exception: failures.crash,
        },
    )
    add_compression(app)
    if in_child:
        return app
    if processes is not None:
        unpassed = tuple(base + path for path in UNPASSED)
        app.add_middleware(AnswerInProcesses, processes=processes, is_passed=lambda path: not path.startswith(unpassed))
    free, too_many = f"{base}/static/", failures.too_many
    app.add_middleware(ClientLimit, per_minute=per_minute, burst=BURST, free=free, too_many=too_many)
    app.add_middleware(SecurityHeaders)
    return app


def _robots(base: str) -> str:
    return "User-agent: *\n" + "".join(f"Disallow: {base}{path}\n" for path in NOT_FOR_ROBOTS)


def _admin_routes(administration: Administration | None) -> list[Route]:
    answers = administration.pages() if administration else {}
    return [Route(path, _uncached(answer), methods=["GET", "POST"]) for path, answer in answers.items()]


def _keyed(path: str, answer: Answer, administration: Administration | None) -> Answer:
    """Refuse programs without a key, if the site has keys. Pages and the API description need none."""
    if administration is None or path not in KEYED:
        return answer

    async def respond(request: Request) -> Response:
        if await administration.accepts(request):
            return await answer(request)
        return bad_credentials() if path.startswith("/torznab/") else JSONResponse({"error": "wrong apikey"}, 401)

    return respond


def _uncached(answer: Answer) -> Answer:
    async def respond(request: Request) -> Response:
        response = await answer(request)
        response.headers.update({"cache-control": "no-store", "x-robots-tag": "noindex"})
        return response

    return respond
