"""Search results as feeds (RSS, Atom), JSON and CSV; search from the address bar of browsers (OpenSearch)."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from email.utils import formatdate
from xml.sax.saxutils import escape, quoteattr

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lycosa.core.errors import BadQuery
from lycosa.core.units import format_size
from lycosa.search.site.torrents.params import API_LIMIT_MAX, SearchParams, number, search_params
from lycosa.search.site.torrents.statistics import DAY_S
from lycosa.search.site.torrents.views import facts_of_torrent, infohash_hex, iso_time, magnet_uri
from lycosa.search.torrents import FoundTorrents, TorrentSearch
from lycosa.storage.core.torrent_record import StoredTorrent

ITEMS = 50
FORMS = {
    "rss": "application/rss+xml",
    "atom": "application/atom+xml",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
}
STRICT = {"rss", "atom"}
"""The forms that have only torrents with all words: a feed reader would report the others as new."""
TORRENT_TYPE = "application/x-bittorrent;x-scheme-handler/magnet"
COLUMNS = ("infohash", "name", "size_bytes", "files", "found", "seeders", "leechers", "type", "languages", "magnet")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FORMULA = re.compile(r"[=+\-@\t\r]")


class TorrentFeeds:
    """Serves search results in each of FORMS, and what browsers need to search from their address bar."""

    def __init__(self, search: TorrentSearch, title: str) -> None:
        self._search, self._title = search, title

    async def search(self, request: Request) -> Response:
        form = request.path_params["form"]
        if form not in FORMS:
            raise HTTPException(404)
        try:
            params = search_params(request.query_params)
            limit = max(number(request.query_params, "limit", ITEMS, API_LIMIT_MAX), 1)
            wanted = replace(params.request(limit), strict=form in STRICT, suggests=form == "json")
            found = await self._search.search(wanted)
        except BadQuery as failure:
            return JSONResponse({"error": str(failure)}, 400)
        base = base_url(request)
        if form == "json":
            return JSONResponse(search_json(params.text, found))
        if form == "csv":
            return Response(_csv(found.torrents), media_type=FORMS[form])
        text = (_rss if form == "rss" else _atom)(base, self._title, params, found.torrents)
        return Response(text, media_type=FORMS[form])

    async def opensearch(self, request: Request) -> Response:
        base = xml_text(base_url(request))
        text = (
            f'{XML}<OpenSearchDescription xmlns="http://a9.com/-/spec/opensearch/1.1/">'
            f"<ShortName>{xml_text(self._title[:16])}</ShortName><Description>Search torrents</Description>"
            f"<InputEncoding>UTF-8</InputEncoding><OutputEncoding>UTF-8</OutputEncoding>"
            f'<Url type="text/html" template="{base}/search?q={{searchTerms}}"/>'
            f'<Url type="application/rss+xml" template="{base}/search.rss?q={{searchTerms}}"/>'
            f'<Url type="application/x-suggestions+json" template="{base}/suggest?q={{searchTerms}}"/>'
            f'<Image width="16" height="16" type="image/svg+xml">{base}/static/favicon.svg</Image>'
            "</OpenSearchDescription>"
        )
        return Response(text, media_type="application/opensearchdescription+xml")

    async def suggestions(self, request: Request) -> Response:
        """Return completions in the form that browsers expect."""
        text = request.query_params.get("q", "")[:100]
        return JSONResponse([text, await self._search.completions(text)], media_type="application/x-suggestions+json")


XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def xml_text(text: str) -> str:
    """Escape text, and remove characters that XML forbids."""
    return escape(_NOT_XML.sub("", text))


def xml_attribute(text: str) -> str:
    """Quote and escape an attribute, and remove characters that XML forbids."""
    return quoteattr(_NOT_XML.sub("", text))


def base_url(request: Request) -> str:
    """Return the URL of the site as the client sees it, without a slash at the end."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"


def torrent_json(torrent: StoredTorrent, *, files: bool = False) -> dict[str, object]:
    """Return a torrent as JSON. Unknown numbers are null."""
    record, facts = torrent.record, facts_of_torrent(torrent)
    counted = torrent.counted is not None
    told: dict[str, object] = {
        "infohash": infohash_hex(torrent),
        "infohash_v2": record.infohash_v2.hex() if record.infohash_v2 else None,
        "name": _NOT_XML.sub("", record.name),
        "size_bytes": torrent.size_bytes,
        "files_count": torrent.files_count,
        "found": iso_time(record.discovered),
        "created": None if record.created is None else iso_time(record.created),
        "seeders": torrent.seeders if counted else None,
        "leechers": torrent.leechers if counted else None,
        "counted": None if torrent.counted is None else iso_time(torrent.counted),
        "type": facts.type.name.lower(),
        "category": facts.category,
        "languages": list(facts.languages),
        "magnet": magnet_uri(torrent),
    }
    if files:
        told["files"] = [{"path": _NOT_XML.sub("", file.path), "size_bytes": file.size_bytes} for file in record.files]
    return told


