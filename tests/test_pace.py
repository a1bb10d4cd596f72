"""What `pace.assert_paced` accepts and rejects."""

from __future__ import annotations

import pytest

from tests.pace import assert_hosts_paced, assert_paced

SLOW = [0.3, 0.31, 0.35]


@pytest.mark.parametrize(
    "gaps",
    [
        [],
        SLOW,
        SLOW * 9,
        [0.5, 0.1, 0.3],
        [0.9, 0.0, 0.3, 0.3],
        [0.45, 0.15] * 5,  # half of few requests are late
        [*SLOW * 50, 1.2, 0.01, 0.02, *SLOW * 50],
        [*SLOW, 1.9, 0.0, 0.01, 0.0, 0.0, 0.25, *SLOW],  # the server paused
        [*SLOW, 1.9, 0.0, 0.01, 0.0, 0.0, 0.25, *SLOW, 0.9, 0.0, 0.2, *SLOW],  # twice
    ],
)
def test_kept_delays_and_late_arrivals_are_accepted(gaps: list[float]) -> None:
    assert_paced(gaps, 0.3)


@pytest.mark.parametrize(
    "gaps",
    [
        [0.2] * 9,  # too fast
        [0.27] * 60,  # slightly too fast
        [0.0, 0.6] * 5,  # two at a time
        [*[0.0, 0.6] * 9, *SLOW * 99],
        [*SLOW, *[0.0] * 9, *SLOW * 99],
        [*SLOW * 9, 9.0, *[0.0] * 20],  # more than a server receives after a pause
        [0.0] * 5,
        [*[0.0] * 5, *SLOW * 9],
        [*SLOW, *[0.0] * 5, *SLOW * 9],  # at once, without a pause before
        [*SLOW, 5.0, *[0.1] * 5, *SLOW * 9],  # too fast after a pause, but not at once
        [*SLOW, *[1.2, 0.0, 0.0] * 3, *SLOW * 9],  # three times three at once
    ],
)
def test_too_short_delays_are_rejected(gaps: list[float]) -> None:
    with pytest.raises(AssertionError):
        assert_paced(gaps, 0.3)


def hosts(count: int) -> list[list[float]]:
    """Return the arrivals at several hosts, which are not contacted at the same time."""
    return [[0.05 * host + 0.3 * n for n in range(20)] for host in range(count)]


def test_a_server_that_pauses_is_late_for_all_its_hosts() -> None:
    paused = [[2.9 if 2.0 < at < 2.9 else at for at in each] for each in hosts(6)]
    assert_hosts_paced(paused, 0.3)


def test_one_host_of_several_may_not_be_contacted_too_soon() -> None:
    """The other hosts show that the server did not pause."""
    good = hosts(6)
    assert_hosts_paced(good, 0.3)
    for changed in ([at * 0.8 for at in good[0]], [3.7 if 2.0 < at < 3.7 else at for at in good[0]], [0.0] * 5):
        with pytest.raises(AssertionError):
            assert_hosts_paced([changed, *good[4:]], 0.3)
