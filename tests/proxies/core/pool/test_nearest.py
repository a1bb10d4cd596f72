"""The index by latency, compared with a list that is sorted at each step."""

from __future__ import annotations

import random

import pytest

from lycosa.proxies.core.pool import nearest
from lycosa.proxies.core.pool.nearest import LatencyIndex


@pytest.mark.parametrize("chunk", [2, 3, 8, 1024])
def test_the_index_equals_a_sorted_list(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(nearest, "CHUNK_MAX", chunk)
    rng, order, there = random.Random(chunk), LatencyIndex(), dict[str, float]()
    for step in range(3000):
        key = f"proxy{rng.randrange(40 if step % 1000 < 500 else 4)}"
        if key in there and rng.random() < 0.6:
            order.remove(there.pop(key), key)
        elif key not in there:
            there[key] = rng.choice([0.5, 0.5, rng.random()])
            order.add(there[key], key)
        assert list(order) == [key for _, key in sorted((at, key) for key, at in there.items())]
    for key, at in there.items():
        order.remove(at, key)
    assert list(order) == []
