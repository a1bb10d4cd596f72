"""What is said when a file cannot be written (P5, C1): no room, or why else; the same words wherever it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lycosa.core.errors import StorageError, StorageFull
from lycosa.frontier.redis.worker.membership import Membership, membership
from lycosa.frontier.state_dir import StateDir
from lycosa.infra import disk
from lycosa.infra.disk import NO_ROOM, is_full, not_written
from lycosa.proxies.folder.folder import Folder


@pytest.mark.parametrize("number", sorted(NO_ROOM))
def test_no_room_is_told_with_what_to_do(number: int) -> None:
    error = OSError(number, os.strerror(number))
    told = not_written(Path("a"), error, "it cannot be kept")
    assert (type(told), str(told)) == (
        StorageFull,
        "a: no space left on the device; free some and run the same command again",
    )
    assert str(not_written(Path("a"), error, "it cannot be kept", ": go")) == "a: no space left on the device: go"


def test_anything_else_is_told_with_its_reason() -> None:
    told = not_written(Path("a"), OSError(errno.EROFS, "Read-only file system"), "it cannot be kept")
    assert (type(told), str(told)) == (StorageError, "a: it cannot be kept: read-only file system")


def test_a_full_device_is_known_also_by_the_folder_of_a_file_that_is_not_there(tmp_path, monkeypatch) -> None:
    there, not_there = tmp_path, tmp_path / "file"
    assert not is_full(there)
    monkeypatch.setattr(disk, "FREE_MIN_BYTES", 1 << 62)
    assert is_full(there)
    assert is_full(not_there)
    assert not is_full(not_there / "below")


def joined(folder: Path) -> None:
    member: Membership = membership(folder / "worker", "shop")
    member.changed()


@pytest.mark.parametrize("keeps", [StateDir, Folder, joined])
def test_a_quota_is_no_room_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: Callable[[Path], object]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    for name in ("os.open", "pathlib.Path.open"):
        monkeypatch.setattr(name, refused)
    with pytest.raises(StorageFull, match="no space left on the device"):
        keeps(tmp_path)
