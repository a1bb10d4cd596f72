"""Files that are never visible in part, also if several processes create them at the same time."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pytest

from lycosa.infra.durable_files import make_file


def test_an_existing_file_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert make_file(path, b"one")
    assert not make_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert make_file(path, b"three", replace=True)
    assert path.read_bytes() == b"three"
    assert S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path], "the temporary file is removed"


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_is_complete_when_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    path, function = tmp_path / "key", "replace" if replace else "link"
    name: Any = getattr(os, function)
    drafts = []

    def record_and_call(draft: Path, target: Path) -> None:
        assert not path.exists()
        drafts.append(draft.read_bytes())
        name(draft, target)

    monkeypatch.setattr(os, function, record_and_call)
    assert make_file(path, b"one", replace=replace)
    assert drafts == [path.read_bytes()] == [b"one"]


def test_one_of_two_processes_creates_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "key", os.link

    def create_first(draft: Path, target: Path) -> None:
        monkeypatch.undo()
        assert make_file(path, b"other")
        link(draft, target)

    monkeypatch.setattr(os, "link", create_first)
    assert not make_file(path, b"ours")
    assert path.read_bytes() == b"other"
    assert list(tmp_path.iterdir()) == [path]
