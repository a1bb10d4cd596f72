"""A dict of bounded size forgets the entry that was set longest ago (C1)."""

from __future__ import annotations

import copy

from lycosa.core.recent_dict import RecentDict


def test_the_entry_that_was_set_longest_ago_leaves_first() -> None:
    recent: RecentDict[str, int] = RecentDict(2)
    recent["a"], recent["b"], recent["a"], recent["c"] = 1, 2, 3, 4
    assert dict(recent) == {"a": 3, "c": 4}


def test_an_update_is_bounded_too() -> None:
    recent: RecentDict[int, int] = RecentDict(3)
    recent.update((number, number) for number in range(10))
    assert list(recent) == [7, 8, 9]


def test_a_copy_has_the_same_bound() -> None:
    recent: RecentDict[int, int] = RecentDict(2)
    recent.update({1: 1, 2: 2})
    copied = copy.deepcopy(recent)
    copied[3] = 3
    assert (dict(recent), dict(copied)) == ({1: 1, 2: 2}, {2: 2, 3: 3})
