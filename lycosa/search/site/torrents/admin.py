"""Takedown requests, and the pages of administrators: requests, deny-list and API keys.

Administration is off until an administrator has a password. It is refused over plain HTTP from other machines, unless
the operator allows it. Forms carry the token of their session, and browsers send the cookie only from pages of this
site.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lycosa.core.errors import UsageError
from lycosa.infra.web.listening import is_remote
from lycosa.search.site.torrents.limits import RequestLimit, TooMany, client_of
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.search.site.torrents.params import infohash_of
from lycosa.search.site.torrents.passwords import is_password
from lycosa.search.site.torrents.site_store import SESSION_S, AdminSession, SiteStore
from lycosa.search.site.torrents.views import iso_time
from lycosa.storage.ports import RecordStore

COOKIE = "lycosa_session"
BODY_MAX_BYTES = 64 * 1024
FIELDS_MAX = 20
INFOHASHES_MAX = 100
REASON_MAX, CONTACT_MAX, KEY_NAME_MAX = 4000, 200, 60
LOGINS_PER_MINUTE, LOGINS_AT_ONCE = 2, 5
TAKEDOWNS_PER_MINUTE, TAKEDOWNS_AT_ONCE = 0.2, 5
ALL_CLIENTS = "all"
ALL_FACTOR = 20
"""The limit of all clients together, as a multiple of that of one client. It stops attacks from many machines."""
_INFOHASH = re.compile(r"(?<![0-9a-zA-Z])(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{40})(?![0-9a-zA-Z])")
Page = Callable[[Request, AdminSession], Awaitable[Response]]


class AdminOptions(NamedTuple):
    """Whether a takedown request hides torrents at once, and whether administration works over plain HTTP."""

    hide_at_once: bool = False
    over_http: bool = False


class AdminParts(NamedTuple):
    """What administration needs: the database of the site, the record store, and the options."""

    site: SiteStore
    store: RecordStore
    options: AdminOptions = AdminOptions()


class _Limits:
    """Limits the requests of each client, and of all clients together."""

    def __init__(self, per_minute: float, at_once: int) -> None:
        self._each = RequestLimit(per_minute, at_once)
        self._all = RequestLimit(per_minute * ALL_FACTOR, at_once * ALL_FACTOR)

    def wait_s(self, request: Request) -> float:
        return self._each.wait_s(client_of(request)) or self._all.wait_s(ALL_CLIENTS)


class Administration:
    """See the module."""

    def __init__(self, parts: AdminParts, pages: TorrentPages, too_many: TooMany) -> None:
        self._site, self._store, self._options = parts
        self._pages, self._too_many = pages, too_many
        self._logins = _Limits(LOGINS_PER_MINUTE, LOGINS_AT_ONCE)
        self._takedowns = _Limits(TAKEDOWNS_PER_MINUTE, TAKEDOWNS_AT_ONCE)

    def pages(self) -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
        """Return the handlers of GET and POST by path."""
        return {
            "/takedown": self.takedown,
            "/admin": self._for_administrators(self._requests),
            "/admin/login": self.login,
            "/admin/logout": self._for_administrators(self._logout, changes=True),
            "/admin/takedowns": self._for_administrators(self._decide, changes=True),
            "/admin/deny": self._for_administrators(self._deny, changes=True),
            "/admin/keys": self._for_administrators(self._keys, changes=True),
        }

    async def accepts(self, request: Request) -> bool:
        """Return whether a program may search. It needs a key if the site has keys."""
        return await asyncio.to_thread(self._site.accepts_key, request.query_params.get("apikey", "")[:200])

    async def takedown(self, request: Request) -> Response:
        """Show the form for a takedown request, or store a request."""
        if request.method != "POST":
            return self._form(request, request.query_params.get("infohash", "")[:64])
        if wait_s := self._takedowns.wait_s(request):
            return self._too_many(request, wait_s)
        form = await _form_of(request)
        infohashes, reason = _infohashes(form.get("infohashes", "")), form.get("reason", "").strip()
        if not infohashes or not reason or len(infohashes) > INFOHASHES_MAX:
            what = (
                "Write a reason for the removal." if infohashes else "Write at least one infohash of 40 or 64 digits."
            )
            what = what if len(infohashes) <= INFOHASHES_MAX else f"Write at most {INFOHASHES_MAX} infohashes at once."
            return self._form(request, form.get("infohashes", "")[:10_000], reason[:REASON_MAX], what)
        decision = "accepted" if self._options.hide_at_once else ""
        contact = form.get("contact", "").strip()[:CONTACT_MAX]
        try:
            await asyncio.to_thread(
                self._site.add_takedown,
                infohashes,
                reason[:REASON_MAX],
                "" if decision else contact,
                decision,
                time.time(),
            )
        except UsageError as error:
            return self._pages.message(request, 503, "Not possible now", str(error))
        if decision:
            await self._store.deny(map(bytes.fromhex, infohashes), reason="a takedown request")
            return self._pages.message(request, 200, "Removed", "The torrents are no longer shown.")
        return self._pages.message(request, 202, "Request received", "An administrator will decide on it.")

    async def login(self, request: Request) -> Response:
        """Show the login, or log in."""
        if refused := self._refused(request):
            return refused
        if request.method != "POST":
            return self._pages.page(request, "admin_login.html", problem="")
        if wait_s := self._logins.wait_s(request):
            return self._too_many(request, wait_s)
        form = await _form_of(request)
        name, password = form.get("name", ""), form.get("password", "")
        hashed = await asyncio.to_thread(self._site.password, name)
        if not await asyncio.to_thread(is_password, hashed, password):
            return self._pages.page(request, "admin_login.html", 403, problem="Wrong name or password.")
        token = await asyncio.to_thread(self._site.open_session, name, time.time())
        response = self._pages.redirect("/admin")
        is_secure = request.url.scheme == "https"
        response.set_cookie(
            COOKIE,
            token,
            SESSION_S,
            path=self._pages.path("/admin"),
            secure=is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _requests(self, request: Request, session: AdminSession) -> Response:
        return await self._overview(request, session, SAID.get(request.query_params.get("said", ""), ""))

    async def _overview(self, request: Request, session: AdminSession, said: str) -> Response:
        takedowns = await asyncio.to_thread(self._site.takedowns)
        keys = await asyncio.to_thread(self._site.api_keys)
        return self._pages.page(
            request, "admin.html", session=session, takedowns=takedowns, keys=keys, said=said, iso_time=iso_time
        )

    async def _keys(self, request: Request, session: AdminSession) -> Response:
        form = await _form_of(request)
        name = form.get("name", "").strip()[:KEY_NAME_MAX]
        if form.get("action") == "remove":
            await asyncio.to_thread(self._site.remove_api_key, name)
            return self._pages.redirect("/admin?said=key-removed")
        key = await asyncio.to_thread(self._site.add_api_key, name, time.time()) if name else None
        said = f"The key of {name}, which is shown only now: {key}" if key else "Every key needs a different name."
        return await self._overview(request, session, said)

    async def _logout(self, request: Request, _session: AdminSession) -> Response:
        await asyncio.to_thread(self._site.close_session, request.cookies.get(COOKIE, ""))
        response = self._pages.redirect("/admin/login")
        response.delete_cookie(COOKIE, path=self._pages.path("/admin"))
        return response

    async def _decide(self, request: Request, _session: AdminSession) -> Response:
        form = await _form_of(request)
        number, accepts = form.get("id", ""), form.get("decision") == "accepted"
        found = None
        if number.isascii() and number.isdigit() and len(number) < 16:
            found = await asyncio.to_thread(self._site.takedown, int(number))
        if found is None:
            return self._pages.redirect("/admin?said=gone")
        if accepts:  # before the decision is stored: a crash in between leaves the request undecided
            await self._store.deny(map(bytes.fromhex, found.infohashes), reason=f"takedown {found.id}")
        decision = "accepted" if accepts else "refused"
        await asyncio.to_thread(self._site.decide, found.id, decision, time.time())
        return self._pages.redirect(f"/admin?said={decision}")

    async def _deny(self, request: Request, _session: AdminSession) -> Response:
        form = await _form_of(request)
        infohashes = [bytes.fromhex(each) for each in _infohashes(form.get("infohashes", ""))]
        if not infohashes:
            return self._pages.redirect("/admin?said=none")
        if form.get("action") == "allow":
            await self._store.allow(infohashes)
            return self._pages.redirect("/admin?said=allowed")
        await self._store.deny(infohashes, reason=form.get("reason", "")[:REASON_MAX])
        return self._pages.redirect("/admin?said=denied")

    def _for_administrators(self, page: Page, *, changes: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            if refused := self._refused(request):
                return refused
            token = request.cookies.get(COOKIE, "")
            session = await asyncio.to_thread(self._site.session, token, time.time()) if token else None
            if session is None:
                return self._pages.redirect("/admin/login")
            if changes and request.method != "POST":  # only a form has a token
                return self._pages.redirect("/admin")
            if request.method == "POST" and not await _has_token(request, session):
                return self._pages.message(
                    request, 403, "This form is out of date", "Go back, reload the page, and try again."
                )
            return await page(request, session)

        return respond

    def _refused(self, request: Request) -> Response | None:
        if request.url.scheme != "https" and not self._options.over_http and _is_elsewhere(request):
            return self._pages.message(
                request,
                403,
                "Not over plain HTTP",
                "Administration needs HTTPS, or a browser on the machine of the site.",
            )
        if not self._site.has_users():
            return self._pages.message(
                request,
                403,
                "Administration is off",
                "There is no administrator yet: lycosa site --add-admin NAME adds one.",
            )
        return None

    def _form(self, request: Request, infohashes: str, reason: str = "", problem: str = "") -> Response:
        return self._pages.page(
            request, "takedown.html", 400 if problem else 200, infohashes=infohashes, reason=reason, problem=problem
        )


SAID = {
    "accepted": "The torrents were removed, and will not be stored again.",
    "refused": "The request was refused.",
    "denied": "The torrents were removed, and will not be stored again.",
    "allowed": "The torrents may be stored again.",
    "none": "There was no infohash: nothing was changed.",
    "key-removed": "The key was removed.",
    "gone": "This request has already been decided.",
}


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. The body is read once."""
    if not hasattr(request.state, "form"):
        body, fields = b"", dict[str, list[str]]()
        try:
            async for part in request.stream():
                body += part
                if len(body) > BODY_MAX_BYTES:
                    raise HTTPException(413)
        except ClientDisconnect:
            body = b""
        with suppress(ValueError):  # too many fields
            fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        request.state.form = {name: values[0] for name, values in fields.items()}
    form: dict[str, str] = request.state.form
    return form


async def _has_token(request: Request, session: AdminSession) -> bool:
    sent = (await _form_of(request)).get("token", "")
    return secrets.compare_digest(sent.encode(errors="replace"), session.form_token.encode())


def _infohashes(text: str) -> list[str]:
    found = (each.lower() for each in _INFOHASH.findall(text))
    return [each for each in dict.fromkeys(found) if infohash_of(each)]


def _is_elsewhere(request: Request) -> bool:
    try:
        return request.client is None or is_remote(request.client.host)
    except ValueError:
        return True
