"""Finds stats that `STAT_NAMES` does not list."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lycosa.crawl.events.stats_collector import STAT_NAMES


def unlisted_names(names: Iterable[str]) -> list[str]:
    """Return the names that `STAT_NAMES` does not list."""
    return [name for name in names if name not in STAT_NAMES and not _LISTED.fullmatch(name)]


_LISTED = re.compile("|".join(re.sub(r"<\w+>", ".+", re.escape(name)) for name in STAT_NAMES), re.DOTALL)
