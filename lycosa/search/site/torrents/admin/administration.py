"""The paths of takedown requests and of administration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from lycosa.search.site.limits import TooMany
from lycosa.search.site.torrents.admin.access import AdminAccess
from lycosa.search.site.torrents.admin.accounts import AdminAccounts
from lycosa.search.site.torrents.admin.parts import AdminParts
from lycosa.search.site.torrents.admin.takedowns import Takedowns
from lycosa.search.site.torrents.admin.tasks import Tasks
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.search.torrents import TorrentSearch


class Administration:
    """Routes of takedown requests and administration."""

    def __init__(self, parts: AdminParts, search: TorrentSearch, pages: TorrentPages, too_many: TooMany) -> None:
        self._site = parts.site
        self._access = AdminAccess(parts.site, parts.options, pages, too_many)
        self._takedowns = Takedowns(parts, pages, too_many)
        self._accounts, self._tasks = AdminAccounts(parts.site, pages), Tasks(parts, search, pages)

    def pages(self) -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
        guarded, takedowns = self._access.guarded, self._takedowns
        return {
            "/takedown": takedowns.ask,
            "/admin": guarded(takedowns.overview),
            "/admin/login": self._access.login,
            "/admin/logout": guarded(self._access.logout, changes=True),
            "/admin/takedowns": guarded(takedowns.decide, changes=True),
            "/admin/deny": guarded(takedowns.deny),
            "/admin/rules": guarded(self._tasks.rules),
            "/admin/users": guarded(self._accounts.users),
            "/admin/keys": guarded(self._accounts.keys),
            "/admin/index": guarded(self._tasks.index),
        }

    async def accepts(self, request: Request) -> bool:
        """Return whether a program may search: it needs a key if the site has keys."""
        return await asyncio.to_thread(self._site.accepts_key, request.query_params.get("apikey", "")[:200])
