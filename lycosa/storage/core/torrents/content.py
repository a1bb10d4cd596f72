"""Classifies the content of a torrent by rules, from its name and the names and sizes of its files.

Each rule that matches the name adds its weight to its type, once. A rule with file extensions also adds its weight
times EXTENSION_WEIGHT, times the share of the bytes in files with these extensions. The type with the largest sum wins.

Named groups in the patterns capture season, episode and lines (the resolution); `pack` marks several episodes. Patterns
with non-ASCII characters are searched only in names with such characters. The last year in the name counts, unless it
is the first word.

A language counts only after the title, which ends at the first year, episode or resolution. Names without such an end,
or with Chinese, Japanese or Korean characters, are searched as a whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lycosa.storage.core.content_facts import LANGUAGES, OTHER, ContentFacts, ContentType
from lycosa.storage.core.torrent_record import StoredFile
from lycosa.storage.core.torrents.deny import compiled
from lycosa.storage.core.torrents.rules import TYPES, CompilePattern, ContentSection, Pattern, RuleFile
from lycosa.storage.core.torrents.words import FIRST_RUN, WordIndex, normalized, words_of

EXTENSION_WEIGHT = 12
YEARS = ("1900", "2039")
SEASON_MAX, EPISODE_MAX = 2100, 9999
RESOLUTIONS = (240, 360, 480, 540, 576, 720, 1080, 1440, 2160, 4320)
"""In lines. Other numbers from 200 to 4320 are rounded up to the next of these; all others are ignored."""
EPISODIC = "tv"
"""The tag of torrents with a season or an episode."""

_SCRIPTS = (
    ("ja", re.compile("[\u3041-\u309f\u30a1-\u30fa]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("zh", re.compile("[\u4e00-\u9fff]")),
    ("ru", re.compile("[\u0430-\u044f]")),
    ("th", re.compile("[\u0e01-\u0e3a]")),
    ("el", re.compile("[\u03b1-\u03c9]")),
    ("he", re.compile("[\u05d0-\u05ea]")),
    ("ar", re.compile("[\u0620-\u064a]")),
    ("hi", re.compile("[\u0904-\u0939]")),
    ("ta", re.compile("[\u0b85-\u0bb9]")),
    ("te", re.compile("[\u0c05-\u0c39]")),
    ("bn", re.compile("[\u0985-\u09b9]")),
)
"""Used only if no word of a name shows its language. The first script with at least two letters in the name wins."""
_DIGITS = {"零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}


class _Category(NamedTuple):
    number: int
    type: ContentType
    tags: frozenset[str]
    resolutions: frozenset[int]


class _Found(NamedTuple):
    rules: dict[int, None]
    groups: dict[str, str]
    year: int
    resolution: int
    languages: tuple[str, ...]


class ContentRules:
    """Categories of later files take precedence. Raises `UsageError`."""

    def __init__(self, files: Sequence[tuple[RuleFile, CompilePattern]]) -> None:
        self._rules: list[ContentSection] = []
        self._extensions: dict[str, int] = {}
        self._patterns: list[tuple[Pattern, int]] = []
        self._ascii_patterns: list[tuple[Pattern, int]] = []
        self._categories: list[_Category] = []
        self._languages = WordIndex([pair for rules, _ in files for pair in _language_words(rules)])
        clear: list[tuple[str, int]] = []
        for rules, compile_pattern in files:
            for number, section in enumerate(rules.content, len(self._rules)):
                clear += ((word, number) for word in section.words)
                for each in section.patterns:
                    self._patterns.append((compiled(each, compile_pattern), number))
                    self._ascii_patterns += self._patterns[-1:] if each.isascii() else []
                self._extensions |= {each.lower().lstrip("."): number for each in section.extensions}
            self._rules += rules.content
        for rules, _ in reversed(files):
            for row in rules.category:
                resolutions = frozenset(row.resolutions)
                self._categories.append(_Category(row.number, TYPES[row.type], frozenset(row.tags), resolutions))
        self._types = [TYPES[each.type] for each in self._rules]
        self._index = WordIndex(clear)

    def facts(self, name: str, files: Sequence[StoredFile] = ()) -> ContentFacts:
        found = self._read(name)
        shares = self._shares(files or (StoredFile(name, 1),))
        rules = {**found.rules, **shares}
        tags = {tag for rule in rules for tag in self._rules[rule].tags}
        season, episode = _number(found.groups, "season", SEASON_MAX), _number(found.groups, "episode", EPISODE_MAX)
        if season is not None or episode is not None or "pack" in found.groups:
            tags.add(EPISODIC)
        content_type = self._type(found.rules, shares)
        resolution, languages = found.resolution, found.languages
        if content_type in _MOVING:
            if files and not resolution:
                largest = self._read(max(files, key=_size).path.rpartition("/")[2])
                resolution = largest.resolution
                languages = languages or largest.languages
        else:
            resolution = 0
        if content_type is not ContentType.VIDEO:
            season = episode = None
        if "pack" in found.groups:
            episode = None
        category = self._category(content_type, tags, resolution)
        languages = languages or _language_of_letters(name)
        return ContentFacts(content_type, category, resolution, found.year, season, episode, languages)

    def _read(self, name: str) -> _Found:
        text = normalized(name)
        words = words_of(text)
        rules = dict.fromkeys(self._index.find(words))
        groups: dict[str, str] = {}
        for pattern, number in self._ascii_patterns if text.isascii() else self._patterns:
            if match := pattern.search(text):
                rules[number] = None
                for group, value in match.groupdict().items():
                    if value is not None:
                        groups.setdefault(group, value)
        lines = max((self._rules[rule].resolution for rule in rules), default=0)
        return _Found(rules, groups, _year(words), _resolution(groups) or lines, self._named_languages(words))

    def _shares(self, files: Iterable[StoredFile]) -> dict[int, float]:
        """Return, for each rule with extensions, the share of the bytes in files with these extensions."""
        sizes: dict[int, int] = defaultdict(int)
        total = 0
        for path, size_bytes in files:
            total += size_bytes
            if (rule := self._extensions.get(path.rpartition(".")[2].lower())) is not None:
                sizes[rule] += size_bytes
        return {rule: size_bytes / total for rule, size_bytes in sizes.items()} if total else {}

    def _type(self, rules: Iterable[int], shares: dict[int, float]) -> ContentType:
        scores = [0.0] * len(ContentType)
        for rule in rules:
            scores[self._types[rule]] += self._rules[rule].weight
        for rule, share in shares.items():
            scores[self._types[rule]] += EXTENSION_WEIGHT * share * self._rules[rule].weight
        scores[ContentType.UNKNOWN] = 0.0
        return ContentType(scores.index(max(scores)))

    def _named_languages(self, words: Sequence[str]) -> tuple[str, ...]:
        if not self._languages.find(words):
            return ()
        is_latin = all(word < FIRST_RUN for word in words)
        end = next((at for at, word in enumerate(words) if is_latin and at and _TITLE_END.fullmatch(word)), 0)
        return tuple(sorted(set(self._languages.find(words[end:])), key=LANGUAGES.index))

    def _category(self, content_type: ContentType, tags: set[str], resolution: int) -> int:
        for each in self._categories:
            if each.type is content_type and each.tags <= tags and (resolution in (each.resolutions or (resolution,))):
                return each.number
        return OTHER


_TITLE_END = re.compile(r"(?:19|20)[0-9]{2}|[0-9]{3,4}[pi]|s[0-9]{1,2}(?:e[0-9]+)?")
_MOVING = (ContentType.VIDEO, ContentType.ADULT)


def _language_words(rules: RuleFile) -> Iterator[tuple[str, str]]:
    return ((word, language) for language, words in rules.languages.items() for word in words)


def _size(file: StoredFile) -> int:
    return file.size_bytes


def _year(words: Sequence[str]) -> int:
    first, last = YEARS
    for word in reversed(words[1:]):
        if len(word) == 4 and first <= word <= last and word.isdigit():
            return int(word)
    return 0


def _resolution(groups: dict[str, str]) -> int:
    lines = _number(groups, "lines", RESOLUTIONS[-1]) or 0
    return next(each for each in RESOLUTIONS if each >= lines) if lines >= 200 else 0


def _number(groups: dict[str, str], name: str, most: int) -> int | None:
    """Parse a group of ASCII digits, or of Chinese numerals up to 99. None if absent, invalid or above `most`."""
    text = groups.get(name)
    if not text:
        return None
    if text[0] < FIRST_RUN:
        number = int(text) if text.isascii() and text.isdigit() else most + 1
    elif "十" in text:
        tens, _, ones = text.partition("十")
        number = _DIGITS.get(tens, 1) * 10 + _DIGITS.get(ones, 0)
    else:
        number = _DIGITS.get(text, most + 1)
    return number if number <= most else None


def _language_of_letters(name: str) -> tuple[str, ...]:
    if name.isascii():
        return ()
    return next(((language,) for language, letters in _SCRIPTS if len(letters.findall(name)) >= 2), ())
