"""The file in which a worker of a shared crawl stores its membership: what is restored, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lycosa.core.errors import ForeignState, StateError
from lycosa.frontier.redis.worker.membership import membership


def test_a_membership_is_restored(tmp_path: Path):
    file = tmp_path / "worker"
    new = membership(file, "shop \u00fc")
    assert (len(new.worker), new.crawl, new.starts) == (8, "", {})
    new.changed()
    assert membership(file, "shop \u00fc").worker == new.worker
    assert membership(file, "other").name == "other", "it had not joined yet"
    new.crawl, new.starts = "12ab", {"jsonl:/a b\nc": 3}
    new.changed()
    restored = membership(file, "shop \u00fc")
    assert (restored.worker, restored.crawl, restored.starts, restored.name) == (
        new.worker,
        "12ab",
        {"jsonl:/a b\nc": 3},
        "shop \u00fc",
    )
    with pytest.raises(ForeignState, match="is the state of a worker of the crawl 'shop \u00fc', not of 'other'"):
        membership(file, "other")


@pytest.mark.parametrize(
    "damage",
    [b"", b"garbage", b'a b\n{not json\n"x"', b'a b\n[1]\n"x"', b"a b\n{}\n3", b"\xff\xfe", b'a b\n{"x": "y"}\n"n"',
     b' b\n{}\n"n"', b'a b c\n{}\n"n"', b'a b\n{}\n"n"\nmore'],
)  # fmt: skip
def test_a_damaged_membership_is_refused(tmp_path: Path, damage: bytes):
    (tmp_path / "worker").write_bytes(damage)
    with pytest.raises(ForeignState, match=r"^.*/worker is damaged: .* give another --state and -o$"):
        membership(tmp_path / "worker", "n")
    assert (tmp_path / "worker").read_bytes() == damage


def test_an_unreadable_membership_is_refused(tmp_path: Path):
    (tmp_path / "worker").mkdir()
    with pytest.raises(StateError, match=r"^.*/worker cannot be read: is a directory$"):
        membership(tmp_path / "worker", "n")


def test_a_membership_that_cannot_be_written_is_reported(tmp_path: Path):
    member = membership(tmp_path / "missing" / "worker", "n")
    with pytest.raises(
        StateError,
        match=r"^.*/missing/worker: the membership of this worker cannot be written: no such file or directory$",
    ):
        member.changed()
