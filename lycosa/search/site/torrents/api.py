"""The JSON API, and its description (OpenAPI)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lycosa import __version__
from lycosa.core.errors import BadQuery, LycosaError
from lycosa.search.core.query import OFFSET_MAX, QUERY_MAX
from lycosa.search.site.failure_texts import TEXTS
from lycosa.search.site.torrents.failures import Failures
from lycosa.search.site.torrents.feeds import base_url, search_json, torrent_json
from lycosa.search.site.torrents.pages import TorrentPages
from lycosa.search.site.torrents.params import (
    API_LIMIT_MAX,
    FIELDS,
    ORDERS,
    VALUE_MAX,
    infohash_of,
    number,
    search_params,
)
from lycosa.search.torrents import SORTS, TorrentSearch
from lycosa.storage.core.torrent_record import Standing, StoredTorrent

LIMIT = 20
ERRORS = (400, 401, 429, 503)
"""The statuses of errors that every path has."""
WITH_RETRY_AFTER = (429, 503)


class TorrentApi:
    """Handles the requests of programs."""

    def __init__(self, search: TorrentSearch, pages: TorrentPages, failures: Failures) -> None:
        self._search, self._pages, self._failures = search, pages, failures

    async def search(self, request: Request) -> Response:
        try:
            params = search_params(request.query_params)
            limit = max(number(request.query_params, "limit", LIMIT, API_LIMIT_MAX), 1)
            offset = number(request.query_params, "offset", 0, OFFSET_MAX)
            found = await self._search.search(replace(params.request(), limit=limit, offset=offset))
        except BadQuery as failure:
            return JSONResponse({"error": str(failure)}, 400)
        return JSONResponse({**search_json(params.text, found), "limit": limit, "offset": offset})

    async def counts(self, request: Request) -> Response:
        try:
            counts = await self._pages.counts(search_params(request.query_params))
        except BadQuery as failure:
            return JSONResponse({"error": str(failure)}, 400)
        return JSONResponse({**counts.values, "exact": counts.exact})

    async def suggest(self, request: Request) -> Response:
        text = request.query_params.get("q", "")
        if len(text) > QUERY_MAX:
            return JSONResponse({"error": f"q has {len(text):,} characters: use at most {QUERY_MAX}"}, 400)
        return JSONResponse({"completions": await self._search.completions(text[:100])})

    async def torrent(self, request: Request) -> Response:
        infohash = infohash_of(request.path_params["infohash"])
        if infohash is None:
            return JSONResponse({"error": "an infohash has 40 or 64 hexadecimal digits"}, 400)
        torrent = await self._search.get(infohash)
        if torrent is not None:
            return await asyncio.to_thread(_torrent_response, torrent)  # 20,000 files are 1.6 MB
        refusal = await self._search.refusal(infohash)
        if refusal and refusal.standing is Standing.DENIED:
            return JSONResponse({"error": "this torrent was taken down"}, 410)
        return JSONResponse({"error": "this torrent is not known"}, 404)

    async def health(self, request: Request) -> Response:
        try:
            count = await self._search.count()
        except LycosaError as failure:
            self._failures.log(failure)
            return JSONResponse({"ok": False, "error": TEXTS[503].line}, 503)
        return JSONResponse({"ok": True, "documents": count.total, "exact": count.exact})

    async def documentation(self, request: Request) -> Response:
        return self._pages.page(
            request, "torrent_api.html", base=base_url(request), description=describe(base_url(request))
        )

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe(base_url(request)))


def _torrent_response(torrent: StoredTorrent) -> Response:
    return JSONResponse(torrent_json(torrent, files=True))


def describe(base: str) -> dict[str, Any]:
    """Return the OpenAPI description."""
    key = {"apikey": ("Key from an administrator, if the site has keys.", _text(200))}
    words = {**key, "q": ("The query: words and filters, as in the search box.", _text(QUERY_MAX))}
    completed = {**key, "q": ("Text, of which the last word is completed.", _text(QUERY_MAX))}
    filters = {name: (f"Filter, as `{name}:` in the search box.", _text(VALUE_MAX)) for name in FIELDS}
    order = {
        "sort": ("Sort order of the results.", {"type": "string", "enum": [*SORTS, ""]}),
        "order": ("Sort direction, by default desc.", {"type": "string", "enum": [*ORDERS]}),
    }
    page = {
        "limit": ("Maximum number of results; 0 counts as 1.", _whole(API_LIMIT_MAX, LIMIT)),
        "offset": ("Number of results to skip.", _whole(OFFSET_MAX, 0)),
    }
    infohash = {
        "name": "infohash",
        "in": "path",
        "required": True,
        "description": "40 hexadecimal digits (version 1) or 64 (version 2).",
        "schema": {"type": "string", "pattern": "^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Torrent search", "version": __version__},
        "servers": [{"url": base}],
        "paths": {
            "/api/search": _path("Search", "Found", ERRORS, {**words, **filters, **order, **page}),
            "/api/counts": _path("Count types and languages", "Counts", ERRORS, {**words, **filters}),
            "/api/suggest": _path("Complete a word", "Completions", ERRORS, completed),
            "/api/torrents/{infohash}": _path("Get a torrent", "TorrentWithFiles", (*ERRORS, 404, 410), key, infohash),
        },
        "components": {"schemas": _SCHEMAS},
    }


def _path(
    summary: str, schema: str, errors: Sequence[int], parameters: dict[str, Any], *required: dict[str, Any]
) -> dict[str, Any]:
    listed = [
        {"name": name, "in": "query", "description": text, "schema": kind} for name, (text, kind) in parameters.items()
    ]
    responses = {"200": _response("Success.", schema)}
    responses |= {str(status): _response("The error, in one line.", "Error") for status in errors}
    for status in WITH_RETRY_AFTER:
        responses[str(status)]["headers"] = {"Retry-After": _SECONDS}
    return {"get": {"summary": summary, "parameters": [*required, *listed], "responses": responses}}


def _response(text: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}


def _text(length_max: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length_max}


def _whole(most: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most, "default": default}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


_STRING, _NUMBER, _YES = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_TORRENT = {
    "infohash": _STRING,
    "infohash_v2": {"type": ["string", "null"]},
    "name": _STRING,
    "size_bytes": _NUMBER,
    "files_count": _NUMBER,
    "found": _STRING,
    "created": {"type": ["string", "null"]},
    "seeders": {"type": ["integer", "null"]},
    "leechers": {"type": ["integer", "null"]},
    "counted": {"type": ["string", "null"]},
    "type": _STRING,
    "category": _NUMBER,
    "languages": {"type": "array", "items": _STRING},
    "magnet": _STRING,
}
_SECONDS = {"description": "Seconds to wait before the next request.", "required": True, "schema": _NUMBER}
_COUNTS = {"type": "object", "additionalProperties": _NUMBER}
_SCHEMAS = {
    "Error": _object({"error": _STRING}),
    "Torrent": _object(_TORRENT),
    "TorrentWithFiles": _object(
        {**_TORRENT, "files": {"type": "array", "items": _object({"path": _STRING, "size_bytes": _NUMBER})}}
    ),
    "Found": _object(
        {
            "query": _STRING,
            "total": _NUMBER,
            "exact": _YES,
            "partial": _YES,
            "suggestion": _STRING,
            "mistakes": {"type": "array", "items": _STRING},
            "took_ms": {"type": "number"},
            "limit": _NUMBER,
            "offset": _NUMBER,
            "torrents": {"type": "array", "items": {"$ref": "#/components/schemas/Torrent"}},
        }
    ),
    "Counts": _object({"type": _COUNTS, "language": _COUNTS, "exact": _YES}),
    "Completions": _object({"completions": {"type": "array", "items": _STRING}}),
}
