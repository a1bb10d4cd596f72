"""The HTML pages of a proxy pool: read-only, without JavaScript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lycosa.core.units import format_duration
from lycosa.infra.web.pages import page_templates
from lycosa.proxies.api import drawing
from lycosa.proxies.api.api import format_utc
from lycosa.proxies.api.history import History, busiest
from lycosa.proxies.api.operations import OPERATIONS
from lycosa.proxies.api.params import choice_param, int_param, tags_param, text_param
from lycosa.proxies.api.schemas import TARGET_MAX, explanation_text, pool_stats, select_proxies
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.explain import Why
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState

ROWS = 100

PAGE_MAX = 10_000
SHORT_S = 43_200.0
"""Times closer than this (seconds) are shown without the date."""

TITLES = {
    400: "Invalid request",
    404: "Page not found",
    503: "The pool is unavailable",
    500: "Internal error",
}
TEMPLATES = Path(__file__).parent / "templates"


class Pages:
    """The request handlers. `name`: the pool's name. `now` returns unix seconds."""

    def __init__(
        self, cache: SnapshotCache, history: History, name: str, now: Callable[[], float], choices: Choices
    ) -> None:
        self._pool = cache.pool
        self._cache = cache
        self._history = history
        self._now = now
        self._choices = choices
        self._templates = page_templates(TEMPLATES)
        self._templates.filters.update(latency=format_latency, n="{:,}".format, duration=format_duration)
        self._templates.globals.update(
            pool_name=name,
            bar=drawing.bar,
            sparkline=lambda target, key: drawing.sparkline(history.series(target, key)),
            last_latency=lambda target: next(iter(reversed(history.series(target))), None),
            link=link,
            operations=OPERATIONS,
        )

    async def home(self, request: Request) -> Response:
        targets = busiest(await self._pool.targets())
        stats = pool_stats(await self._cache.proxies(), targets)
        return self._table_page(request, "home.html", targets, stats=stats)

    async def target(self, request: Request) -> Response:
        name = text_param(request, "name", max_length=TARGET_MAX, required=True)
        proxy_request = ProxyRequest(tags_param(request), text_param(request, "session"))
        view = next((each for each in await self._pool.targets() if each.target == name), None)
        found = await self._cache.explain(name, proxy_request)
        views = {each.proxy.key: each for each in await self._pool.proxies(name)}
        return self._table_page(
            request,
            "target.html",
            found,
            name=name,
            view=view,
            views=views,
            text=lambda each: explanation_text(each, proxy_request, self._format_time),
            why_counts=Counter(each.verdict.why for each in found),
            whys=list(Why),
            session=proxy_request.session,
            choices=self._choices.of(name),
            ago=lambda at: format_duration(self._now() - at),
        )

    async def proxies(self, request: Request) -> Response:
        state = choice_param(request, "state", list(ProxyState))
        views = select_proxies(await self._cache.proxies(), state or None, tags_param(request))
        return self._table_page(
            request, "proxies.html", views, state=state, now=self._now(), format_time=self._format_time
        )

    async def api(self, request: Request) -> Response:
        return self._page("api.html", base=f"{request.url.scheme}://{request.url.netloc}")

    def error(self, status: int, text: str) -> Response:
        return self._page("message.html", status, heading=TITLES.get(status, f"Status {status}"), text=text)

    def _format_time(self, at: float) -> str:
        left_s, time = at - self._now(), format_utc(at)
        shown = time[11:19] if 0 <= left_s < SHORT_S else time[:16].replace("T", " ")
        return f"{shown} UTC (in {format_duration(left_s)})"

    def _table_page(self, request: Request, template: str, rows: list[Any], **values: Any) -> Response:
        """Show the rows that the parameter `page` selects. Raises `HTTPException`."""
        self._history.note_view()
        number, pages = int_param(request, "page", 1, 1, PAGE_MAX), max(1, -(-len(rows) // ROWS))
        if number > pages:
            raise HTTPException(404, f"page {number:,} does not exist: the last page is {pages:,}")
        shown, tag = rows[(number - 1) * ROWS : number * ROWS], request.query_params.get("tag", "")
        return self._page(template, rows=shown, total=len(rows), number=number, pages=pages, tag=tag, **values)

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status)


def link(path: str, **parameters: object) -> str:
    """Return a URL on this site, without empty parameters."""
    query = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{path}?{urlencode(query)}" if query else path


def format_latency(seconds: float | None) -> str:
    """Format a latency in milliseconds."""
    return "\N{EN DASH}" if seconds is None else f"{seconds * 1000:,.0f} ms"
