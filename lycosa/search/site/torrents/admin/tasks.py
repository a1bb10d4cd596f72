"""The pages of long tasks: rules about names, with dry runs, and index rebuilds."""

from __future__ import annotations

import re
import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import UsageError
from lycosa.search.site.torrents.admin.forms import form_of
from lycosa.search.site.torrents.admin.parts import SAID, AdminParts, RuleDraft
from lycosa.search.site.torrents.admin.site_store import AdminSession
from lycosa.search.site.torrents.language import language_of
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.search.torrents import TorrentSearch

WORDS_MAX = 1000
WORD_MAX, REASON_MAX = 200, 200
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Tasks:
    """Pages that show long tasks, start them, and apply their results."""

    def __init__(self, parts: AdminParts, search: TorrentSearch, pages: TorrentPages) -> None:
        self._rules, self._rebuild, self._search, self._pages = parts.rules, parts.rebuild, search, pages

    async def rules(self, request: Request, session: AdminSession) -> Response:
        if self._rules is None:
            raise HTTPException(404)
        if request.method != "POST":
            return await self._rules_page(request, session)
        form = await form_of(request)
        try:
            return self._pages.redirect(await self._change_rules(form))
        except UsageError as error:
            return await self._rules_page(request, session, form, language_of(request).sentence(error))

    async def index(self, request: Request, session: AdminSession) -> Response:
        if self._rebuild is None:
            raise HTTPException(404)
        if request.method == "POST":
            await self._rebuild.start()
            return self._pages.redirect("/admin/index")
        progress, documents = await self._rebuild.progress(), await self._search.count()
        return self._pages.page(
            request, "admin_index.html", session=session, documents=documents, task=progress, now=time.time(), said=""
        )

    async def _change_rules(self, form: dict[str, str]) -> str:
        assert self._rules is not None
        action = form.get("action", "")
        if action == "try":
            await self._rules.start(_draft(form))
        elif action == "apply":
            await self._rules.apply()
        elif action == "discard":
            trial = self._rules.trial
            self._rules.discard()
            return "/admin/rules" if trial and trial.applied else "/admin/rules?said=rule-discarded"
        elif action == "remove":
            await self._rules.remove(form.get("name", ""))
            return "/admin/rules?said=rule-removed"
        return "/admin/rules"

    async def _rules_page(
        self, request: Request, session: AdminSession, form: dict[str, str] | None = None, problem: str = ""
    ) -> Response:
        assert self._rules is not None
        said = "" if problem else SAID.get(request.query_params.get("said", ""), "")
        shown = {"form": form or {}, "problem": problem, "said": said, "now": time.time()}
        shown |= {"installed": await self._rules.installed(), "trial": self._rules.trial}
        return self._pages.page(request, "admin_rules.html", 400 if problem else 200, session=session, **shown)


def _draft(form: dict[str, str]) -> RuleDraft:
    name, reason = form.get("name", "").strip(), form.get("reason", "").strip()
    words = tuple(dict.fromkeys(line.strip() for line in form.get("words", "").splitlines() if line.strip()))
    if not NAME.fullmatch(name):
        raise UsageError("A rule name has 1 to 40 lower-case letters, digits and hyphens, and does not begin with -.")
    if not reason or not words:
        raise UsageError("A rule needs a reason and at least one word.")
    if len(words) > WORDS_MAX or len(reason) > REASON_MAX or any(len(word) > WORD_MAX for word in words):
        raise UsageError("A rule has at most 1,000 words and phrases; they and its reason have at most 200 characters.")
    if not all(text.isprintable() for text in (reason, *words)):
        raise UsageError("The rule contains a character that is not printable.")
    return RuleDraft(name, reason, words)
