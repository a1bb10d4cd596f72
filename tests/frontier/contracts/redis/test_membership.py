"""The file in which a worker of a shared crawl remembers who it is: what comes back, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lycosa.core.errors import ForeignState, StateError
from lycosa.frontier.redis.worker.membership import membership


def test_what_is_remembered(tmp_path: Path):
    file = tmp_path / "worker"
    new = membership(file, "shop \u00fc")
    assert (len(new.worker), new.crawl, new.starts) == (8, "", {})
    new.changed()
    assert membership(file, "shop \u00fc").worker == new.worker
    assert membership(file, "other").name == "other", "it had not joined yet"
    new.crawl, new.starts = "12ab", {"jsonl:/a b\nc": 3}
    new.changed()
    again = membership(file, "shop \u00fc")
    assert (again.worker, again.crawl, again.starts, again.name) == (
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
def test_one_that_is_damaged(tmp_path: Path, damage: bytes):
    (tmp_path / "worker").write_bytes(damage)
    with pytest.raises(ForeignState, match=r"^.*/worker is damaged: .* give another --state and -o$"):
        membership(tmp_path / "worker", "n")
    assert (tmp_path / "worker").read_bytes() == damage


def test_one_that_is_no_file(tmp_path: Path):
    (tmp_path / "worker").mkdir()
    with pytest.raises(StateError, match=r"^.*/worker cannot be read: is a directory$"):
        membership(tmp_path / "worker", "n")


def test_a_place_where_none_can_be(tmp_path: Path):
    member = membership(tmp_path / "gone" / "worker", "n")
    with pytest.raises(
        StateError,
        match=r"^.*/gone/worker: the membership of this worker cannot be written: no such file or directory$",
    ):
        member.changed()