def search_json(text: str, found: FoundTorrents) -> dict[str, object]:
    """Return a page of results as JSON."""
    return {
        "query": text,
        "total": found.total,
        "exact": found.exact,
        "partial": found.partial,
        "suggestion": found.suggestion,
        "mistakes": [str(each) for each in found.parsed.mistakes],
        "took_ms": round(found.took_ms, 3),
        "torrents": [torrent_json(each) for each in found.torrents],
    }


def _rss(base: str, title: str, params: SearchParams, torrents: Sequence[StoredTorrent]) -> str:
    link = xml_text(f"{base}/search?{params.query()}")
    own = xml_attribute(f"{base}/search.rss?{params.query()}")
    head = (
        f'{XML}<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>'
        f"<title>{xml_text(_feed_title(title, params))}</title><link>{link}</link>"
        f"<description>Results of a torrent search</description>"
        f'<atom:link href={own} rel="self" type="application/rss+xml"/>'
    )
    items = "".join(
        f"<item><title>{xml_text(each.record.name)}</title><link>{xml_text(_page(base, each))}</link>"
        f'<guid isPermaLink="false">{infohash_hex(each)}</guid>'
        f"<pubDate>{formatdate(each.record.discovered, usegmt=True)}</pubDate>"
        f"<description>{_summary(each)}</description>"
        f"<enclosure url={xml_attribute(magnet_uri(each))} length={xml_attribute(str(each.size_bytes))}"
        f' type="{TORRENT_TYPE}"/></item>'
        for each in torrents
    )
    return f"{head}{items}</channel></rss>"


def _atom(base: str, title: str, params: SearchParams, torrents: Sequence[StoredTorrent]) -> str:
    own = f"{base}/search.atom?{params.query()}"
    # The day, for an empty feed: then its tag stays the same until tomorrow.
    newest = max((each.record.discovered for each in torrents), default=int(time.time()) // DAY_S * DAY_S)
    head = (
        f'{XML}<feed xmlns="http://www.w3.org/2005/Atom"><id>{xml_text(own)}</id>'
        f"<title>{xml_text(_feed_title(title, params))}</title><updated>{iso_time(newest)}</updated>"
        f"<author><name>{xml_text(title)}</name></author>"
        f'<link rel="self" href={xml_attribute(own)}/>'
        f"<link href={xml_attribute(f'{base}/search?{params.query()}')}/>"
    )
    entries = "".join(
        f"<entry><id>urn:btih:{infohash_hex(each)}</id><title>{xml_text(each.record.name)}</title>"
        f"<updated>{iso_time(each.record.discovered)}</updated><link href={xml_attribute(_page(base, each))}/>"
        f'<link rel="enclosure" href={xml_attribute(magnet_uri(each))}/><summary>{_summary(each)}</summary></entry>'
        for each in torrents
    )
    return f"{head}{entries}</feed>"


def _csv(torrents: Sequence[StoredTorrent]) -> str:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(COLUMNS)
    for each in torrents:
        told = torrent_json(each)
        name = str(told["name"])
        # Spreadsheets execute text that begins like a formula.
        told |= {"name": f"'{name}" if _FORMULA.match(name) else name, "files": told["files_count"]}
        told["languages"] = " ".join(facts_of_torrent(each).languages)
        writer.writerow(["" if told[column] is None else told[column] for column in COLUMNS])
    return written.getvalue()


def _feed_title(title: str, params: SearchParams) -> str:
    said = " ".join([params.text, *(f"{name}:{value}" for name, value in params.fields.items())]).strip()
    return f"{title}: {said or 'newest'}"


def _page(base: str, torrent: StoredTorrent) -> str:
    return f"{base}/torrent/{infohash_hex(torrent)}"


def _summary(torrent: StoredTorrent) -> str:
    files = torrent.files_count
    return f"{format_size(torrent.size_bytes)}, {files:,} {'file' if files == 1 else 'files'}"
