"""The rules of a state folder: the built-in ones, those in DIR/rules, and those in files that the user names.

    DIR/rules/NAME/    a rule file, NAME.toml, and its word lists. Remove the folder to remove the rules

An empty file `unapplied` in the folder marks rules that the torrent site has installed, but not yet applied to all
stored torrents.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lycosa.core.errors import UsageError
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import make_folder, replace_file
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.core.torrents.rules import RuleFile
from lycosa.storage.rules.rule_files import list_files, load_rules, make_inspector

RULES = "rules"
UNAPPLIED = "unapplied"
LOOK_EVERY_S = 1.0
"""Seconds between checks for changed files."""


class InstalledRules:
    """Reads the rules again when a rule file changes, but not when only a word list changes.

    `now` returns seconds. Raises `UsageError` for invalid files.
    """

    def __init__(self, state: Path | None, files: Sequence[Path], now: Callable[[], float]) -> None:
        self._folder = state / RULES if state is not None else None
        self._files, self._now = files, now
        self._versions = self._look()
        self._looked_at = now()
        self._inspector = make_inspector(self._versions)

    def refusal(self, record: TorrentRecord) -> str:
        return self.current().refusal(record)

    def facts(self, record: TorrentRecord) -> ContentFacts:
        return self.current().facts(record)

    def current(self) -> Inspector:
        """Return the rules: the same object until they change.

        After a change that makes a file invalid, the previous rules stay in use.
        """
        now = self._now()
        if now >= self._looked_at + LOOK_EVERY_S:
            self._looked_at = now
            with suppress(UsageError, OSError):  # OSError: a file is just being removed
                versions = self._look()
                if versions != self._versions:
                    self._versions = versions
                    self._inspector = make_inspector(versions)
        return self._inspector

    def _look(self) -> dict[Path, int]:
        """Return the files with the times of their last changes."""
        found = sorted(self._folder.glob("*/*.toml")) if self._folder is not None else []
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in [*found, *self._files]}


def install_rules(path: Path, state: Path) -> Path:
    """Copy a rule file and its word lists to a state folder. Return their folder.

    Raises `StateError`; `UsageError` for an invalid rule file.
    """
    folder = state / RULES / path.stem
    try:
        make_folder(folder)
        for source in [*list_files(path), path]:
            replace_file(folder / source.name, source.read_bytes(), sync=True)
    except OSError as error:
        raise write_error(folder, error, "the rules cannot be written") from None
    return folder


def install_text(name: str, text: str, state: Path) -> None:
    """Write a rule file to a state folder, marked as unapplied. Raises `StateError`."""
    folder = state / RULES / name
    try:
        make_folder(folder)
        replace_file(folder / UNAPPLIED, b"", sync=True)
        replace_file(folder / f"{name}.toml", text.encode(), sync=True)
    except OSError as error:
        raise write_error(folder, error, "the rules cannot be written") from None


def mark_applied(name: str, state: Path) -> None:
    """Remove the mark of unapplied rules."""
    (state / RULES / name / UNAPPLIED).unlink(missing_ok=True)


def unapplied_rules(state: Path) -> list[str]:
    """Return the names of the unapplied rules."""
    return sorted(path.parent.name for path in (state / RULES).glob(f"*/{UNAPPLIED}"))


def remove_rules(name: str, state: Path) -> None:
    """Remove rules from a state folder. Raises `StateError`; `UsageError` for an unknown name."""
    folder = state / RULES / name
    if folder not in (state / RULES).glob("*/"):  # a name such as ".." must not remove another folder
        raise UsageError("There is no such rule.")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise write_error(folder, error, "the rules cannot be removed") from None


def rule_files(state: Path) -> dict[str, RuleFile | None]:
    """Return the rules by name; None for a file that cannot be read."""
    found: dict[str, RuleFile | None] = {}
    for path in sorted((state / RULES).glob("*/*.toml")):
        try:
            found[path.parent.name] = load_rules(path)
        except UsageError:
            found[path.parent.name] = None
    return found
