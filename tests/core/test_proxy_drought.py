"""What a crawl does while nobody is lent a proxy (P5): it tells so once, asks less and less often, and ends at last."""

from __future__ import annotations

import pytest

from lycosa.core.proxies.drought import AGAIN_MAX_S, AGAIN_MIN_S, Drought, Dry


def test_it_is_told_once_and_ends_at_last() -> None:
    drought = Drought(100.0)
    assert drought.none(1000.0, 1000.0) == Dry(0.0, True, AGAIN_MIN_S)
    assert drought.none(1001.0, 1020.0) == Dry(20.0, False, 5.0)
    assert drought.none(1090.0, 1090.0) == Dry(90.0, False, 10.0)
    assert drought.none(1100.0, 1100.0) == Dry(100.0, False, None)


def test_who_got_one_ends_it_for_all() -> None:
    drought = Drought(100.0)
    drought.none(1000.0, 1010.0)
    assert drought.got(1040.0) == 40.0
    assert drought.got(1041.0) == 0.0, "nobody was told of another"
    assert drought.none(1005.0, 1090.0) == Dry(49.0, True, pytest.approx(12.25)), "since the last one that was lent"


def test_a_pause_in_which_nobody_asks_is_none() -> None:
    drought = Drought(100.0)
    drought.got(1000.0)
    assert drought.none(5000.0, 5010.0).for_s == 10.0


def test_without_a_limit_it_lasts() -> None:
    drought = Drought(None)
    drought.none(1.0, 1.0)
    assert drought.none(1.0, 1e6) == Dry(pytest.approx(1e6 - 1), False, AGAIN_MAX_S)


def test_no_patience_at_all() -> None:
    assert Drought(0.0).none(10.0, 10.0).again_s is None
