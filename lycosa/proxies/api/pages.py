"""The pages of a proxy pool: read only, without JavaScript."""

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
from lycosa.proxies.api.api import format_utc, pool_stats, select_proxies, state_param
from lycosa.proxies.api.history import History, busiest
from lycosa.proxies.api.operations import OPERATIONS
from lycosa.proxies.api.params import int_param, tags_param, text_param
from lycosa.proxies.api.snapshot_cache import SnapshotCache
from lycosa.proxies.core.explain import Why, verdict_text
from lycosa.proxies.core.pool.choices import Choices
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyPool

ROWS = 100
"""Rows of one page."""

PAGE_MAX = 10_000
SHORT_S = 43_200.0
"""Times that are nearer are said without their day."""

TITLES = {
    400: "That makes no sense",
    404: "There is no such page here",
    503: "The pool cannot be used now",
    500: "Something went wrong here",
}
TEMPLATES = Path(__file__).parent / "templates"


class Pages:
    """The pages. `name` is what the pool is called, `now` the time (unix seconds)."""

    def __init__(
        self,
        pool: ProxyPool,
        looks: SnapshotCache,
        history: History,
        name: str,
        now: Callable[[], float],
        choices: Choices,
    ) -> None:
        self._pool = pool
        self._looks = looks
        self._history = history
        self._now = now
        self._choices = choices
        self._templates = page_templates(TEMPLATES)
        self._templates.filters.update(
            format_latency=format_latency, n=lambda number: f"{number:,}", span=format_duration
        )
        self._templates.globals.update(
            pool_name=name,
            bar=drawing.bar,
            spark=self._spark,
            lately=self._lately,
            link=link,
            states=list(ProxyState),
            operations=OPERATIONS,
        )

    async def home(self, request: Request) -> Response:
        """The pool, and its targets, the busiest first."""
        self._history.watch()
        targets, number = busiest(await self._pool.targets()), page_param(request)
        stats = pool_stats(await self._looks.proxies(), targets)
        shown, pages = paginate(targets, number)
        return self._page("home.html", stats=stats, targets=shown, total=len(targets), number=number, pages=pages)

    async def target(self, request: Request) -> Response:
        """One target: its proxies, and why each would be lent now, or not."""
        self._history.watch()
        name, number = text_param(request, "name", most=500, needed=True), page_param(request)
        proxy_request = ProxyRequest(tags_param(request), text_param(request, "session"))
        view = next((each for each in await self._pool.targets() if each.target == name), None)
        told = await self._looks.explain(name, proxy_request)
        known = {each.proxy.key: each for each in await self._pool.proxies(name)}
        shown, pages = paginate(told, number)
        asked = ", ".join(f"{tag}={value}" for tag, value in proxy_request.tags.items())
        rows = [(each, known.get(each.proxy.key), verdict_text(each.verdict, self._when, tags=asked)) for each in shown]
        return self._page(
            "target.html",
            name=name,
            view=view,
            rows=rows,
            whys=Counter(each.verdict.why for each in told),
            whys_all=list(Why),
            tag=request.query_params.get("tag", ""),
            session=proxy_request.session,
            total=len(told),
            number=number,
            pages=pages,
            choices=self._choices.of(name),
            ago=lambda at: format_duration(self._now() - at),
        )

    async def proxies(self, request: Request) -> Response:
        """All proxies, the nearest first."""
        self._history.watch()
        number, state = page_param(request), state_param(request)
        views = select_proxies(await self._looks.proxies(), state, tags_param(request))
        shown, pages = paginate(views, number)
        return self._page(
            "proxies.html",
            views=shown,
            state=state,
            tag=request.query_params.get("tag", ""),
            total=len(views),
            number=number,
            pages=pages,
            now=self._now(),
            when=self._when,
        )

    async def api(self, request: Request) -> Response:
        """What the API can do."""
        return self._page("api.html", base=f"{request.url.scheme}://{request.url.netloc}")

    def failed(self, status: int, line: str) -> Response:
        """Say what went wrong."""
        return self._page("message.html", status, heading=TITLES.get(status, f"Status {status}"), text=line)

    def _lately(self, target: str = "") -> float | None:
        """Return the newest median latency, None when it is not known."""
        return next(iter(reversed(self._history.line(target))), None)

    def _spark(self, target: str = "", key: str = "") -> drawing.Sparkline | None:
        return drawing.sparkline(self._history.line(target, key))

    def _when(self, at: float) -> str:
        """Say a time, and how far away it is."""
        away = at - self._now()
        shown = format_utc(at)
        return (
            f"{shown[11:19] if 0 <= away < SHORT_S else shown[:16].replace('T', ' ')} UTC (in {format_duration(away)})"
        )

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status)


def page_param(request: Request) -> int:
    """Return the parameter `page`."""
    return int_param(request, "page", 1, 1, PAGE_MAX)


def paginate(rows: list[Any], number: int) -> tuple[list[Any], int]:
    """Return the rows of a page, and how many pages there are. Raises `HTTPException`."""
    pages = max(1, -(-len(rows) // ROWS))
    if number > pages:
        raise HTTPException(404, f"there is no page {number:,}: the last one is {pages:,}")
    return rows[(number - 1) * ROWS : number * ROWS], pages


def link(path: str, **parameters: object) -> str:
    """Return an address of this site; parameters that are empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def format_latency(seconds: float | None) -> str:
    """Return a latency as people read it."""
    return "\N{EN DASH}" if seconds is None else f"{seconds * 1000:,.0f} ms"
