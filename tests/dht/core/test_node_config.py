from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.dht.core.node_config import NodeConfig


@pytest.mark.parametrize("interval_s", [0, 21_600])
def test_the_intervals_of_bep_51_are_accepted(interval_s: int):
    assert NodeConfig(sample_interval_s=interval_s).sample_interval_s == interval_s


@pytest.mark.parametrize("interval_s", [-1, 21_601])
def test_intervals_that_bep_51_does_not_allow_are_refused(interval_s: int):
    with pytest.raises(UsageError, match=f"sample_interval_s {interval_s}: write 0 to 21600 seconds"):
        NodeConfig(sample_interval_s=interval_s)
