"""Torznab for Prowlarr, Sonarr and Radarr. An empty search returns the newest torrents. A search in a category includes
its subcategories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate

from starlette.requests import Request
from starlette.responses import Response

from lycosa.core.errors import BadQuery, LycosaError
from lycosa.search.core.query import OFFSET_MAX
from lycosa.search.site.torrents.feeds import TORRENT_TYPE, XML, base_url, xml_attribute, xml_text
from lycosa.search.site.torrents.views import facts_of_torrent, infohash_hex, magnet_uri
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.storage.core.torrent_record import StoredTorrent

LIMIT, LIMIT_MAX = 50, 100
# fmt: off
CATEGORIES: Mapping[int, tuple[str, Mapping[int, str]]] = {
    1000: ("Console", {1050: "XBox 360", 1080: "PS3", 1090: "Other", 1180: "PS4"}),
    2000: ("Movies", {
        2020: "Other", 2030: "SD", 2040: "HD", 2045: "UHD", 2050: "BluRay", 2060: "3D", 2070: "DVD", 2080: "WEB-DL",
    }),
    3000: ("Audio", {3010: "MP3", 3020: "Video", 3030: "Audiobook", 3040: "Lossless", 3050: "Other"}),
    4000: ("PC", {4010: "0day", 4020: "ISO", 4030: "Mac", 4050: "Games", 4060: "Mobile-iOS", 4070: "Mobile-Android"}),
    5000: ("TV", {
        5010: "WEB-DL", 5030: "SD", 5040: "HD", 5045: "UHD", 5050: "Other", 5060: "Sport", 5070: "Anime",
        5080: "Documentary",
    }),
    6000: ("Adult", {6040: "x264", 6045: "UHD", 6070: "Other"}),
    7000: ("Books", {7010: "Mags", 7020: "EBook", 7030: "Comics", 7040: "Technical"}),
    8000: ("Other", {8010: "Misc"}),
}
# fmt: on
"""The categories of the built-in rules (content.toml), with Newznab's names."""
SEARCHES = {"search": ("q",), "tvsearch": ("q", "season", "ep"), "movie": ("q", "year")}
CAPS_NAMES = {"search": "search", "tvsearch": "tv-search", "movie": "movie-search"}
UNAVAILABLE = {
    "music",
    "book",
    "audio",
    "details",
    "getnfo",
    "get",
    "cartadd",
    "cartdel",
    "comments",
    "register",
    "user",
}
CREDENTIALS, MISSING, INCORRECT, UNKNOWN_FUNCTION, NOT_AVAILABLE, FAILED = 100, 200, 201, 202, 203, 900
DESCRIPTIONS = {
    CREDENTIALS: "Incorrect user credentials",
    MISSING: "Missing parameter",
    INCORRECT: "Incorrect parameter",
    UNKNOWN_FUNCTION: "No such function",
    NOT_AVAILABLE: "Function not available",
    FAILED: "The search is unavailable",
}
_WORD = re.compile(r"\w")
_DIGITS = re.compile(r"\d{1,9}")
_SEASON = re.compile(r"[sS]?(\d{1,4})")
_EPISODE = re.compile(r"[eE]?(\d{1,4})|(\d{1,2})/(\d{1,2})")
_CATEGORIES = re.compile(r"\d{1,6}(?:,\d{1,6}){0,199}")


class _Refused(Exception):
    """An error response to send: its code, and the wrong parameter or function."""

    def __init__(self, code: int, about: str = "") -> None:
        super().__init__(about)
        self.code, self.about = code, about


class Torznab:
    """Answers Torznab requests."""

    def __init__(self, search: TorrentSearch, title: str, log: Callable[[Exception], None]) -> None:
        self._search, self._title, self._log = search, title, log

    async def answer(self, request: Request) -> Response:
        """Answer a request. Errors have the status 200, as clients of Newznab expect."""
        try:
            return Response(await self._answer(request), media_type="application/rss+xml")
        except _Refused as refused:
            return _error(refused.code, refused.about)
        except LycosaError as failure:
            self._log(failure)
            return _error(FAILED)

    async def _answer(self, request: Request) -> str:
        function = request.query_params.get("t", "")
        if not function:
            raise _Refused(MISSING, "t")
        if function == "caps":
            return _caps(self._title)
        if function in UNAVAILABLE:
            raise _Refused(NOT_AVAILABLE, function)
        if function not in SEARCHES:
            raise _Refused(UNKNOWN_FUNCTION, function)
        wanted = _request(request.query_params, SEARCHES[function])
        if wanted.text and not _WORD.search(wanted.text):
            return _results(base_url(request), self._title, [], 0, wanted.offset)
        try:
            found = await self._search.search(wanted)
        except BadQuery as failure:
            raise _Refused(INCORRECT, str(failure)) from None
        return _results(base_url(request), self._title, found.torrents, found.total, wanted.offset)


def bad_credentials() -> Response:
    """Return the response to a wrong API key."""
    return _error(CREDENTIALS)


def _request(values: Mapping[str, str], accepted: tuple[str, ...]) -> TorrentRequest:
    words = [values.get("q", "").strip()]
    words += [_episode(values)] if "season" in accepted else []
    words += [_digits(values, "year")] if "year" in accepted else []
    text = " ".join(filter(None, words))
    categories = values.get("cat", "").strip()
    if categories and not _CATEGORIES.fullmatch(categories):
        raise _Refused(INCORRECT, "cat")
    limit, offset = int(_digits(values, "limit") or LIMIT), int(_digits(values, "offset") or 0)
    if offset > OFFSET_MAX:
        raise _Refused(INCORRECT, "offset")
    fields = {"cat": categories, "episode": _episode_alone(values) if "ep" in accepted else ""}
    # Clients poll for new torrents, so all results are sorted by date.
    return TorrentRequest(
        text, fields, "date", limit=min(max(limit, 1), LIMIT_MAX), offset=offset, strict=True, suggests=False
    )


