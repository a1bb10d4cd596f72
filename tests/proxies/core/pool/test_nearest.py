"""The index by latency, compared with a sorted list."""

from __future__ import annotations

import random

import pytest

from lycosa.proxies.core.pool import nearest
from lycosa.proxies.core.pool.nearest import LatencyIndex


@pytest.mark.parametrize("chunk", [2, 3, 8, 1024])
def test_the_index_equals_a_sorted_list(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(nearest, "CHUNK_MAX", chunk)
    rng, index, latencies = random.Random(chunk), LatencyIndex(), dict[str, float]()
    for step in range(3000):
        key = f"proxy{rng.randrange(40 if step % 1000 < 500 else 4)}"
        if key in latencies and rng.random() < 0.6:
            index.remove(latencies.pop(key), key)
        elif key not in latencies:
            latencies[key] = rng.choice([0.5, 0.5, rng.random()])
            index.add(latencies[key], key)
        assert list(index) == [key for _, key in sorted((latency_s, key) for key, latency_s in latencies.items())]
    for key, latency_s in latencies.items():
        index.remove(latency_s, key)
    assert list(index) == []
