"""Which hosts are believed when they name infohashes."""

from __future__ import annotations

from lycosa.dht.core.endpoints import pack
from lycosa.dht.crawler.core.samplers import DISTRUST_S, TRIED_MIN, Samplers

NODE, NEIGHBOUR, OTHER = pack("20.0.0.1", 6881), pack("20.0.0.1", 6882), pack("20.0.0.2", 6881)


def test_a_host_whose_infohashes_nobody_has_is_distrusted_for_a_day_with_all_its_nodes() -> None:
    samplers = Samplers()
    for _ in range(TRIED_MIN):
        assert samplers.trusts(NODE, 0.0)
        samplers.tried(NODE, 0.0, fetched=False)
    assert not samplers.trusts(NODE, 1.0)
    assert not samplers.trusts(NEIGHBOUR, 1.0)
    assert samplers.trusts(OTHER, 1.0)
    assert samplers.trusts(NODE, DISTRUST_S)


def test_a_few_in_a_hundred_are_enough() -> None:
    samplers = Samplers()
    for number in range(10 * TRIED_MIN):
        samplers.tried(NODE, 0.0, fetched=number % 50 == 0)
        assert samplers.trusts(NODE, 0.0)
