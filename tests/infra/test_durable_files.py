"""Files that are never seen in part, also if several processes make them at the same time."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pytest

from lycosa.infra.durable_files import make_file


def test_an_existing_file_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert make_file(path, b"one")
    assert not make_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert make_file(path, b"three", replace=True)
    assert path.read_bytes() == b"three"
    assert S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path], "no draft is left"


@pytest.mark.parametrize("anew", [False, True])
def test_only_a_complete_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool) -> None:
    path, act = tmp_path / "key", "replace" if anew else "link"
    name: Any = getattr(os, act)
    drafts = []

    def named(draft: Path, to: Path) -> None:
        assert not path.exists()
        drafts.append(draft.read_bytes())
        name(draft, to)

    monkeypatch.setattr(os, act, named)
    assert make_file(path, b"one", replace=anew)
    assert drafts == [path.read_bytes()] == [b"one"]


def test_one_of_two_processes_makes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "key", os.link

    def late(draft: Path, to: Path) -> None:
        monkeypatch.undo()
        assert make_file(path, b"the other")
        link(draft, to)

    monkeypatch.setattr(os, "link", late)
    assert not make_file(path, b"ours")
    assert path.read_bytes() == b"the other"
    assert list(tmp_path.iterdir()) == [path]
