"""The rules that hold for a state folder: those of the package, of DIR/rules, and of files that its user names.

DIR/rules/NAME/    a file of rules, NAME.toml, and the lists of words that it names; without the folder it does not hold
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lycosa.core.errors import UsageError
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import make_folder, replace_file
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection, Inspector
from lycosa.storage.rules.rule_files import list_files, make_inspector

RULES = "rules"
LOOK_EVERY_S = 5.0
"""How often changed files are looked for."""


class InstalledRules:
    """See the module. `now` counts seconds. Raises `UsageError` for files that cannot be used."""

    def __init__(self, state: Path | None, files: Sequence[Path], now: Callable[[], float]) -> None:
        self._folder = state / RULES if state is not None else None
        self._files, self._now = files, now
        self._versions = self._look()
        self._looked_at = now()
        self._inspector = make_inspector(self._versions)

    def inspect(self, record: TorrentRecord) -> Inspection:
        """Apply the rules as they are now. Files that became unusable since the start change nothing."""
        return self._current().inspect(record)

    def refusal(self, record: TorrentRecord) -> str:
        """See `Inspector.refusal`."""
        return self._current().refusal(record)

    def _current(self) -> Inspector:
        now = self._now()
        if now >= self._looked_at + LOOK_EVERY_S:
            self._looked_at = now
            versions = self._look()
            if versions != self._versions:
                self._versions = versions
                with suppress(UsageError):
                    self._inspector = make_inspector(versions)
        return self._inspector

    def _look(self) -> dict[Path, int]:
        """Return the files and when they were changed."""
        found = sorted(self._folder.glob("*/*.toml")) if self._folder is not None else []
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in [*found, *self._files]}


def install_rules(path: Path, state: Path) -> Path:
    """Copy a file of rules, and its lists of words, to a state folder. Return its new folder. Raises `StateError`."""
    folder = state / RULES / path.stem
    try:
        make_folder(folder)
        for source in [*list_files(path), path]:
            replace_file(folder / source.name, source.read_bytes(), sync=True)
    except OSError as error:
        raise write_error(folder, error, "the rules cannot be written") from None
    return folder
