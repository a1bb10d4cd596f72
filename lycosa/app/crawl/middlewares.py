"""Which middlewares a spider has, and in which order: the built-in ones that the settings ask for, and the user's."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from lycosa.app.named import class_named
from lycosa.core.errors import BadSetting
from lycosa.crawl.crawler import Crawler, build_part
from lycosa.crawl.middlewares.chain import PlacedMiddleware

DOWNLOADER_ORDER = {
    "offsite": 50,
    "robots": 100,
    "httpauth": 300,
    "headers": 400,
    "useragent": 500,
    "retry": 550,
    "metarefresh": 580,
    "redirect": 600,
    "cookies": 700,
    "proxy": 750,
    "throttle": 800,
    "stats": 850,
    "httpcache": 900,
}
"""The built-in downloader middlewares by their short names. Headers, user agent and `proxy` are the fetcher's."""

SPIDER_ORDER = {"httperror": 50, "offsite": 500, "referer": 700, "urllength": 800, "depth": 900}
"""The built-in spider middlewares. Offsite is done for both sides by the scope."""

Chosen = Mapping[str | type, int | None]


def in_order(
    what: str, built_in: Mapping[str, Any], order: Mapping[str, int], chosen: Chosen, crawler: Crawler
) -> list[PlacedMiddleware]:
    """Return the built-in parts (None: not wanted) with those chosen in the setting `what`.

    Raises `BadSetting` for a name that is nothing, `BadSpider` for a part that cannot be made.
    """
    places = dict(order)
    users = []
    for part, number in chosen.items():
        if isinstance(part, str) and ":" not in part:
            if part not in order:
                near = get_close_matches(part, order, n=1)
                meant = f": did you mean {near[0]}?" if near else ""
                raise BadSetting(f"{what}: there is no built-in {part!r}{meant}")
            places[part] = number  # type: ignore[assignment]
        elif number is not None:
            own = build_part("middleware", class_named(what, part) if isinstance(part, str) else part, crawler)
            users.append(PlacedMiddleware(number, own))
    ours = [PlacedMiddleware(places[name], part) for name, part in built_in.items() if places[name] is not None]
    return [each for each in (*ours, *users) if each.part is not None]
