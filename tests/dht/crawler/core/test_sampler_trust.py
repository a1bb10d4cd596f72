"""Which hosts are trusted to return real infohashes."""

from __future__ import annotations

from lycosa.dht.core.endpoints import pack
from lycosa.dht.crawler.core.sampler_trust import DISTRUST_S, TRIED_MIN, SamplerTrust

NODE, NEIGHBOUR, OTHER = pack("20.0.0.1", 6881), pack("20.0.0.1", 6882), pack("20.0.0.2", 6881)


def test_a_host_with_invented_infohashes_is_distrusted_for_a_day_with_all_its_nodes() -> None:
    trust = SamplerTrust()
    for _ in range(TRIED_MIN):
        assert trust.trusts(NODE, 0.0)
        trust.tried(NODE, 0.0, fetched=False)
    assert not trust.trusts(NODE, 1.0)
    assert not trust.trusts(NEIGHBOUR, 1.0)
    assert trust.trusts(OTHER, 1.0)
    assert trust.trusts(NODE, DISTRUST_S)


def test_a_host_stays_trusted_if_a_few_in_a_hundred_of_its_infohashes_are_fetched() -> None:
    trust = SamplerTrust()
    for number in range(10 * TRIED_MIN):
        trust.tried(NODE, 0.0, fetched=number % 50 == 0)
        assert trust.trusts(NODE, 0.0)
