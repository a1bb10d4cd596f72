"""Access to administration: passwords, sessions, and limits for failed logins.

Administration is off until an administrator has a password. It is refused over plain HTTP from other machines, unless
the operator allows it. Forms carry the token of their session, and browsers send the cookie only from pages of this
site.

A client with too many failed logins must wait (429). Failed logins of other clients lock nobody out: too many of them
only delay each login, by at most DELAY_MAX_S. Logins from this machine are also only delayed: they may come through a
reverse proxy that does not forward client addresses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from lycosa.infra.web.listening import is_remote
from lycosa.search.site.limits import LOOPBACKS, RequestLimit, TooMany, client_of
from lycosa.search.site.torrents.admin.forms import form_of, has_token
from lycosa.search.site.torrents.admin.parts import AdminOptions
from lycosa.search.site.torrents.admin.passwords import is_password
from lycosa.search.site.torrents.admin.site_store import SESSION_S, AdminSession, SiteStore
from lycosa.search.site.torrents.pages import TorrentPages

COOKIE = "lycosa_session"
FAILURES_PER_MINUTE, FAILURES_AT_ONCE = 2, 5
"""Limits for failed logins of one client."""
ALL_FAILURES_PER_MINUTE, ALL_FAILURES_AT_ONCE = 40, 100
"""Limits for failed logins of all clients. Beyond them, each login is delayed."""
DELAY_MAX_S = 2.0
HASHED_AT_ONCE = 2
"""Maximum number of passwords checked at the same time: each check takes 64 MB."""
LOGINS_MAX = 200
"""Maximum number of logins in progress; above it, the answer is 429 with `Retry-After: 1`."""
ALL_CLIENTS = "all"
Page = Callable[[Request, AdminSession], Awaitable[Response]]


class AdminAccess:
    """Login, logout, and handlers that require a session."""

    def __init__(self, site: SiteStore, options: AdminOptions, pages: TorrentPages, too_many: TooMany) -> None:
        self._site, self._options, self._pages, self._too_many = site, options, pages, too_many
        self._each = RequestLimit(FAILURES_PER_MINUTE, FAILURES_AT_ONCE)
        self._all = RequestLimit(ALL_FAILURES_PER_MINUTE, ALL_FAILURES_AT_ONCE)
        self._hashing = asyncio.Semaphore(HASHED_AT_ONCE)
        self._under_way = 0

    def guarded(self, page: Page, *, changes: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that requires a session. With `changes`, it accepts only forms with the session's token."""

        async def respond(request: Request) -> Response:
            if refused := await self._refused(request):
                return refused
            token = request.cookies.get(COOKIE, "")
            session = await asyncio.to_thread(self._site.session, token, time.time()) if token else None
            if session is None:
                return self._pages.redirect("/admin/login")
            if changes and request.method != "POST":  # only a form has a token
                return self._pages.redirect("/admin")
            if request.method == "POST" and not await has_token(request, session):
                return self._pages.message(
                    request, 403, "This form is out of date", "Go back, reload the page, and try again."
                )
            return await page(request, session)

        return respond

    async def login(self, request: Request) -> Response:
        if refused := await self._refused(request):
            return refused
        if request.method != "POST":
            return self._pages.page(request, "admin_login.html", problem="")
        if self._under_way >= LOGINS_MAX:
            return self._too_many(request, 0.0)
        self._under_way += 1
        try:
            return await self._log_in(request)
        finally:
            self._under_way -= 1

    async def logout(self, request: Request, _session: AdminSession) -> Response:
        await asyncio.to_thread(self._site.close_session, request.cookies.get(COOKIE, ""))
        response = self._pages.redirect("/admin/login")
        response.delete_cookie(COOKIE, path=self._pages.path("/admin"))
        return response

    async def _log_in(self, request: Request) -> Response:
        client = client_of(request)
        # Both limits count a login before its password is checked, so simultaneous logins cannot exceed them.
        wait_s, all_wait_s = self._each.wait_s(client), self._all.wait_s(ALL_CLIENTS)
        if wait_s and client not in LOOPBACKS:
            return self._too_many(request, wait_s)
        if delay_s := max(wait_s, all_wait_s):
            await asyncio.sleep(min(delay_s, DELAY_MAX_S))
        form = await form_of(request)
        name = form.get("name", "")
        hashed = await asyncio.to_thread(self._site.password, name)
        token = None
        async with self._hashing:
            if await asyncio.to_thread(is_password, hashed, form.get("password", "")):
                token = await asyncio.to_thread(self._site.open_session, name, str(hashed), time.time())
        if token is None:
            return self._pages.page(request, "admin_login.html", 403, problem="Wrong name or password.")
        if not wait_s:
            self._each.put_back(client)
        if not all_wait_s:
            self._all.put_back(ALL_CLIENTS)
        response = self._pages.redirect("/admin")
        response.set_cookie(
            COOKIE,
            token,
            SESSION_S,
            path=self._pages.path("/admin"),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def _refused(self, request: Request) -> Response | None:
        if request.url.scheme != "https" and not self._options.over_http and _is_elsewhere(request):
            return self._pages.message(
                request,
                403,
                "HTTPS is required",
                "Administration needs HTTPS, or a browser on the machine of the site.",
            )
        if not await asyncio.to_thread(self._site.users):
            return self._pages.message(
                request,
                403,
                "Administration is off",
                "There is no administrator yet: lycosa site --add-admin NAME adds one.",
            )
        return None


def _is_elsewhere(request: Request) -> bool:
    try:
        return request.client is None or is_remote(request.client.host)
    except ValueError:
        return True
