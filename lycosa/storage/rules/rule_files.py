"""Reads rule files: the built-in ones, and those of an operator.

Built-in patterns are compiled by `re`: they are reviewed, and tested on long names. Other patterns are compiled by RE2,
which searches in time linear in the length of the name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from lycosa.core.errors import UsageError
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.core.torrents.rules import CompilePattern, Pattern, RuleFile, WordSection, read_rules
from lycosa.storage.core.torrents.words import HASHED

CONTENT, ABUSE = "content.toml", "abuse.toml"
FILE_MAX_BYTES = 64 << 20
PATTERN_MEMORY = 1 << 20
"""Maximum bytes that RE2 may use for a pattern: `(.{1000}){1000}` is refused."""
S = TypeVar("S", bound=WordSection)

PACKAGE = Path(__file__).with_name("rule_sets")


def make_inspector(paths: Iterable[Path] = ()) -> Inspector:
    """Return an inspector with the built-in rules and those of these files. Raises `UsageError`.

    If a file has `abuse_rules = false`, the built-in rules against abuse material are left out.
    """
    added: list[tuple[RuleFile, CompilePattern]] = []
    for path in paths:
        inspector_of(path)  # reports mistakes with the name of the file
        added.append((load_rules(path), compile_pattern))
    own = [CONTENT, ABUSE] if all(rules.abuse_rules for rules, _ in added) else [CONTENT]
    return Inspector([*((load_rules(PACKAGE / name), compile_own) for name in own), *added])


def inspector_of(path: Path) -> Inspector:
    """Return an inspector with the rules of this file only. Raises `UsageError`."""
    try:
        return Inspector([(load_rules(path), compile_pattern)])
    except UsageError as error:
        raise UsageError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def list_files(path: Path) -> list[Path]:
    """Return the paths of the word lists of a rule file. Raises `UsageError`."""
    rules = _read_rules(path)
    sections: list[WordSection] = [*rules.words.values(), *rules.deny]
    return [path.parent / section.file for section in sections if section.file]


def load_rules(path: Path) -> RuleFile:
    """Read a rule file and its word lists. Raises `UsageError`."""
    rules = _read_rules(path)
    words = {name: _with_file(section, path) for name, section in rules.words.items()}
    return msgspec.structs.replace(rules, words=words, deny=[_with_file(each, path) for each in rules.deny])


def compile_own(pattern: str) -> Pattern:
    """Compile a built-in pattern with `re`."""
    return re.compile(pattern, re.MULTILINE | re.ASCII)


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern with RE2. Raises `UsageError`."""
    try:
        import re2
    except ImportError:
        raise UsageError("patterns need the package google-re2: pip install 'lycosa[rules]'") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        compiled: Pattern = re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise UsageError(f"RE2 cannot compile the pattern {pattern!r}: {reason}") from None
    return compiled


def _read_rules(path: Path) -> RuleFile:
    text = _read(path)
    try:
        return read_rules(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_MAX_BYTES:
            raise UsageError(f"{path}: larger than {FILE_MAX_BYTES >> 20} MB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8") from None


def _with_file(section: S, path: Path) -> S:
    """Return the section with the words of its file, which has one word per line."""
    if not section.file:
        return section
    lines = [line.strip() for line in _read(path.parent / section.file).splitlines()]
    listed = [line for line in lines if line and not line.startswith("#")]
    hashed = [line for line in listed if HASHED.fullmatch(line)]
    clear = [line for line in listed if not HASHED.fullmatch(line)]
    return msgspec.structs.replace(section, words=[*section.words, *clear], hashed=[*section.hashed, *hashed])
