"""Errors of files that cannot be written (P5, C1): no space on the device, or another reason."""

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
from lycosa.infra.disk import NO_ROOM, is_full, write_error
from lycosa.proxies.folder.folder import PoolFolder


@pytest.mark.parametrize("number", sorted(NO_ROOM))
def test_an_error_for_lack_of_space_says_what_to_do(number: int) -> None:
    error = OSError(number, os.strerror(number))
    failure = write_error(Path("a"), error, "it cannot be kept")
    assert (type(failure), str(failure)) == (
        StorageFull,
        "a: no space left on the device; free some and run the same command again",
    )
    assert str(write_error(Path("a"), error, "it cannot be kept", ": go")) == "a: no space left on the device: go"


def test_another_error_gives_its_reason() -> None:
    failure = write_error(Path("a"), OSError(errno.EROFS, "Read-only file system"), "it cannot be kept")
    assert (type(failure), str(failure)) == (StorageError, "a: it cannot be kept: read-only file system")


def test_free_space_is_found_for_a_path_that_does_not_exist_yet(tmp_path, monkeypatch) -> None:
    existing, missing = tmp_path, tmp_path / "file"
    assert not is_full(existing)
    monkeypatch.setattr(disk, "FREE_MIN_BYTES", 1 << 62)
    assert is_full(existing)
    assert is_full(missing)
    assert not is_full(missing / "below")


def save_membership(folder: Path) -> None:
    member: Membership = membership(folder / "worker", "shop")
    member.changed()


@pytest.mark.parametrize("open_state", [StateDir, PoolFolder, save_membership])
def test_an_exceeded_quota_is_reported_as_lack_of_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_state: Callable[[Path], object]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    for name in ("os.open", "pathlib.Path.open"):
        monkeypatch.setattr(name, refuse)
    with pytest.raises(StorageFull, match="no space left on the device"):
        open_state(tmp_path)
