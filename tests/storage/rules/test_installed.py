from __future__ import annotations

from pathlib import Path

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.rules.installed import LOOK_EVERY_S, InstalledRules, install_rules
from tests.storage.rules.records import record_named

RULES = '[[deny]]\nreason = "mine"\nfile = "words.txt"\n'


def test_installed_rules_and_their_lists_apply_within_seconds(tmp_path: Path):
    now = 0.0
    rules = InstalledRules(tmp_path / "state", (), lambda: now)
    assert rules.current().inspect(record_named("a badword")).refused == ""
    (tmp_path / "words.txt").write_text("badword\n")
    (tmp_path / "mine.toml").write_text(RULES)
    folder = install_rules(tmp_path / "mine.toml", tmp_path / "state")
    (tmp_path / "words.txt").unlink()
    now = LOOK_EVERY_S
    assert rules.current().inspect(record_named("a badword")).refused == "mine"
    (folder / "mine.toml").unlink()
    now *= 2
    assert rules.current().inspect(record_named("a badword")).refused == ""


def test_a_file_that_breaks_while_a_crawl_runs_changes_nothing(tmp_path: Path):
    now = 0.0
    (tmp_path / "words.txt").write_text("badword\n")
    (tmp_path / "mine.toml").write_text(RULES)
    rules = InstalledRules(None, [tmp_path / "mine.toml"], lambda: now)
    (tmp_path / "mine.toml").write_text("[[deny")
    now = LOOK_EVERY_S
    assert rules.current().inspect(record_named("a badword")).refused == "mine"


def test_a_file_that_is_removed_during_a_look_changes_nothing_until_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = 0.0
    (tmp_path / "words.txt").write_text("badword\n")
    (tmp_path / "mine.toml").write_text(RULES)
    folder = install_rules(tmp_path / "mine.toml", tmp_path)
    rules = InstalledRules(tmp_path, (), lambda: now)

    def exists_until_asked(path: Path) -> bool:
        path.unlink()
        return True

    now = LOOK_EVERY_S
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", exists_until_asked)
        assert rules.current().inspect(record_named("a badword")).refused == "mine"
    assert not (folder / "mine.toml").exists()
    now *= 2
    assert rules.current().inspect(record_named("a badword")).refused == ""


def test_a_file_that_cannot_be_used_at_the_start_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        InstalledRules(tmp_path, [tmp_path / "none.toml"], lambda: 0.0)
