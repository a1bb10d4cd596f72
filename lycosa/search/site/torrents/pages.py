"""The pages of the torrent site. The handlers are coroutines: the index and the store work in threads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lycosa.core.errors import BadQuery, IndexFailure
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import QUERY_MAX
from lycosa.search.core.request import ValueCounts
from lycosa.search.core.torrent_text import title_words
from lycosa.search.site.app import duration_text, page_numbers
from lycosa.search.site.torrents.language import LANGUAGE_COOKIE, LANGUAGE_KEPT_S, LANGUAGES_OF_SITE, language_of
from lycosa.search.site.torrents.params import FIELDS, PAGE_MAX, PAGE_SIZE, SearchParams, infohash_of, search_params
from lycosa.search.site.torrents.statistics import DAYS, Statistics
from lycosa.search.site.torrents.views import (
    FILES_SHOWN_MAX,
    TorrentView,
    facts_of_torrent,
    file_tree,
    infohash_hex,
    iso_time,
    magnet_uri,
    piece_size,
    torrent_view,
)
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.storage.core.content_facts import LANGUAGES
from lycosa.storage.core.torrent_record import Standing, StoredTorrent

PLACE = re.compile(r"/(?:[\w-][\w.-]*(?:/[\w-][\w.-]*)*)?(?:\?[^\s\\#]*)?", re.ASCII)
"""A page of the site to which the choice of a language leads back."""
NEWEST = 10
OTHER_RELEASES = 8
FILES_AT_ONCE_MAX = 300
"""Maximum number of files of a page of results that are searched for words of the query without a thread."""
SELECTS_CACHED = 512
"""Maximum number of rendered selections kept: of each filter, value and language."""
# fmt: off
LANGUAGE_NAMES = dict(zip(LANGUAGES, (
    "English", "Chinese", "Japanese", "Korean", "Russian", "German", "French", "Spanish", "Italian", "Portuguese",
    "Polish", "Dutch", "Turkish", "Arabic", "Hindi", "Tamil", "Telugu", "Malayalam", "Bengali", "Thai", "Vietnamese",
    "Indonesian", "Ukrainian", "Czech", "Hungarian", "Romanian", "Greek", "Hebrew", "Persian", "Swedish", "Danish",
    "Norwegian", "Finnish", "Bulgarian", "Serbian", "Croatian", "Malay", "Tagalog", "Kannada", "Punjabi",
), strict=True))
# fmt: on
TYPE_NAMES = {
    "video": "Video",
    "audio": "Audio",
    "text": "Books and text",
    "application": "Software",
    "archive": "Archives",
    "image": "Images",
    "adult": "Adult",
    "unknown": "Other",
}
CHOICES: Mapping[str, Sequence[tuple[str, str]]] = {
    "type": [*TYPE_NAMES.items()],
    "size": [
        ("..100MB", "up to 100 MB"),
        ("100MB..1GB", "100 MB to 1 GB"),
        ("1GB..4GB", "1 to 4 GB"),
        ("4GB..20GB", "4 to 20 GB"),
        (">20GB", "over 20 GB"),
    ],
    "age": [("<1", "last day"), ("<7", "last week"), ("<30", "last month"), ("<365", "last year")],
    "files": [("1", "one file"), ("2..10", "2 to 10 files"), (">10", "over 10 files")],
    "seeders": [(">0", "with seeders"), (">10", "over 10 seeders")],
    "lang": sorted(LANGUAGE_NAMES.items(), key=lambda pair: pair[1]),
    "sort": [
        ("relevance", "best match"),
        ("date", "newest"),
        ("seeders", "most seeders"),
        ("size", "largest"),
        ("files", "most files"),
    ],
}
LABELS = {
    "type": "Type",
    "size": "Size",
    "age": "Found",
    "files": "Files",
    "seeders": "Seeders",
    "lang": "Language",
    "sort": "Order",
}


class FacetLink(NamedTuple):
    """A value of a field such as the type, and the query that selects it, or deselects it if it is chosen."""

    label: str
    matches: int
    query: str
    chosen: bool


class TorrentPages:
    """Handles requests for pages, and renders pages for other handlers."""

    def __init__(self, search: TorrentSearch, statistics: Statistics, templates: jinja2.Environment, base: str) -> None:
        self._search, self._statistics, self._templates, self._base = search, statistics, templates, base
        templates.globals.update(
            root=base,
            suggests=True,
            query_max=QUERY_MAX,
            choices=CHOICES,
            labels=LABELS,
            type_names=TYPE_NAMES,
            language_names=LANGUAGE_NAMES,
            languages=LANGUAGES_OF_SITE,
            iso_time=iso_time,
            select=lru_cache(SELECTS_CACHED)(self._select),
        )

    async def home(self, request: Request) -> Response:
        numbers, count, newest = await asyncio.gather(
            self._statistics.get(),
            self._search.count(),
            self._search.search(TorrentRequest(limit=NEWEST, sort="date")),
        )
        views = [torrent_view(each, None) for each in newest.torrents]
        return self.page(request, "torrent_home.html", numbers=numbers, count=count, newest=views)

    async def search(self, request: Request) -> Response:
        try:
            params = search_params(request.query_params)
            wanted = params.request()
            found, counts = await asyncio.gather(self._search.search(wanted), self.counts(params))
        except BadQuery as failure:
            reason = language_of(request).sentence(failure)
            return self.page(request, "torrent_unclear.html", 400, query=_typed(request), reason=reason)
        highlighter = self._search.highlighter(found.parsed.query)
        last = min(PAGE_MAX, -(-found.total // PAGE_SIZE))
        return self.page(
            request,
            "torrent_results.html",
            query=params.text,
            params=params,
            found=found,
            mistakes=map(language_of(request).sentence, found.parsed.mistakes),
            torrents=await _views(found.torrents, highlighter),
            facets=_facets(params, counts.values),
            facets_exact=counts.exact,
            feed=params.query(),
            took=duration_text(found.took_ms),
            first=wanted.offset + 1,
            number=params.page,
            last=last,
            numbers=page_numbers(params.page, last),
            link=lambda page: self.path(f"/search?{params.query(page=page)}"),
        )

    async def counts(self, params: SearchParams) -> ValueCounts:
        """Return how many results have each type and language. Those of all torrents can be minutes old."""
        if not params.is_empty:
            return await self._search.count_values(params.request())
        numbers = await self._statistics.get()  # cached: counting all torrents is slow
        return ValueCounts({"type": numbers.types, "language": numbers.languages}, exact=False)

    async def torrent(self, request: Request) -> Response:
        """Show the details of a torrent; 410 if it was taken down."""
        infohash = infohash_of(request.path_params["infohash"])
        torrent = await self._search.get(infohash) if infohash else None
        if infohash is None or torrent is None:
            return await self.missing(request, infohash)
        if request.path_params["infohash"] != infohash_hex(torrent):
            return self.redirect(f"/torrent/{infohash_hex(torrent)}", 301)
        text = request.query_params.get("q", "")[:QUERY_MAX]
        query, others = self._search.parsed(text), await self._other_releases(torrent)
        highlighter = self._search.highlighter(query)
        return self.page(
            request,
            "torrent_detail.html",
            query=text,
            torrent=torrent,
            record=torrent.record,
            facts=facts_of_torrent(torrent),
            view=torrent_view(torrent, highlighter),
            files=await asyncio.to_thread(file_tree, torrent, highlighter),
            files_hidden=max(len(torrent.record.files) - FILES_SHOWN_MAX, 0),
            magnet=magnet_uri(torrent),
            others=[torrent_view(each, None) for each in others],
            piece_size=piece_size,
        )

    async def browse(self, request: Request) -> Response:
        return self.page(request, "torrent_browse.html", numbers=await self._statistics.get(), days=DAYS)

    async def statistics(self, request: Request) -> Response:
        return self.page(request, "torrent_statistics.html", numbers=await self._statistics.get())

    async def missing(self, request: Request, infohash: bytes | None) -> Response:
        """Return the page for a torrent that is not stored: 410 if it was taken down, else 404."""
        refusal = await self._search.refusal(infohash) if infohash else None
        if refusal and refusal.standing is Standing.DENIED:
            return self.message(request, 410, "This torrent was removed", "It was taken down, and is no longer stored.")
        return self.message(
            request, 404, "This torrent is not known", "It was never found, or it was removed to free space."
        )

    def message(self, request: Request, status: int, heading: str, text: str, **values: object) -> Response:
        """Return a page with one message; `values` replace the placeholders in `text`."""
        return self.page(request, "torrent_message.html", status, heading=heading, text=text, values=values)

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page in the visitor's language."""
        language = language_of(request)
        query = request.scope["query_string"].decode("latin-1")
        here = f"{request.url.path.removeprefix(self._base)}?{query}" if request.method in {"GET", "HEAD"} else "/?"
        text = self._templates.get_template(template).render(values, language=language, t=language.text, here=here)
        headers = {"content-language": language.code, "vary": "Accept-Language, Cookie"}
        return HTMLResponse(text, status, headers)

    def _select(self, code: str, name: str, chosen: str, has_any: bool) -> str:
        """Render the selection of a filter. Most pages have seven with 80 values, nearly always the same."""
        language = LANGUAGES_OF_SITE[code]
        template = self._templates.get_template("torrent_select.html")
        return template.render(name=name, chosen=chosen, has_any=has_any, t=language.text)

    def path(self, path: str) -> str:
        """Return the path of a page, including the path of the site."""
        return self._base + path

    def redirect(self, path: str, status: int = 303) -> Response:
        return RedirectResponse(self.path(path), status)

    async def choose_language(self, request: Request) -> Response:
        code = request.path_params["code"]
        if code not in LANGUAGES_OF_SITE:
            return self.message(request, 404, "This page does not exist", "Try the search box.")
        place = request.query_params.get("to", "")
        response = self.redirect(place if PLACE.fullmatch(place) else "/")
        response.set_cookie(LANGUAGE_COOKIE, code, LANGUAGE_KEPT_S, httponly=True, samesite="lax")
        return response

    async def _other_releases(self, torrent: StoredTorrent) -> list[StoredTorrent]:
        words = title_words(torrent.record.name)
        quoted = f'title:"{" ".join(words)}"'
        try:
            found = await self._search.search(
                TorrentRequest(quoted, limit=OTHER_RELEASES + 1, sort="seeders", strict=True, suggests=False)
            )
        except IndexFailure:
            return []
        return [each for each in found.torrents if each.id != torrent.id][:OTHER_RELEASES]


async def _views(torrents: Sequence[StoredTorrent], highlighter: Highlighter | None) -> list[TorrentView]:
    """Return the views of a page. If many files must be searched for words, a thread does it."""

    def views() -> list[TorrentView]:
        return [torrent_view(each, highlighter) for each in torrents]

    files = sum(len(each.record.files) for each in torrents)
    return await asyncio.to_thread(views) if highlighter and files > FILES_AT_ONCE_MAX else views()


def _facets(params: SearchParams, counts: Mapping[str, Mapping[str, int]]) -> dict[str, list[FacetLink]]:
    facets = {}
    for field, name, labels in (("type", "type", TYPE_NAMES), ("language", "lang", LANGUAGE_NAMES)):
        chosen = params.fields.get(name, "")
        facets[LABELS[name]] = [
            FacetLink(labels.get(value, value), count, params.query(**{name: "" if chosen else value}), bool(chosen))
            for value, count in counts[field].items()
            if not chosen or value == chosen
        ]
    return facets


def _typed(request: Request) -> str:
    return request.query_params.get("q", "")[:QUERY_MAX]


assert set(CHOICES) - {"sort"} <= set(FIELDS)
