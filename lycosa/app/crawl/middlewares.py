"""Order the middlewares of a spider: built-in ones and the user's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lycosa.app import ENABLED
from lycosa.app.imports import import_class
from lycosa.config import suggest
from lycosa.core.errors import BadSetting
from lycosa.crawl.crawler import Crawler, build_part
from lycosa.crawl.middlewares.chain import PlacedMiddleware

log = logging.getLogger(ENABLED)

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
"""Built-in downloader middlewares with their order. `headers` and `useragent` are only positions: the fetcher sets
these headers."""

SPIDER_ORDER = {"httperror": 50, "offsite": 500, "referer": 700, "urllength": 800, "depth": 900}
"""Built-in spider middlewares. `offsite` is only a position: the engine checks the scope of every link."""

Chosen = Mapping[str | type, int | None]


def place_middlewares(
    setting: str, built_in: Mapping[str, Any], order: Mapping[str, int], chosen: Chosen, crawler: Crawler
) -> list[PlacedMiddleware]:
    """Return the parts in `built_in` and the user's parts in `chosen`, each with its order number.

    `built_in` maps a name to its part, or to None if it is turned off. `chosen` is the value of `setting`, which may
    move or turn off a built-in part. Raises `BadSetting` for an unknown name, `BadSpider` for a part that cannot be
    created.
    """
    places: dict[str, int | None] = dict(order)
    users = []
    for part, number in chosen.items():
        if isinstance(part, str) and ":" not in part:
            if part not in order:
                raise BadSetting(f"{setting}: there is no built-in {part!r}{suggest(part, order)}")
            places[part] = number
        elif number is not None:
            users.append(PlacedMiddleware(number, build_part("middleware", import_class(setting, part), crawler)))
    ours = [PlacedMiddleware(place, part) for name, part in built_in.items() if (place := places[name]) is not None]
    placed = [each for each in (*ours, *users) if each.part is not None]
    names = [type(each.part).__name__ for each in sorted(placed, key=lambda each: each.order)]
    log.info("enabled %s: %s", setting.replace("_", " "), ", ".join(names) or "none", extra={"middlewares": names})
    return placed
