"""Takedown requests, decisions about them, and the deny-list."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import LycosaError, UsageError
from lycosa.search.site.limits import RequestLimit, TooMany, client_of
from lycosa.search.site.torrents.admin.forms import form_of, infohashes_in
from lycosa.search.site.torrents.admin.parts import SAID, AdminParts
from lycosa.search.site.torrents.admin.site_store import AdminSession
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.storage.core.torrent_record import Standing

INFOHASHES_MAX = 100
REASON_MAX, CONTACT_MAX = 4000, 200
TAKEDOWNS_PER_MINUTE, TAKEDOWNS_AT_ONCE = 0.2, 5
ALL_CLIENTS = "all"
ALL_FACTOR = 20
"""Limit of all clients together, as a multiple of the limit of a client."""


class DenyPreview(NamedTuple):
    """The effect of denying infohashes: the stored torrents, and how many are denied already."""

    infohashes: list[str]
    stored: list[tuple[str, str]]
    denied: int


class Takedowns:
    """Pages for takedown requests and for the deny-list."""

    def __init__(self, parts: AdminParts, pages: TorrentPages, too_many: TooMany) -> None:
        self._site, self._store, self._options = parts.site, parts.store, parts.options
        self._pages, self._too_many = pages, too_many
        self._each = RequestLimit(TAKEDOWNS_PER_MINUTE, TAKEDOWNS_AT_ONCE)
        self._all = RequestLimit(TAKEDOWNS_PER_MINUTE * ALL_FACTOR, TAKEDOWNS_AT_ONCE * ALL_FACTOR)

    async def ask(self, request: Request) -> Response:
        if request.method != "POST":
            return self._form(request, request.query_params.get("infohash", "")[:64])
        form = await form_of(request)
        infohashes, reason = infohashes_in(form.get("infohashes", "")), form.get("reason", "").strip()
        if problem := _problem(infohashes, reason):
            return self._form(request, form.get("infohashes", "")[:10_000], reason[:REASON_MAX], problem)
        client = client_of(request)
        if wait_s := self._wait_s(client):
            return self._too_many(request, wait_s)
        decision = "accepted" if self._options.hide_at_once else ""
        contact = "" if decision else form.get("contact", "").strip()[:CONTACT_MAX]
        kept = (infohashes, reason[:REASON_MAX], contact, decision, time.time())
        try:
            if decision:  # deny first: a crash must not leave an accepted request without effect
                await self._store.deny(map(bytes.fromhex, infohashes), reason="a takedown request")
            await asyncio.to_thread(self._site.add_takedown, *kept)
        except LycosaError as error:
            self._put_back(client)
            if not isinstance(error, UsageError):
                raise
            return self._pages.message(request, 503, "Temporarily unavailable", error.message)
        if decision:
            return self._pages.message(request, 200, "Removed", "The torrents are no longer shown.")
        return self._pages.message(request, 202, "Request received", "An administrator will decide on it.")

    def _wait_s(self, client: str) -> float:
        """Count a request. Return 0 if it is allowed, else the seconds to wait."""
        if wait_s := self._each.wait_s(client):
            return wait_s
        if wait_s := self._all.wait_s(ALL_CLIENTS):
            self._each.put_back(client)
        return wait_s

    def _put_back(self, client: str) -> None:
        self._each.put_back(client)
        self._all.put_back(ALL_CLIENTS)

    async def overview(self, request: Request, session: AdminSession) -> Response:
        takedowns = await asyncio.to_thread(self._site.takedowns)
        waiting = await asyncio.to_thread(self._site.waiting)
        said = SAID.get(request.query_params.get("said", ""), "")
        return self._pages.page(
            request, "admin_requests.html", session=session, takedowns=takedowns, waiting=waiting, said=said
        )

    async def decide(self, request: Request, _session: AdminSession) -> Response:
        form = await form_of(request)
        number, accepts = form.get("id", ""), form.get("decision") == "accepted"
        found = None
        if number.isascii() and number.isdigit() and len(number) < 16:
            found = await asyncio.to_thread(self._site.takedown, int(number))
        if found is None:
            return self._pages.redirect("/admin?said=gone")
        if accepts:  # deny first: a crash leaves the request undecided
            await self._store.deny(map(bytes.fromhex, found.infohashes), reason=f"takedown {found.id}")
        decision = "accepted" if accepts else "refused"
        await asyncio.to_thread(self._site.decide, found.id, decision, time.time())
        return self._pages.redirect(f"/admin?said={decision}")

    async def deny(self, request: Request, session: AdminSession) -> Response:
        if request.method != "POST":
            return self._deny_page(request, session, SAID.get(request.query_params.get("said", ""), ""))
        form = await form_of(request)
        infohashes = infohashes_in(form.get("infohashes", ""))
        reason = form.get("reason", "").strip()[:REASON_MAX]
        if not infohashes:
            return self._pages.redirect("/admin/deny?said=none")
        if form.get("action") == "try":
            return self._deny_page(request, session, "", await self._preview(infohashes), reason)
        if form.get("action") == "allow":
            await self._store.allow(map(bytes.fromhex, infohashes))
            return self._pages.redirect("/admin/deny?said=allowed")
        await self._store.deny(map(bytes.fromhex, infohashes), reason=reason)
        return self._pages.redirect("/admin/deny?said=denied")

    async def _preview(self, infohashes: list[str]) -> DenyPreview:
        stored, denied, now = [], 0, time.time()
        for infohash in infohashes:
            if torrent := await self._store.get(bytes.fromhex(infohash)):
                stored.append((infohash, torrent.record.name))
            elif refusal := await self._store.refusal(bytes.fromhex(infohash), now):
                denied += refusal.standing is Standing.DENIED
        return DenyPreview(infohashes, stored, denied)

    def _deny_page(
        self,
        request: Request,
        session: AdminSession,
        said: str,
        preview: DenyPreview | None = None,
        reason: str = "",
    ) -> Response:
        return self._pages.page(request, "admin_deny.html", session=session, said=said, preview=preview, reason=reason)

    def _form(self, request: Request, infohashes: str, reason: str = "", problem: str = "") -> Response:
        return self._pages.page(
            request, "takedown.html", 400 if problem else 200, infohashes=infohashes, reason=reason, problem=problem
        )


def _problem(infohashes: list[str], reason: str) -> str:
    if not infohashes:
        return "Write at least one infohash: 40 or 64 hexadecimal digits."
    if len(infohashes) > INFOHASHES_MAX:
        return "Write at most 100 infohashes at once."
    return "" if reason else "Write a reason for the removal."
