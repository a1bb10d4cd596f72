"""Refuses torrents by words and patterns. A rule must match within one name: the torrent's, or one of its paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.storage.core.torrents.rules import PATTERN_MAX, CompilePattern, Pattern, RuleFile, WordSection
from lycosa.storage.core.torrents.words import WordIndex, normalized, words_of

TEXT_MAX = 256 * 1024
"""Maximum characters of a torrent's names and paths that are searched."""


class _Rule(NamedTuple):
    reason: str
    all: frozenset[int]
    unless: frozenset[int]


class DenyRules:
    """The deny rules of rule files. Their word lists are numbered. Raises `UsageError`."""

    def __init__(self, files: Iterable[tuple[RuleFile, CompilePattern]]) -> None:
        self._rules: list[_Rule] = []
        self._clear: list[tuple[str, int]] = []
        self._hashed: list[tuple[str, int]] = []
        self._patterns: list[tuple[Pattern, int]] = []
        self._lists = 0
        for rules, compile_pattern in files:
            self._add(rules, compile_pattern)
        self._index = WordIndex(self._clear, self._hashed)

    def reason_against(self, names: Sequence[str]) -> str:
        """Return why a torrent with these names is refused, or ""."""
        if not self._rules:
            return ""
        paths = "\n".join(names)[:TEXT_MAX]
        folders_once = "\n".join(dict.fromkeys(paths.replace("/", "\n").split("\n")))
        found = self._with_words(normalized(folders_once))
        if self._patterns:
            found |= self._with_patterns(normalized(paths))
        if found and any(rule.all <= found for rule in self._rules):  # the names together match: check each alone
            for name in normalized(paths).split("\n"):
                found = self._with_words(name) | self._with_patterns(name)
                for rule in self._rules:
                    if rule.all <= found and not rule.unless & found:
                        return rule.reason
        return ""

    def _with_words(self, text: str) -> set[int]:
        return set(self._index.find(words_of(text)))

    def _with_patterns(self, text: str) -> set[int]:
        return {number for pattern, number in self._patterns if pattern.search(text)}

    def _add(self, rules: RuleFile, compile_pattern: CompilePattern) -> None:
        numbers = {name: self._add_list(section, compile_pattern) for name, section in rules.words.items()}
        for deny in rules.deny:
            all_of = [numbers[name] for name in deny.all] or [self._add_list(deny, compile_pattern)]
            unless = (numbers[name] for name in deny.unless)
            self._rules.append(_Rule(deny.reason, frozenset(all_of), frozenset(unless)))

    def _add_list(self, section: WordSection, compile_pattern: CompilePattern) -> int:
        self._lists += 1
        number = self._lists
        self._clear += ((word, number) for word in section.words)
        self._hashed += ((word, number) for word in section.hashed)
        self._patterns += ((compiled(pattern, compile_pattern), number) for pattern in section.patterns)
        return number


def compiled(pattern: str, compile_pattern: CompilePattern) -> Pattern:
    """Compile a pattern. Raises `UsageError`."""
    if len(pattern) > PATTERN_MAX:
        raise UsageError(f"a pattern has at most {PATTERN_MAX} characters: {pattern[:40]}...")
    return compile_pattern(pattern)
