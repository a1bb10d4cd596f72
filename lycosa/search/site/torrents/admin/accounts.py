"""The pages of accounts: administrators, and keys for programs."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import UsageError
from lycosa.search.site.torrents.admin.forms import form_of
from lycosa.search.site.torrents.admin.parts import SAID
from lycosa.search.site.torrents.admin.passwords import NAME_MAX, check_name, hash_password
from lycosa.search.site.torrents.admin.site_store import AdminSession, SiteStore
from lycosa.search.site.torrents.language import language_of
from lycosa.search.site.torrents.pages import TorrentPages

UNKNOWN = "There is no administrator with this name."


class AdminAccounts:
    """Pages that show and change administrators and keys."""

    def __init__(self, site: SiteStore, pages: TorrentPages) -> None:
        self._site, self._pages = site, pages

    async def users(self, request: Request, session: AdminSession) -> Response:
        """Show, add, change or remove administrators. A new password ends the administrator's sessions."""
        if request.method != "POST":
            return await self._users_page(request, session)
        form = await form_of(request)
        name, action = form.get("name", ""), form.get("action", "")
        is_known = name in await asyncio.to_thread(self._site.users)
        if action != "add" and not is_known:
            return await self._users_page(request, session, UNKNOWN)
        if action == "remove":
            if not await asyncio.to_thread(self._site.remove_user, name):
                return await self._users_page(request, session, "The last administrator cannot be removed.")
            return self._pages.redirect("/admin/users?said=user-removed")
        if action == "add" and is_known:
            return await self._users_page(request, session, "There already is an administrator with this name.")
        try:
            if action == "add":
                check_name(name)
            hashed = await asyncio.to_thread(hash_password, form.get("password", ""))
        except UsageError as error:
            return await self._users_page(request, session, language_of(request).sentence(error))
        if action == "add":
            await asyncio.to_thread(self._site.set_password, name, hashed)
            return self._pages.redirect("/admin/users?said=user-added")
        if not await asyncio.to_thread(self._site.change_password, name, hashed):
            return await self._users_page(request, session, UNKNOWN)
        return self._pages.redirect("/admin/users?said=password-changed")

    async def keys(self, request: Request, session: AdminSession) -> Response:
        if request.method != "POST":
            return await self._keys_page(request, session)
        form = await form_of(request)
        name = form.get("name", "").strip()[:NAME_MAX]
        if form.get("action") == "remove":
            await asyncio.to_thread(self._site.remove_api_key, name)
            return self._pages.redirect("/admin/keys?said=key-removed")
        key = await asyncio.to_thread(self._site.add_api_key, name, time.time()) if name else None
        return await self._keys_page(request, session, name, key, "" if key else "Every key needs a name of its own.")

    async def _users_page(self, request: Request, session: AdminSession, problem: str = "") -> Response:
        users = await asyncio.to_thread(self._site.users)
        said = "" if problem else SAID.get(request.query_params.get("said", ""), "")
        status = 400 if problem else 200
        return self._pages.page(
            request, "admin_users.html", status, session=session, users=users, said=said, problem=problem
        )

    async def _keys_page(
        self, request: Request, session: AdminSession, name: str = "", key: str | None = None, problem: str = ""
    ) -> Response:
        keys = await asyncio.to_thread(self._site.api_keys)
        said = "" if problem or key else SAID.get(request.query_params.get("said", ""), "")
        shown = {"keys": keys, "name": name, "key": key, "said": said, "problem": problem}
        return self._pages.page(request, "admin_keys.html", 400 if problem else 200, session=session, **shown)
