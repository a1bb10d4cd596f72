"""The languages of the pages. Templates are in English; other languages have tables of translations."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

from starlette.requests import Request

from lycosa.core.errors import LycosaError
from lycosa.core.units import format_rough_duration
from lycosa.search.site.app import counted

LANGUAGE_COOKIE = "lycosa_language"
LANGUAGE_KEPT_S = 365 * 86_400
TABLES = Path(__file__).parent / "languages"
TIME_MAX = 253_402_300_799  # the end of the year 9999
_WEIGHT = re.compile(r"q\s*=\s*([01](?:\.\d{0,3})?)")


@dataclass(frozen=True, slots=True)
class Language:
    """A language, its own name, and translations of English texts."""

    code: str
    name: str
    texts: Mapping[str, str]

    def text(self, english: str, **values: object) -> str:
        found = self.texts.get(english, english)
        return found.format(**values) if values else found

    def sentence(self, error: LycosaError) -> str:
        """Return the message of an error as a sentence."""
        text = self.text(error.message, **error.values)
        return text if text.endswith((".", "。")) else f"{text[:1].upper()}{text[1:]}{self.text('.')}"

    def count(self, number: int, one: str, many: str = "") -> str:
        """Return a number with its noun: "1 file", "2,345 files"."""
        if one in self.texts:
            return f"{number:,} {self.texts[one]}"
        return counted(number, one, many)

    def day(self, seconds: float) -> str:
        """Return a day: "5 November 2026" in English, "2026-11-05" in other languages."""
        moment = datetime.fromtimestamp(min(max(seconds, 0), TIME_MAX), UTC)
        return f"{moment:%Y-%m-%d}" if self.texts else f"{moment.day} {moment:%B %Y}"

    def ago(self, seconds: float) -> str:
        """Return how long ago something was, in one unit: "3 h ago"."""
        passed_s = time.time() - seconds
        if passed_s < 1:
            return self.text("just now")
        number, _, unit = format_rough_duration(passed_s).partition(" ")
        return self.text("{number} {unit} ago", number=number, unit=self.text(unit))

    def duration(self, seconds: float) -> str:
        """Return a time span in one unit: "3 h"."""
        number, _, unit = format_rough_duration(seconds).partition(" ")
        return f"{number} {self.text(unit)}"


def _read(path: Path) -> Language:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return Language(path.stem, table["name"], table["texts"])


ENGLISH = Language("en", "English", {})
LANGUAGES_OF_SITE = {each.code: each for each in [ENGLISH, *map(_read, sorted(TABLES.glob("*.toml")))]}


def language_of(request: Request) -> Language:
    """Return the language that the visitor chose, or the supported one that the browser prefers."""
    if chosen := LANGUAGES_OF_SITE.get(request.cookies.get(LANGUAGE_COOKIE, "")):
        return chosen
    tags = request.headers.get("accept-language", "")[:200].split(",")
    asked = sorted(map(_asked, tags), key=itemgetter(0), reverse=True)
    return next((LANGUAGES_OF_SITE[code] for quality, code in asked if quality and code in LANGUAGES_OF_SITE), ENGLISH)


def _asked(part: str) -> tuple[float, str]:
    """Return the quality and the code of a language in the header Accept-Language (RFC 9110 §12.5.4)."""
    tag, _, quality = part.partition(";")
    weight = _WEIGHT.fullmatch(quality.strip())
    return float(weight[1]) if weight else 1.0, tag.strip().lower().partition("-")[0]
