"""Random histories of five workers on one crawl in a real Redis, compared with a model of it: see `history`."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import redis as real_redis

from lycosa.frontier.redis.scripts import OPERATIONS_SCRIPT, WORKER_SCRIPT
from lycosa.frontier.redis.worker import calls
from tests.conftest import PROVE
from tests.frontier.sim.redis.history import History

pytestmark = pytest.mark.redis

HISTORIES = 2000 if PROVE else 8
PARTS = 8
SMALL_LIMITS = {
    "SEEN_SET_MEAN = 256": "SEEN_SET_MEAN = 4",
    "RETAINED = 1000": "RETAINED = 3",
    "RETAINED_S = 5 ": "RETAINED_S = 0.5 ",
    "CLAIMS_IN_ROW_MAX = 8": "CLAIMS_IN_ROW_MAX = 2",
}
"""Smaller limits, so that the script does with few records what it otherwise does with many."""

SLICE = 3
PROCESSES = 2


def shrink_script(url: str, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Reduce the limits of the script, so that it splits sets, trims outboxes and slices deliveries with few
    records.
    """
    text = WORKER_SCRIPT.text.decode()
    for old, _ in (*SMALL_LIMITS.items(), *changes):
        assert text.count(old) == 1, f"{old!r} is not in the script"
    monkeypatch.setattr(calls, "DELIVERED_AT_ONCE", SLICE)
    with real_redis.Redis.from_url(url) as client:
        for script in (WORKER_SCRIPT, OPERATIONS_SCRIPT):
            text = script.text.decode()
            for old, new in (*SMALL_LIMITS.items(), *changes):
                text = text.replace(old, new)
            # First the checksum: the old one, if nobody has asked for it yet, is computed from the old text.
            monkeypatch.setattr(script, "checksum", client.script_load(text))
            monkeypatch.setattr(script, "text", text.encode())


def run_histories(url: str, seeds: list[int]) -> None:
    """Run the history of each seed."""
    with pytest.MonkeyPatch.context() as patch:
        shrink_script(url, patch)
        for seed in seeds:
            print("seed", seed)
            try:
                History(url, seed).run()
            except BaseException as error:
                error.add_note(f"in the history of seed {seed}")
                raise


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(redis, part: int) -> None:
    seeds = [random.randrange(1 << 32) for _ in range(HISTORIES // PARTS)]
    if not PROVE:
        run_histories(redis.url, seeds)
        return
    with ProcessPoolExecutor(
        PROCESSES, get_context("spawn")
    ) as pool:  # a history waits for Redis for a third of its time
        for _ in pool.map(run_histories, [redis.url] * PROCESSES, [seeds[n::PROCESSES] for n in range(PROCESSES)]):
            pass