def _episode(values: Mapping[str, str]) -> str:
    """Return the words for a season and an episode: "S01E02", "S01", or the day of a daily show, "2026 11 05"."""
    season, episode = values.get("season", "").strip(), values.get("ep", "").strip()
    if not season:
        return ""
    found, part = _SEASON.fullmatch(season), _EPISODE.fullmatch(episode)
    if found is None or (episode and part is None):
        raise _Refused(INCORRECT, "season" if found is None else "ep")
    if part is None:
        return f"S{int(found[1]):02}" if len(found[1]) < 4 else found[1]
    if part[2]:
        return f"{found[1]} {int(part[2]):02} {int(part[3]):02}"
    return f"S{int(found[1]):02}E{int(part[1]):02}"


def _episode_alone(values: Mapping[str, str]) -> str:
    """Return an episode without a season. It is a filter: most names have it in one word with the season."""
    episode = values.get("ep", "").strip()
    if not episode or values.get("season", "").strip():
        return ""
    part = _EPISODE.fullmatch(episode)
    if part is None:
        raise _Refused(INCORRECT, "ep")
    if part[2]:  # the day of a daily show, whose year is the season
        raise _Refused(MISSING, "season")
    return part[1]


def _digits(values: Mapping[str, str], name: str) -> str:
    text = values.get(name, "").strip()
    if text and not _DIGITS.fullmatch(text):
        raise _Refused(INCORRECT, name)
    return text


def _error(code: int, about: str = "") -> Response:
    description = DESCRIPTIONS[code] + (f": {about}" if about else "")
    text = f'{XML}<error code="{code}" description={xml_attribute(description)}/>'
    return Response(text, media_type="application/xml")


def _caps(title: str) -> str:
    searching = "".join(
        f'<{CAPS_NAMES[name]} available="yes" supportedParams="{",".join(parameters)}"/>'
        for name, parameters in SEARCHES.items()
    )
    missing = "".join(f'<{name}-search available="no" supportedParams="q"/>' for name in ("audio", "book"))
    categories = "".join(
        f'<category id="{number}" name="{name}">'
        + "".join(f'<subcat id="{sub}" name="{label}"/>' for sub, label in below.items())
        + "</category>"
        for number, (name, below) in CATEGORIES.items()
    )
    return (
        f"{XML}<caps><server title={xml_attribute(title)}/>"
        f'<limits default="{LIMIT}" max="{LIMIT_MAX}"/>'
        f"<searching>{searching}{missing}</searching><categories>{categories}</categories></caps>"
    )


def _results(base: str, title: str, torrents: Sequence[StoredTorrent], total: int, offset: int) -> str:
    items = "".join(_item(base, each) for each in torrents)
    return (
        f'{XML}<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"'
        ' xmlns:newznab="http://www.newznab.com/DTD/2010/feeds/attributes/"'
        ' xmlns:torznab="http://torznab.com/schemas/2015/feed"><channel>'
        f'<atom:link href={xml_attribute(f"{base}/torznab/api")} rel="self" type="application/rss+xml"/>'
        f"<title>{xml_text(title)}</title><description>Torrents</description><link>{xml_text(base)}/</link>"
        f'<newznab:response offset="{offset}" total="{total}"/>{items}</channel></rss>'
    )


def _item(base: str, torrent: StoredTorrent) -> str:
    record, facts = torrent.record, facts_of_torrent(torrent)
    infohash, magnet = infohash_hex(torrent), xml_attribute(magnet_uri(torrent))
    attributes: dict[str, object] = {"size": torrent.size_bytes, "files": torrent.files_count, "infohash": infohash}
    if torrent.counted is not None:
        attributes |= {"seeders": torrent.seeders, "leechers": torrent.leechers}
        attributes["peers"] = torrent.seeders + torrent.leechers
    told = {"year": facts.year, "resolution": facts.resolution and f"{facts.resolution}p"}
    attributes |= {name: value for name, value in told.items() if value}
    attributes |= {
        name: value for name, value in (("season", facts.season), ("episode", facts.episode)) if value is not None
    }
    categories = dict.fromkeys([facts.category // 1000 * 1000, facts.category])
    page = xml_text(f"{base}/torrent/{infohash}")
    return (
        f"<item><title>{xml_text(record.name)}</title><guid>{page}</guid><comments>{page}</comments>"
        f"<link>{xml_text(magnet_uri(torrent))}</link>"
        f"<pubDate>{formatdate(record.discovered, usegmt=True)}</pubDate><size>{torrent.size_bytes}</size>"
        + "".join(f"<category>{each}</category>" for each in categories)
        + f'<enclosure url={magnet} length="{torrent.size_bytes}" type="{TORRENT_TYPE}"/>'
        + "".join(f'<torznab:attr name="category" value="{each}"/>' for each in categories)
        + f'<torznab:attr name="magneturl" value={magnet}/>'
        + "".join(f'<torznab:attr name="{name}" value="{value}"/>' for name, value in attributes.items())
        + "</item>"
    )
