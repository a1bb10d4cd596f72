"""The format of rule files (TOML). Rules refuse a torrent, or classify its content, by the names in it.

    [words.NAME]    a list of words, hashed words and patterns that several rules use
    [[deny]]        refuses a torrent if one of its names has a word of the rule, or a word of every list in `all`.
                    The rule ignores names that have a word of a list in `unless`.
    [[content]]     what words, patterns and file extensions mean: a type with a weight, tags and a resolution
    [languages]     the words that name a language
    [[category]]    Newznab's number for a type with tags and a resolution; the first match counts
    [[test]]        a name, and the expected results

`read_rules` checks the fields. The words and patterns are checked when `DenyRules` and `ContentRules` are built, which
get the function that compiles patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from lycosa.core.errors import UsageError
from lycosa.storage.core.content_facts import LANGUAGES, ContentType

PATTERN_MAX = 500
TYPES = {each.name.lower(): each for each in ContentType}


class Match(Protocol):
    """A match, as in `re`."""

    def groupdict(self) -> dict[str, Any]: ...


class Pattern(Protocol):
    """A compiled pattern of `re` or a similar library."""

    def search(self, text: str, /) -> Match | None: ...


CompilePattern = Callable[[str], Pattern]
"""Compiles a pattern in which ^ and $ match at the start and end of a line. Raises `UsageError`."""


class WordSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A word list. `file` names a file in the same folder with further words, plain or hashed, one per line."""

    words: list[str] = []
    hashed: list[str] = []
    patterns: list[str] = []
    file: str = ""


class DenySection(WordSection, forbid_unknown_fields=True, frozen=True):
    """Refuses a torrent if a name has one of the words, or at least one word of every list in `all`."""

    reason: str = ""
    all: list[str] = []
    unless: list[str] = []


class ContentSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What it means if a name has one of the words or patterns, or a file one of the extensions."""

    words: list[str] = []
    patterns: list[str] = []
    extensions: list[str] = []
    type: str = "unknown"
    weight: float = 1.0
    tags: list[str] = []
    resolution: int = 0


class CategorySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The section [[category]]. All `tags` must match, and one of the `resolutions`, if any."""

    number: int
    type: str
    tags: list[str] = []
    resolutions: list[int] = []


class TestSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A name, file names, and the expected results. Missing fields are not compared; `refused` defaults to false."""

    __test__ = False

    name: str
    files: list[str] = []
    type: str | None = None
    category: int | None = None
    resolution: int | None = None
    year: int | None = None
    season: int | None = None
    episode: int | None = None
    languages: list[str] | None = None
    refused: bool | None = None


class RuleFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A rule file. `abuse_rules = false` turns off the built-in rules against abuse material."""

    abuse_rules: bool = True
    words: dict[str, WordSection] = {}
    deny: list[DenySection] = []
    content: list[ContentSection] = []
    languages: dict[str, list[str]] = {}
    category: list[CategorySection] = []
    test: list[TestSection] = []


def read_rules(data: Mapping[str, Any]) -> RuleFile:
    """Return the rules of a decoded file. Raises `UsageError` with the place of the mistake."""
    try:
        rules = msgspec.convert(data, RuleFile)
    except msgspec.ValidationError as error:
        message = str(error).replace("Object contains unknown", "unknown").replace(" - at `$.", ", in `")
        raise UsageError(message) from None
    for place, mistake in _mistakes(rules):
        raise UsageError(f"{mistake}, in `{place}`")
    return rules


def _mistakes(rules: RuleFile) -> Iterator[tuple[str, str]]:
    """Yield (place, mistake) for each mistake that the decoding of the fields does not find."""
    for at, deny in enumerate(rules.deny):
        if not deny.reason:
            yield f"deny[{at}]", "a rule needs a reason"
        if bool(deny.all) == bool(deny.words or deny.hashed or deny.patterns or deny.file):
            yield f"deny[{at}]", "a rule needs either words (words, hashed, patterns, file) or lists (all)"
        for name in (*deny.all, *deny.unless):
            if name not in rules.words:
                yield f"deny[{at}]", f"there is no list [words.{name}]"
    sections: list[tuple[str, WordSection]] = [(f"words.{name}", each) for name, each in rules.words.items()]
    for place, section in [*sections, *((f"deny[{at}]", each) for at, each in enumerate(rules.deny))]:
        if "/" in section.file or "\\" in section.file:
            yield place, "a word list must be in the folder of its rules: write its name without a folder"
    yield from _unknown_names(rules)


def _unknown_names(rules: RuleFile) -> Iterator[tuple[str, str]]:
    typed: list[tuple[str, str | None]] = [(f"content[{at}]", each.type) for at, each in enumerate(rules.content)]
    typed += [(f"category[{at}]", each.type) for at, each in enumerate(rules.category)]
    typed += [(f"test[{at}]", each.type) for at, each in enumerate(rules.test)]
    for place, kind in typed:
        if kind is not None and kind not in TYPES:
            yield place, f"{kind!r} is not a type: write one of {', '.join(TYPES)}"
    for language in rules.languages:
        if language not in LANGUAGES:
            yield "languages", f"{language!r} is not a known language: write one of {', '.join(LANGUAGES)}"
