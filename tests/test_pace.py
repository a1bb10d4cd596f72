"""What `pace.assert_paced` accepts and rejects."""

from __future__ import annotations

import pytest

from tests.pace import assert_paced

SLOW = [0.3, 0.31, 0.35]


@pytest.mark.parametrize(
    "gaps", [[], SLOW, SLOW * 9, [0.5, 0.1, 0.3], [0.9, 0.0, 0.3, 0.3], [*SLOW * 50, 1.2, 0.01, 0.02, *SLOW * 50]]
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
        [*SLOW * 9, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ],
)
def test_too_short_delays_are_rejected(gaps: list[float]) -> None:
    with pytest.raises(AssertionError):
        assert_paced(gaps, 0.3)
