"""The search site: pages and a JSON API over a `DocumentIndex`. It stores nothing about its visitors.

    /              the search box and the number of documents
    /search        q, page: results
    /api           documentation of the API
    /api/search    q, limit, offset: results as JSON; {"error": line} with status 400 for an invalid query, 503 if the
                   index cannot be used
    /healthz       {"ok": true, "documents": n}, or 503

The site works without JavaScript. Under the policy in `infra.web.pages`, browsers load files only from the site itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lycosa.core.errors import IndexFailure
from lycosa.infra.web.pages import STATIC, SecurityHeaders, page_templates
from lycosa.search.core.query import LIMIT_MAX, OFFSET_MAX, QUERY_MAX, check_page, page_as_json, parse_query
from lycosa.search.core.results import Hit
from lycosa.search.ports import DocumentIndex
from lycosa.search.site.failure_texts import TEXTS
from lycosa.search.site.limits import BURST, PER_MINUTE, ClientLimit
from lycosa.search.site.responses import Answer, add_compression, conditional

PAGE_SIZE = 10
PAGE_MAX = OFFSET_MAX // PAGE_SIZE
PAGES_SHOWN = 7
SHOWN_URL_MAX = 120
API_LIMIT = 10
API_LIMIT_MAX = min(100, LIMIT_MAX)

_log = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}\Z")
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


class Result(NamedTuple):
    """A hit as the page shows it. `href` is "" if the URL must not be a link. `title` is HTML."""

    hit: Hit
    href: str
    title: str
    host: str
    trail: list[str]
    date: str
    lang: str


def build_site(index: DocumentIndex, *, title: str = "Lycosa", per_minute: float = PER_MINUTE) -> Starlette:
    """Return the site as an ASGI application. The caller closes the index.

    Each client on another machine may send `per_minute` requests on average, and BURST at once.
    """
    site = _Site(index, title)
    answers = {
        "/": site.home,
        "/search": site.search,
        "/api": site.api,
        "/api/search": site.api_search,
        "/healthz": site.health,
    }
    app = Starlette(
        routes=[
            *(Route(path, conditional(_in_thread(answer))) for path, answer in answers.items()),
            Route("/favicon.ico", lambda _: RedirectResponse("/static/favicon.svg", 301)),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        exception_handlers={HTTPException: site.http_error, Exception: site.crash},
    )
    add_compression(app)
    app.add_middleware(ClientLimit, per_minute=per_minute, burst=BURST, free="/static/", too_many=site.too_many)
    app.add_middleware(SecurityHeaders)
    return app


def _in_thread(answer: Callable[[Request], Response]) -> Answer:
    async def respond(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return respond


class _Site:
    """The pages. Calls to the index block, so these methods run in threads."""

    def __init__(self, index: DocumentIndex, title: str) -> None:
        self._index = index
        self._templates = page_templates(TEMPLATES)
        self._templates.filters["counted"] = counted
        self._templates.globals.update(site=title, query_max=QUERY_MAX)
        # Only the torrent site has other languages, a path below the root, and completions.
        self._templates.globals.update(t=str, language={"code": "en"}, root="", suggests=False)

    def home(self, request: Request) -> Response:
        try:
            count = self._index.count()
        except IndexFailure as failure:
            return self._failed(failure)
        return self._page("home.html", count=count)

    def search(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        if not query:
            return RedirectResponse("/", 303)
        number = _number(request.query_params.get("page", "1"), 1)
        number = min(max(number, 1), PAGE_MAX)
        try:
            parse_query(query)
        except IndexFailure as failure:
            return self._page("unclear.html", 400, query=query[:QUERY_MAX], reason=str(failure))
        try:
            found = self._index.search(query, limit=PAGE_SIZE, offset=(number - 1) * PAGE_SIZE)
        except IndexFailure as failure:
            return self._failed(failure)
        last = min(PAGE_MAX, -(-found.total // PAGE_SIZE))
        return self._page(
            "results.html",
            query=query,
            found=found,
            results=[_result(hit) for hit in found.hits],
            number=number,
            first=(number - 1) * PAGE_SIZE + 1,
            last=last,
            numbers=page_numbers(number, last),
            took=duration_text(found.took_ms),
            suggested="/search?" + urlencode({"q": found.suggestion}),
            link=lambda page: "/search?" + urlencode({"q": query, "page": page}),
        )

    def api(self, request: Request) -> Response:
        base = f"{request.url.scheme}://{request.url.netloc}"
        return self._page("api.html", base=base, limit_max=API_LIMIT_MAX, offset_max=OFFSET_MAX, limit=API_LIMIT)

    def api_search(self, request: Request) -> Response:
        query = request.query_params.get("q", "")
        try:
            limit = _integer(request, "limit", API_LIMIT, API_LIMIT_MAX, least=1)
            offset = _integer(request, "offset", 0, OFFSET_MAX)
            check_page(limit, offset)
            parse_query(query)
        except IndexFailure as failure:
            return JSONResponse({"error": str(failure)}, 400)
        try:
            found = self._index.search(query, limit=limit, offset=offset)
        except IndexFailure as failure:
            _log.error("%s", failure)
            return JSONResponse({"error": TEXTS[503].line}, 503)
        return JSONResponse(page_as_json(query, found, limit, offset))

    def health(self, request: Request) -> Response:
        try:
            return JSONResponse({"ok": True, "documents": self._index.count()})
        except IndexFailure as failure:
            _log.error("%s", failure)
            return JSONResponse({"ok": False, "error": TEXTS[503].line}, 503)

    def too_many(self, request: Request, wait_s: float) -> Response:
        """Respond to a client that must wait `wait_s` seconds."""
        seconds = int(wait_s) + 1
        if request.url.path.startswith("/api/"):
            response: Response = JSONResponse({"error": TEXTS[429].line.format(seconds=seconds)}, 429)
        else:
            response = self._message(429, seconds=seconds)
        response.headers.update({"retry-after": str(seconds), "cache-control": "no-store"})
        return response

    def http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": error.detail}, error.status_code)
        return self._message(error.status_code)

    def crash(self, request: Request, error: Exception) -> Response:
        return self._message(500)

    def _failed(self, failure: IndexFailure) -> Response:
        """Return a page without the reason, which contains paths; the reason is logged."""
        _log.error("%s", failure)
        return self._message(503)

    def _message(self, status: int, **values: int) -> Response:
        said = TEXTS.get(status, TEXTS[404])
        return self._page("message.html", status, heading=said.heading, text=said.text.format(**values))

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status)


def page_numbers(number: int, last: int) -> list[int]:
    """Return the page numbers to show."""
    first = max(1, min(number - PAGES_SHOWN // 2, last - PAGES_SHOWN + 1))
    return list(range(first, min(last, first + PAGES_SHOWN - 1) + 1))


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 page", "2,345 pages"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration_text(took_ms: float) -> str:
    """Return a duration: "0.1 ms", "12 ms", "1.2 s"."""
    return f"{took_ms:.1f} ms" if took_ms < 10 else f"{took_ms:.0f} ms" if took_ms < 1000 else f"{took_ms / 1000:.1f} s"


def _result(hit: Hit) -> Result:
    try:
        parts = urlsplit(hit.url)
        is_link = parts.scheme in {"http", "https"} and bool(parts.netloc)
        host, path = parts.netloc.rpartition("@")[2], parts.path + (f"?{parts.query}" if parts.query else "")
    except ValueError:
        is_link, host, path = False, "", hit.url
    if not is_link:
        host, path = "", hit.url
    shown = _INVISIBLE.sub("", unquote(path))[:SHOWN_URL_MAX]
    trail = [part for part in shown.split("/") if part]
    lang = hit.lang if _LANGUAGE.match(hit.lang) else ""
    host = _INVISIBLE.sub("", host)
    # A title with only invisible characters would make an invisible link.
    title = hit.title_html if _INVISIBLE.sub("", hit.title).strip() else escape("/".join([host, *trail]).strip("/"))
    return Result(hit, hit.url if is_link else "", title or "Untitled", host, trail, _date(hit.fetched_at), lang)


def _date(fetched_at: str) -> str:
    try:
        date = datetime.fromisoformat(fetched_at)
    except ValueError:
        return ""
    return f"{date.day} {date:%B %Y}"


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _integer(request: Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    text = request.query_params.get(name, str(default))
    number = _number(text, -1)
    if not least <= number <= most:
        raise IndexFailure(f"{name} {text[:20]!r} is out of range: write a whole number from {least} to {most}")
    return number
