"""The rules about names, as an operator writes them (TOML): what is refused, and what the content is.

    [words.NAME]    a list of words, hashed words and patterns that rules share
    [[deny]]        refuses torrents: a list of its own, or lists that must all be in one name; `unless` excepts
    [[content]]     what words, patterns and extensions of file names say: a type with a weight, and facts
    [languages]     words by the language that they name
    [[category]]    Newznab's number for a type with tags and a resolution; the first that fits counts
    [[test]]        a name and what the rules must say of it

Decoding checks every field. Patterns are compiled by the function that the caller passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from lycosa.core.errors import UsageError
from lycosa.storage.core.content_facts import LANGUAGES, ContentType

PATTERN_MAX = 500
"""Characters of a pattern."""
TYPES = {each.name.lower(): each for each in ContentType}


class Match(Protocol):
    """What was found, as of `re`."""

    def groupdict(self) -> dict[str, Any]:
        """Return the named groups."""


class Pattern(Protocol):
    """A compiled pattern, of `re` or of a library like it."""

    def search(self, text: str, /) -> Match | None:
        """Return the first match."""


CompilePattern = Callable[[str], Pattern]
"""Compiles a pattern, in which ^ and $ are the ends of a line. Raises `UsageError`."""


class WordSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Words, all alike. `file` names a file beside this one with a word or a hashed word per line."""

    words: list[str] = []
    hashed: list[str] = []
    patterns: list[str] = []
    file: str = ""


class DenySection(WordSection, forbid_unknown_fields=True, frozen=True):
    """Refuses a torrent if a name has one of the words, or words of each of the lists `all`."""

    reason: str = ""
    all: list[str] = []
    unless: list[str] = []


class ContentSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What it means if a name has one of the words or patterns, or files have one of the extensions."""

    words: list[str] = []
    patterns: list[str] = []
    extensions: list[str] = []
    type: str = "unknown"
    weight: float = 1.0
    tags: list[str] = []
    resolution: int = 0


class CategorySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A category for a type with all of these tags and one of these resolutions, if any are named."""

    number: int
    type: str
    tags: list[str] = []
    resolutions: list[int] = []


class TestSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A name, with names of files, and what is expected; what is not named is not compared."""

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
    """A file of rules. `abuse_rules = false` switches the package's rules against abuse material off."""

    abuse_rules: bool = True
    words: dict[str, WordSection] = {}
    deny: list[DenySection] = []
    content: list[ContentSection] = []
    languages: dict[str, list[str]] = {}
    category: list[CategorySection] = []
    test: list[TestSection] = []


def read_rules(data: Mapping[str, Any]) -> RuleFile:
    """Return the rules of a decoded file. Raises `UsageError`, which says where the mistake is."""
    try:
        rules = msgspec.convert(data, RuleFile)
    except msgspec.ValidationError as error:
        message = str(error).replace("Object contains unknown", "unknown").replace(" - at `$.", ", in `")
        raise UsageError(message) from None
    for place, mistake in _mistakes(rules):
        raise UsageError(f"{mistake}, in `{place}`")
    return rules


def _mistakes(rules: RuleFile) -> Iterator[tuple[str, str]]:
    """Yield (place, mistake) of what the types of the fields do not say."""
    for at, deny in enumerate(rules.deny):
        if not deny.reason:
            yield f"deny[{at}]", "a rule without a reason"
        if bool(deny.all) == bool(deny.words or deny.hashed or deny.patterns or deny.file):
            yield f"deny[{at}]", "a rule needs words of its own (words, hashed, patterns, file), or lists (all)"
        for name in (*deny.all, *deny.unless):
            if name not in rules.words:
                yield f"deny[{at}]", f"there is no list [words.{name}]"
    sections: list[tuple[str, WordSection]] = [(f"words.{name}", each) for name, each in rules.words.items()]
    for place, section in [*sections, *((f"deny[{at}]", each) for at, each in enumerate(rules.deny))]:
        if "/" in section.file or "\\" in section.file:
            yield place, "a list of words stands beside its rules: write its name without a folder"
    yield from _unknown_names(rules)


def _unknown_names(rules: RuleFile) -> Iterator[tuple[str, str]]:
    typed: list[tuple[str, str | None]] = [(f"content[{at}]", each.type) for at, each in enumerate(rules.content)]
    typed += [(f"category[{at}]", each.type) for at, each in enumerate(rules.category)]
    typed += [(f"test[{at}]", each.type) for at, each in enumerate(rules.test)]
    for place, kind in typed:
        if kind is not None and kind not in TYPES:
            yield place, f"{kind!r} is no type: write one of {', '.join(TYPES)}"
    for language in rules.languages:
        if language not in LANGUAGES:
            yield "languages", f"{language!r} is no language: write one of {', '.join(LANGUAGES)}"
